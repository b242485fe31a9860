//! The audit of admission as JSON lines.

use std::sync::Arc;

use admission::Line;
use axum::extract::State;
use axum::response::Response;
use futures::FutureExt;
use http::HeaderMap;
use jiff::Timestamp;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::routes;

use super::{AUDIT, admission};
use crate::api::exports::{self, Export, ExportPart};
use crate::api::{Api, Caller, ErrorCode, Problem, Query, Route, Routes};

pub(super) fn routes() -> Routes {
    Routes::default().with(Route::list().all_replicas(), routes!(export_decisions))
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ExportParams {
    /// RFC 3339: not what was last decided before.
    #[param(value_type = Option<String>)]
    since: Option<Timestamp>,
    /// RFC 3339: only what was last decided before.
    #[param(value_type = Option<String>)]
    until: Option<Timestamp>,
    /// Where a part begins; replicas ask each other with it.
    after: Option<String>,
}

/// What was decided, as far as it is kept, as JSON lines, the oldest first
///
/// A line for each second in which the same was decided, with how often so far (`count`). Of several replicas
/// the lines of each follow each other; if one could not be asked, the last line is `{"missing": […]}`.
#[utoipa::path(
    get, path = "/admission/audit/export", tag = "admission", params(ExportParams),
    responses((status = 200, description = "A line for each", content(
        (String = "application/x-ndjson")
    )))
)]
async fn export_decisions(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    Query(asked): Query<ExportParams>,
) -> Result<Response, Problem> {
    let (admission, since, until) = (admission(&api)?.clone(), asked.since, asked.until);
    let wanted = move |line: &Line| {
        since.is_none_or(|since| line.last >= since) && until.is_none_or(|until| line.last < until)
    };
    let export = Export {
        resource: AUDIT,
        path: "/admission/audit/export",
        query: vec![
            ("since", asked.since.map(|since| since.to_string())),
            ("until", asked.until.map(|until| until.to_string())),
        ],
        own: Arc::new(move |after, deadline| {
            let admission = admission.clone();
            async move {
                let after = exports::place(after.as_deref())?;
                let part = admission.export(after, deadline, wanted).await;
                let (lines, next) = part.map_err(|why| {
                    Problem::new(ErrorCode::Audit, format!("what is kept cannot be read: {why}"))
                })?;
                Ok(ExportPart::new(lines, next))
            }
            .boxed()
        }),
    };
    exports::answer(&api, &caller, &headers, export, asked.after.as_deref()).await
}
