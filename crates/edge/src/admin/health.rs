//! `/livez`: does the process make progress? `/readyz`: is each component ready, and if not, why?

use axum::extract::{Query, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use super::Shared;
use crate::reply;

#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    format: Option<String>,
}

pub(super) async fn livez(
    State(admin): Shared,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Response {
    let health = admin.watchdog.health();
    let status = status(health.is_live());
    if reply::wants_json(asked.format.as_deref(), &headers) {
        return reply::json(status, &health);
    }
    reply::text(status, &health.to_string())
}

pub(super) async fn readyz(
    State(admin): Shared,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Response {
    let report = admin.readiness.report();
    let status = status(report.ready);
    if reply::wants_json(asked.format.as_deref(), &headers) {
        return reply::json(status, &report);
    }
    reply::text(status, &report.to_string())
}

fn status(well: bool) -> StatusCode {
    if well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}
