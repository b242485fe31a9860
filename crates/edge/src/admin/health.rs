//! `/livez`: does the process make progress? `/readyz`: is each component ready, and if not, why?

use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use stallproof::watchdog::Health;

use super::Shared;
use crate::reply::{self, AdminQuery, FormatQuery};

pub(super) async fn livez(
    State(admin): Shared,
    AdminQuery(asked): AdminQuery<FormatQuery>,
    headers: HeaderMap,
) -> Response {
    let reason = match admin.watchdog.health() {
        Health::Live => None,
        Health::Failing { reason } => Some(reason),
    };
    let status = status(reason.is_none());
    if reply::wants_json(asked.format.as_deref(), &headers) {
        let answer = serde_json::json!({ "live": reason.is_none(), "reason": reason });
        return reply::json(status, &answer);
    }
    reply::text(status, &reason.map_or("live".to_owned(), |reason| format!("failing: {reason}")))
}

pub(super) async fn readyz(
    State(admin): Shared,
    AdminQuery(asked): AdminQuery<FormatQuery>,
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
