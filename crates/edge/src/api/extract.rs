//! Extractors for a request's query and body. One that cannot be read is a problem that says why.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use http::StatusCode;
use http::request::Parts;
use serde::de::DeserializeOwned;

use super::{ErrorCode, Problem};

/// A query string.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        axum::extract::Query::try_from_uri(&parts.uri)
            .map(|axum::extract::Query(asked)| Self(asked))
            .map_err(|rejection| Problem::invalid(rejection.body_text()))
    }
}

/// A JSON document.
#[derive(Debug)]
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let bytes = whole(request, state).await?;
        serde_json::from_slice(&bytes).map(Self).map_err(|error| {
            Problem::invalid(format!("the body is not the JSON that is expected here: {error}"))
        })
    }
}

/// The body as it came, within the route's bound.
pub(crate) async fn whole<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, Problem> {
    Bytes::from_request(request, state).await.map_err(|rejection| {
        if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
            too_large()
        } else {
            ended_early()
        }
    })
}

pub(crate) fn too_large() -> Problem {
    let detail = "the body is larger than this route takes; send less at once";
    Problem::new(ErrorCode::TooLarge, detail)
}

pub(crate) fn ended_early() -> Problem {
    Problem::invalid("the body ended early")
}
