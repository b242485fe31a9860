//! The audit as JSON lines.

use std::sync::Arc;

use access::AUDIT;
use access::audit::{Filter, Phase, Record};
use axum::extract::State;
use axum::response::Response;
use futures::FutureExt;
use http::HeaderMap;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;
use utoipa_axum::routes;

use super::AuditEntry;
use crate::api::exports::{self, Export, ExportPart};
use crate::api::{Api, Caller, Problem, Query, Route, Routes};

pub(super) fn routes() -> Routes {
    Routes::default().with(Route::list().all_replicas(), routes!(export))
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ExportParams {
    user: Option<String>,
    cluster: Option<String>,
    /// A verb of roles, or `login`.
    verb: Option<String>,
    resource: Option<String>,
    /// RFC 3339: not what began before.
    #[param(value_type = Option<String>)]
    since: Option<Timestamp>,
    /// RFC 3339: only what began before.
    #[param(value_type = Option<String>)]
    until: Option<Timestamp>,
    /// Where a part begins; replicas ask each other with it.
    after: Option<String>,
}

impl ExportParams {
    fn filter(&self) -> Filter {
        let Self { user, cluster, verb, resource, since, until, .. } = self.clone();
        Filter { who: user, cluster, verb, resource, since, until, ..Filter::default() }
    }
}

/// A line of the audit.
#[derive(Serialize)]
struct ExportLine {
    /// `begun` and `ended` for a write, which have one `id`; `noted` for what is no write.
    phase: Phase,
    #[serde(flatten)]
    entry: AuditEntry,
}

impl From<Record> for ExportLine {
    fn from(record: Record) -> Self {
        Self { phase: record.phase, entry: record.into() }
    }
}

/// All of the audit that is kept, as JSON lines, the oldest first
///
/// A write has two lines with one `id`: `begun` and `ended`. Of several replicas the lines of each follow each
/// other; if one could not be asked, the last line is `{"missing": […]}`.
#[utoipa::path(
    get, path = "/audit/export", tag = "access", params(ExportParams),
    responses((status = 200, description = "A line for each", content(
        (String = "application/x-ndjson")
    )))
)]
async fn export(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    Query(asked): Query<ExportParams>,
) -> Result<Response, Problem> {
    let (audit, filter) = (api.audit.clone(), asked.filter());
    let export = Export {
        resource: AUDIT,
        path: "/audit/export",
        query: vec![
            ("user", asked.user),
            ("cluster", asked.cluster),
            ("verb", asked.verb),
            ("resource", asked.resource),
            ("since", asked.since.map(|since| since.to_string())),
            ("until", asked.until.map(|until| until.to_string())),
        ],
        own: Arc::new(move |after, deadline| {
            let (audit, filter) = (audit.clone(), filter.clone());
            async move {
                let after = exports::place(after.as_deref())?;
                let part = audit.export(filter, after, deadline).await?;
                let lines = part.lines.into_iter().map(ExportLine::from).collect();
                Ok(ExportPart::new(lines, part.next))
            }
            .boxed()
        }),
    };
    exports::answer(&api, &caller, &headers, export, asked.after.as_deref()).await
}

#[cfg(test)]
mod tests;
