//! Answers that are a table for people and JSON for programs.

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use serde::Serialize;

/// Whether the asker wants JSON: by `?format=json`, or by an `Accept` that names it.
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
