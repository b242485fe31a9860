//! `Problem`: every refusal of the API, as RFC 9457 has it. Its status and title come from the table of
//! [`ErrorCode`], its sentence from whoever refuses.

use std::time::Duration;

use access::audit::AuditError;
use access::password::PasswordUnchecked;
use access::{AdministrationError, LoginError, OidcError, Unauthenticated};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

use crate::error_code::{ErrorCode, retry_after_seconds};

/// A refusal of the API.
#[derive(Clone, Debug)]
pub struct Problem {
    pub code: ErrorCode,
    status: StatusCode,
    detail: String,
    cluster: Option<String>,
    retry_after: Option<Duration>,
    cause: Option<serde_json::Value>,
}

/// How a problem is written: `application/problem+json`.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProblemBody {
    /// `urn:fairlead:problem:CODE`
    #[serde(rename = "type")]
    kind: String,
    code: &'static str,
    title: &'static str,
    status: u16,
    /// What happened and what to do next.
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    /// What the cluster's API server said, as it said it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    cause: Option<serde_json::Value>,
    /// To be quoted: the log and the audit name it too.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
}

impl Problem {
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self {
            code,
            status: code.status(),
            detail: detail.into(),
            cluster: None,
            retry_after: None,
            cause: None,
        }
    }

    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::Invalid, detail)
    }

    /// The same words for a cluster that does not exist and for one that the caller may not see.
    pub fn no_such_cluster(name: &str) -> Self {
        Self::new(
            ErrorCode::NoSuchCluster,
            format!("there is no cluster {name}; `fairlead clusters list` shows those there are"),
        )
    }

    /// The refusal of a method that a path does not take.
    pub(crate) fn not_allowed(detail: String) -> Self {
        let status = StatusCode::METHOD_NOT_ALLOWED;
        Self { status, ..Self::invalid(detail) }
    }

    #[must_use]
    pub fn of_cluster(mut self, cluster: impl Into<String>) -> Self {
        self.cluster = Some(cluster.into());
        self
    }

    #[must_use]
    pub fn come_back(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// The sentence.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    pub fn body(&self) -> ProblemBody {
        ProblemBody {
            kind: format!("urn:fairlead:problem:{}", self.code.text()),
            code: self.code.text(),
            title: self.code.title(),
            status: self.status.as_u16(),
            detail: self.detail.clone(),
            cluster: self.cluster.clone(),
            retry_after_ms: self.retry_after.map(millis),
            cause: self.cause.clone(),
            request_id: None,
        }
    }

    /// Names the request in the body of an answer that is a problem.
    pub(crate) fn named(response: Response, request_id: &str) -> Response {
        let Some(problem) = response.extensions().get::<Self>() else { return response };
        let body = ProblemBody { request_id: Some(request_id.to_owned()), ..problem.body() };
        let (parts, _) = response.into_parts();
        Response::from_parts(parts, serde_json::to_vec(&body).unwrap_or_default().into())
    }
}

