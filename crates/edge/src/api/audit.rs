//! What was changed, by whom.

use access::audit::{Filter, Record};
use access::{AUDIT, Verb};
use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::Api;
use super::door::Asker;
use super::extract::Query;
use super::problem::Problem;
use super::route::{Route, Routes};

pub(crate) fn routes() -> Routes {
    Routes::default().with(Route::list(), routes!(audit))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Asked {
    /// The most to show; 100 unless said.
    limit: Option<usize>,
    user: Option<String>,
    cluster: Option<String>,
    /// RFC 3339: not what is older.
    #[param(value_type = Option<String>)]
    since: Option<Timestamp>,
    /// Only what is older than this; the `id` of the last entry asks for the next page.
    older_than: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AuditEntry {
    id: String,
    /// RFC 3339.
    #[schema(value_type = String)]
    at: Timestamp,
    user: String,
    /// How it was shown who asked: `local`, `token/…` or `session/…`.
    via: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    verb: &'static str,
    /// `-` for the fleet's own matters.
    cluster: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    resource: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    dry_run: bool,
    /// `ok`, `opened` (a stream), or the code of a problem; with details after a colon. `begun`: under
    /// way, or lost with its process.
    outcome: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    took_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
}

impl From<Record> for AuditEntry {
    fn from(record: Record) -> Self {
        Self {
            id: record.id,
            at: record.time,
            user: record.who,
            via: record.via,
            from: record.from,
            verb: record.verb.as_str(),
            cluster: record.cluster,
            namespace: record.namespace,
            resource: record.resource,
            name: record.name,
            dry_run: record.dry_run,
            outcome: record.outcome.unwrap_or_else(|| "begun".to_owned()),
            took_ms: record.took_ms,
            request_id: record.request_id,
        }
    }
}

#[derive(Serialize, ToSchema)]
struct AuditPage {
    entries: Vec<AuditEntry>,
    /// Whether there is nothing older.
    complete: bool,
}

/// What was changed, newest first
#[utoipa::path(
    get, path = "/audit", tag = "access", params(Asked),
    responses((status = 200, description = "Newest first", body = AuditPage))
)]
async fn audit(
    State(api): State<Api>,
    asker: Asker,
    Query(asked): Query<Asked>,
) -> Result<Json<AuditPage>, Problem> {
    asker.may_in_fleet(AUDIT, Verb::List)?;
    let Asked { limit, user: who, cluster, since, older_than } = asked;
    let filter = Filter { who, cluster, since, older_than, ..Filter::default() };
    let page = api.audit.read(filter, limit.unwrap_or(100), asker.deadline).await?;
    let entries = page.records.into_iter().map(AuditEntry::from).collect();
    Ok(Json(AuditPage { entries, complete: page.complete }))
}
