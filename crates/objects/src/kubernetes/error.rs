//! Translates kube's errors to [`Error`].

use std::time::Duration;

use kube::core::Status;
use kube::core::response::reason;
use stallproof::Deadline;

use crate::store::{Error, Id, Invalid, NotServed, Type};

/// When to come back to a server that says "too many requests" and not for how long: servers that say
/// it say this.
const COME_BACK: Duration = Duration::from_secs(1);

/// A request to the server, for the sentences of its errors.
pub(super) struct Call<'a> {
    verb: &'static str,
    pub(super) of: &'a Type,
    id: Option<&'a Id>,
}

impl<'a> Call<'a> {
    pub(super) fn on(verb: &'static str, of: &'a Type, id: &'a Id) -> Self {
        Self { verb, of, id: Some(id) }
    }

    pub(super) fn on_all(verb: &'static str, of: &'a Type) -> Self {
        Self { verb, of, id: None }
    }

    /// Sends a request and answers what the server said before the deadline.
    pub(super) async fn until<T>(
        &self,
        deadline: Deadline,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Error> {
        self.bound(deadline, request).await?.map_err(|error| self.failed(error))
    }

    /// The same, for callers who look at the answer before it is translated.
    pub(super) async fn bound<T>(
        &self,
        deadline: Deadline,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<kube::Result<T>, Error> {
        // What has passed is not even asked: a write that is sent late may still be made.
        if deadline.has_passed() {
            return Err(Error::TooLate { doing: self.doing() });
        }
        deadline.bound(request).await.map_err(|_| Error::TooLate { doing: self.doing() })
    }

    pub(super) fn failed(&self, error: kube::Error) -> Error {
        let kube::Error::Api(status) = error else { return self.unavailable(error) };
        let (kind, id) = (self.of.kind, || self.id.cloned().unwrap_or_else(|| Id::cluster("")));
        let asked_to_wait = (status.code == 429).then_some(COME_BACK);
        if let (429 | 500.., Some(retry_after)) =
            (status.code, retry_after(&status).or(asked_to_wait))
        {
            return Error::Busy { retry_after };
        }
        match (status.code, status.reason.as_str()) {
            (409, reason::ALREADY_EXISTS) => Error::Exists { kind, id: id() },
            (409, _) => Error::Conflict { kind, id: id() },
            (404, _) => self.not_found(&status),
            (400 | 422, _) => Error::Invalid { kind, id: id(), problems: problems(*status) },
            (401 | 403, _) => Error::Forbidden { doing: self.doing(), why: status.message },
            _ => self.unavailable(kube::Error::Api(status)),
        }
    }

    /// A "not found" names what it did not find; for a path that is not served there is no name.
    fn not_found(&self, status: &Status) -> Error {
        let missing = status.details.as_ref().filter(|details| !details.name.is_empty());
        match (missing, self.id) {
            (Some(missing), Some(id)) if missing.kind == "namespaces" && self.of.namespaced => {
                let problem = format!("namespace {} is not there", missing.name);
                let problems = Invalid(vec![("metadata.namespace".to_owned(), problem)]);
                Error::Invalid { kind: self.of.kind, id: id.clone(), problems }
            }
            (Some(_), Some(id)) => Error::NotFound { kind: self.of.kind, id: id.clone() },
            _ if self.of.resource.group == "fairlead.dev" => {
                self.unavailable(NotServed::Ours(self.of.kind))
            }
            _ => {
                let version = self.of.resource.api_version.clone();
                self.unavailable(NotServed::Theirs(self.of.kind, version))
            }
        }
    }

    pub(super) fn unavailable(
        &self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        Error::Unavailable { doing: self.doing(), source: source.into() }
    }

    fn doing(&self) -> String {
        match self.id {
            Some(id) => format!("{} {} {id}", self.verb, self.of.kind),
            None => format!("{} {} objects", self.verb, self.of.kind),
        }
    }
}

fn retry_after(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}

fn problems(status: Status) -> Invalid {
    let causes = status.details.map(|details| details.causes).unwrap_or_default();
    if causes.is_empty() {
        return Invalid(vec![(String::new(), status.message)]);
    }
    Invalid(causes.into_iter().map(|cause| (cause.field, cause.message)).collect())
}

#[cfg(test)]
mod tests;