impl Problem {
    /// The body of an answer that is a problem, as clients of the Kubernetes API read one.
    pub(crate) fn as_kubernetes_says_it(response: Response) -> Response {
        let Some(problem) = response.extensions().get::<Self>() else { return response };
        let reason = match problem.status.as_u16() {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            405 => "MethodNotAllowed",
            409 => "Conflict",
            413 => "RequestEntityTooLarge",
            429 => "TooManyRequests",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "InternalError",
        };
        let mut body = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": problem.detail, "reason": reason, "code": problem.status.as_u16(),
        });
        if let Some(after) = problem.retry_after {
            body["details"] =
                serde_json::json!({ "retryAfterSeconds": retry_after_seconds(after) });
        }
        let (mut parts, _) = response.into_parts();
        let json = HeaderValue::from_static("application/json");
        parts.headers.insert(header::CONTENT_TYPE, json);
        Response::from_parts(parts, body.to_string().into())
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        // Without a length of its own: the request's name is still to come.
        let body = serde_json::to_vec(&self.body()).unwrap_or_default();
        let mut response = (self.status, axum::body::Body::from(body)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(after) = self.retry_after {
            headers.insert(header::RETRY_AFTER, retry_after_seconds(after).into());
        }
        if self.code == ErrorCode::Unauthenticated {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

impl From<fleet::Error> for Problem {
    fn from(error: fleet::Error) -> Self {
        use fleet::Error;
        let detail = stallproof::sentence(&error);
        match error {
            Error::NoSuchCluster { cluster } => Self::no_such_cluster(&cluster),
            Error::NotReady { cluster, retry_after, .. } => {
                Self { retry_after, ..Self::new(ErrorCode::NotReady, detail).of_cluster(cluster) }
            }
            Error::Busy { cluster, retry_after, .. } => {
                Self::new(ErrorCode::SlowDown, detail).of_cluster(cluster).come_back(retry_after)
            }
            Error::TooLate { cluster, .. } => {
                Self::new(ErrorCode::TooLate, detail).of_cluster(cluster)
            }
            Error::Unreachable { cluster, .. } => {
                Self::new(ErrorCode::Unreachable, detail).of_cluster(cluster)
            }
            Error::NoSuchKind { cluster, .. } => {
                Self::new(ErrorCode::NoSuchKind, detail).of_cluster(cluster)
            }
            Error::Refused { cluster, status } => {
                let mut problem = Self::new(refused(&status), detail).of_cluster(cluster);
                problem.status = StatusCode::from_u16(status.code).unwrap_or(problem.status);
                // Of what is not there nothing more is said: what may not be seen is answered in
                // the same words, and has nothing more to say.
                if problem.code != ErrorCode::NotFound {
                    problem.cause = serde_json::to_value(&status).ok();
                }
                problem
            }
            Error::Impersonation { cluster, .. } => {
                Self::new(ErrorCode::Refused, detail).of_cluster(cluster)
            }
            Error::Store(error) => (&*error).into(),
            Error::NameTaken { .. } => Self::new(ErrorCode::Exists, detail),
            Error::NotSynced { retry_after } => {
                Self::new(ErrorCode::NotReady, detail).come_back(retry_after)
            }
            Error::Invalid(_) => Self::invalid(detail),
        }
    }
}

impl From<objects::Error> for Problem {
    fn from(error: objects::Error) -> Self {
        (&error).into()
    }
}

impl From<&objects::Error> for Problem {
    fn from(error: &objects::Error) -> Self {
        use objects::Error;
        let detail = stallproof::sentence(error);
        match error {
            Error::Exists { .. } => Self::new(ErrorCode::Exists, detail),
            Error::NotFound { .. } => Self::new(ErrorCode::NotFound, detail),
            Error::Conflict { .. } => Self::new(ErrorCode::Conflict, detail),
            Error::Invalid { .. } => Self::invalid(detail),
            Error::Busy { retry_after } => {
                Self::new(ErrorCode::SlowDown, detail).come_back(*retry_after)
            }
            Error::TooLate { .. } => Self::new(ErrorCode::TooLate, detail),
            Error::Forbidden { .. } => Self::new(ErrorCode::Refused, detail),
            Error::Unavailable { .. } => Self::new(ErrorCode::NotReady, detail),
        }
    }
}

impl From<Unauthenticated> for Problem {
    fn from(error: Unauthenticated) -> Self {
        match error {
            Unauthenticated::Unknown => Self::new(ErrorCode::Unauthenticated, error.to_string()),
            Unauthenticated::NotReady { retry_after } => {
                Self::new(ErrorCode::NotReady, error.to_string()).come_back(retry_after)
            }
        }
    }
}

impl From<LoginError> for Problem {
    fn from(error: LoginError) -> Self {
        let detail = error.to_string();
        match error {
            LoginError::Wrong | LoginError::BadCode => {
                Self::new(ErrorCode::Unauthenticated, detail)
            }
            LoginError::ByToken | LoginError::ByProvider => Self::new(ErrorCode::Forbidden, detail),
            LoginError::Limited { retry_after } => {
                Self::new(ErrorCode::SlowDown, detail).come_back(retry_after)
            }
            LoginError::NotReady { retry_after } => {
                Self::new(ErrorCode::NotReady, detail).come_back(retry_after)
            }
            LoginError::PasswordUnchecked(none) => none.into(),
        }
    }
}

impl From<OidcError> for Problem {
    fn from(error: OidcError) -> Self {
        let detail = error.to_string();
        match error {
            OidcError::NoSuchProvider(_) => Self::new(ErrorCode::NotFound, detail),
            OidcError::NotServed => Self::new(ErrorCode::NotServed, detail),
            OidcError::Away { .. } => Self::new(ErrorCode::NotReady, detail),
            OidcError::Busy { retry_after, .. } => {
                Self::new(ErrorCode::SlowDown, detail).come_back(retry_after)
            }
            OidcError::Refused { .. } | OidcError::NotAccepted { .. } | OidcError::BadState => {
                Self::new(ErrorCode::Unauthenticated, detail)
            }
        }
    }
}

impl From<PasswordUnchecked> for Problem {
    fn from(error: PasswordUnchecked) -> Self {
        let detail = error.to_string();
        match error {
            PasswordUnchecked::Busy { retry_after } => {
                Self::new(ErrorCode::SlowDown, detail).come_back(retry_after)
            }
            PasswordUnchecked::TooLate => Self::new(ErrorCode::TooLate, detail),
        }
    }
}

impl From<AdministrationError> for Problem {
    fn from(error: AdministrationError) -> Self {
        use AdministrationError as Error;
        let detail = error.to_string();
        match error {
            Error::NotAllowed { .. } | Error::Guarded(_) | Error::WrongPassword => {
                Self::new(ErrorCode::Forbidden, detail)
            }
            Error::Inactive => Unauthenticated::Unknown.into(),
            Error::WeakPassword(_) => Self::invalid(detail),
            Error::Login(error) => error.into(),
            Error::PasswordUnchecked(none) => none.into(),
            Error::Store(error) => (&error).into(),
        }
    }
}

impl From<AuditError> for Problem {
    fn from(error: AuditError) -> Self {
        let problem = Self::new(ErrorCode::Audit, stallproof::sentence(&error));
        match error {
            AuditError::Busy { retry_after } | AuditError::Unavailable { retry_after, .. } => {
                problem.come_back(retry_after)
            }
            AuditError::TooLate | AuditError::Stopping => problem,
        }
    }
}

/// The code of an API server's refusal: a program does the same next, whoever refuses.
fn refused(status: &kube::core::Status) -> ErrorCode {
    match (status.code, status.reason.as_str()) {
        (404, _) => ErrorCode::NotFound,
        (409, "AlreadyExists") => ErrorCode::Exists,
        (409, _) => ErrorCode::Conflict,
        (400 | 422, _) => ErrorCode::Invalid,
        _ => ErrorCode::Refused,
    }
}

#[cfg(test)]
mod tests;
