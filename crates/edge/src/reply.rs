//! Queries and answers of the admin pages: a table for people, JSON for programs.

use axum::extract::{FromRequestParts, Query};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The query of an admin page; one that cannot be read is answered 400 with the reason.
pub(crate) struct AdminQuery<T>(pub(crate) T);

/// The query of a page that has no other choice but its format. Lenient: probes come with all kinds
/// of words, such as `?verbose`.
#[derive(Debug, Deserialize)]
pub(crate) struct FormatQuery {
    pub(crate) format: Option<String>,
}

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for AdminQuery<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Response> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(asked)) => Ok(Self(asked)),
            Err(rejection) => Err(text(StatusCode::BAD_REQUEST, &rejection.body_text())),
        }
    }
}

/// Whether the caller wants JSON: by `?format=json`, or by an `Accept` that names it.
pub(crate) fn wants_json(format: Option<&str>, headers: &HeaderMap) -> bool {
    match format {
        Some(format) => format == "json",
        None => headers
            .get(header::ACCEPT)
            .and_then(|accept| accept.to_str().ok())
            .is_some_and(|accept| accept.contains("application/json")),
    }
}

pub(crate) fn json<T: Serialize>(status: StatusCode, value: &T) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("not JSON: {error}")),
    }
}

pub(crate) fn text(status: StatusCode, body: &str) -> Response {
    let body = format!("{}\n", body.trim_end());
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response()
}
