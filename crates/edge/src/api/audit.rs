//! The audit: what was done, and by whom. Each replica keeps what was done through it.

mod export;
mod recordings;

use std::collections::{HashSet, VecDeque};

use access::audit::{Filter, MOST, OlderThan, Record};
use access::{AUDIT, Verb};
use axum::Json;
use axum::extract::State;
use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::replicas::{self, MissingReplica, ReplicaParts, ReplicaQuery, Replicas};
use super::{Api, Caller, Problem, Query, Route, Routes};

const PATH: &str = "/audit";
/// Unless said.
const LIMIT: usize = 100;

pub(crate) fn routes() -> Routes {
    Routes::default()
        .with(Route::list().all_replicas(), routes!(audit))
        .and(export::routes())
        .and(recordings::routes())
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct AuditParams {
    /// The most to show; 100 unless said.
    limit: Option<usize>,
    /// Only this entry.
    id: Option<String>,
    user: Option<String>,
    cluster: Option<String>,
    /// A verb of roles, or `login`.
    verb: Option<String>,
    /// As kubectl writes them, `pods`, `users.fairlead.dev`; `sessions` for logins.
    resource: Option<String>,
    /// What it was done to.
    name: Option<String>,
    /// `ok`, or the code of a refusal.
    outcome: Option<String>,
    /// RFC 3339: not what is older.
    #[param(value_type = Option<String>)]
    since: Option<Timestamp>,
    /// RFC 3339: only what is older.
    #[param(value_type = Option<String>)]
    until: Option<Timestamp>,
    /// Only what is older than this; the `id` of the last entry asks for the next page.
    older_than: Option<String>,
}

impl AuditParams {
    fn limit(&self) -> usize {
        self.limit.unwrap_or(LIMIT).clamp(1, MOST)
    }

    fn filter(&self, older_than: Option<OlderThan>) -> Filter {
        let Self { id, user, cluster, verb, resource, name, outcome, since, until, .. } =
            self.clone();
        Filter {
            id,
            who: user,
            cluster,
            verb,
            resource,
            name,
            outcome,
            since,
            until,
            older_than,
            ..Filter::default()
        }
    }

    /// As the other replicas are asked it.
    fn question(&self, older_than: Option<&OlderThan>) -> ReplicaQuery<'static> {
        let query = [
            ("limit", Some(self.limit().to_string())),
            ("id", self.id.clone()),
            ("user", self.user.clone()),
            ("cluster", self.cluster.clone()),
            ("verb", self.verb.clone()),
            ("resource", self.resource.clone()),
            ("name", self.name.clone()),
            ("outcome", self.outcome.clone()),
            ("since", self.since.map(|since| since.to_string())),
            ("until", self.until.map(|until| until.to_string())),
            ("olderThan", older_than.map(ToString::to_string)),
        ];
        let query = query.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        ReplicaQuery { path: PATH, query }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuditEntry {
    id: String,
    /// RFC 3339.
    #[schema(value_type = String)]
    pub(crate) at: Timestamp,
    user: String,
    /// How it was shown who asked: `local`, `token/…` or `session/…`.
    via: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    verb: String,
    /// `-` for the fleet's own matters.
    cluster: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    pub(crate) resource: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    dry_run: bool,
    /// How often, where it is more than one act: logins that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    /// What was asked for, and what else is known: of a shell its `command`, `container`, `exitCode`,
    /// `bytesToPod` and `bytesFromPod`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    details: Map<String, Value>,
    /// What the subject of a change was before, and is after it; without secrets. What is too long for the
    /// audit is its size and SHA-256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    before: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) after: Option<Value>,
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
            verb: record.verb,
            cluster: record.cluster,
            namespace: record.namespace,
            resource: record.resource,
            name: record.name,
            dry_run: record.dry_run,
            count: record.count,
            details: record.details,
            before: record.before,
            after: record.after,
            outcome: record.outcome.unwrap_or_else(|| "begun".to_owned()),
            took_ms: record.took_ms,
            request_id: record.request_id,
        }
    }
}

impl AuditEntry {
    /// As [`Record::written`].
    fn written(&self) -> Timestamp {
        let took = i64::try_from(self.took_ms.unwrap_or_default()).unwrap_or(i64::MAX);
        self.at.checked_add(SignedDuration::from_millis(took)).unwrap_or(self.at)
    }
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
struct AuditPage {
    entries: Vec<AuditEntry>,
    /// Whether there is nothing older.
    complete: bool,
    /// Replicas that could not be asked: what was done through them is not in the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    missing: Vec<MissingReplica>,
}

impl AuditPage {
    /// The newest of all pages, each of which keeps its own order.
    fn merged(own: Self, others: ReplicaParts<Self>, limit: usize) -> Self {
        let ReplicaParts { told, mut missing } = others;
        let mut complete = own.complete;
        for (replica, page) in &told {
            complete &= page.complete;
            if !page.complete && page.entries.len() < limit {
                let why = "it has not read all that it has in time; ask for less, or wait longer";
                missing.push(MissingReplica { replica: replica.clone(), why: why.to_owned() });
            }
        }
        let pages = std::iter::once(own).chain(told.into_iter().map(|(_, page)| page));
        let mut pages: Vec<_> = pages.map(|page| VecDeque::from(page.entries)).collect();
        let mut seen = HashSet::new();
        let mut entries = Vec::new();
        loop {
            let more = pages.iter_mut().filter(|page| !page.is_empty());
            let newest = more
                .max_by_key(|page| page.front().map(|entry| (entry.written(), entry.id.clone())));
            let Some(newest) = newest else { break };
            if entries.len() == limit {
                complete = false;
                break;
            }
            entries.extend(newest.pop_front().filter(|entry| seen.insert(entry.id.clone())));
        }
        Self { entries, complete, missing }
    }
}

/// What was done, newest first
///
/// Every change, logins, failed logins, shells and port-forwards, and reads of Secrets and logs. Of several replicas the one that is asked asks the others as well.
#[utoipa::path(
    get, path = "/audit", tag = "access", params(AuditParams),
    responses((status = 200, description = "Newest first", body = AuditPage))
)]
async fn audit(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    Query(asked): Query<AuditParams>,
) -> Result<Json<AuditPage>, Problem> {
    caller.may_in_fleet(AUDIT, Verb::List)?;
    let older_than = asked.older_than.as_deref().map(str::parse::<OlderThan>).transpose();
    let mut older_than = older_than.map_err(|error| {
        Problem::invalid(format!("olderThan is neither an id nor ID@TIME: {error}"))
    })?;
    let Some(replicas) = replicas::to_ask(&api, &headers) else {
        return Ok(Json(own(&api, &caller, &asked, older_than).await?));
    };
    if let Some(than) = &mut older_than
        && than.written.is_none()
    {
        than.written = written(&api, replicas, &caller, &than.id).await?;
    }
    let question = asked.question(older_than.as_ref());
    let (own, others) = tokio::join!(
        own(&api, &caller, &asked, older_than),
        replicas::ask(&api, replicas, &caller, &question)
    );
    Ok(Json(AuditPage::merged(own?, others, asked.limit())))
}

/// The latest entries about a cluster: of objects of this name, or of this resource.
pub(crate) async fn latest(
    api: &Api,
    caller: &Caller,
    cluster: &str,
    (name, resource): (Option<&str>, Option<&str>),
    limit: usize,
) -> Result<Vec<AuditEntry>, Problem> {
    let asked = AuditParams {
        limit: Some(limit),
        cluster: Some(cluster.to_owned()),
        name: name.map(ToOwned::to_owned),
        resource: resource.map(ToOwned::to_owned),
        ..AuditParams::default()
    };
    let (state, question) = (State(api.clone()), Query(asked));
    let Json(page) = audit(state, caller.clone(), HeaderMap::new(), question).await?;
    Ok(page.entries)
}

/// The entries of this replica.
async fn own(
    api: &Api,
    caller: &Caller,
    asked: &AuditParams,
    older_than: Option<OlderThan>,
) -> Result<AuditPage, Problem> {
    let filter = asked.filter(older_than);
    let page = api.audit.read(filter, asked.limit(), caller.deadline).await?;
    let entries = page.records.into_iter().map(AuditEntry::from).collect();
    Ok(AuditPage { entries, complete: page.complete, missing: Vec::new() })
}

/// When the entry `id` was written, whichever replica has it.
async fn written(
    api: &Api,
    replicas: &Replicas,
    caller: &Caller,
    id: &str,
) -> Result<Option<Timestamp>, Problem> {
    let id = Some(id.to_owned());
    let one = AuditParams { limit: Some(1), id, ..AuditParams::default() };
    let page = own(api, caller, &one, None).await?;
    if let Some(entry) = page.entries.first() {
        return Ok(Some(entry.written()));
    }
    let others = replicas::ask::<AuditPage>(api, replicas, caller, &one.question(None)).await;
    let mut found = others.told.iter().flat_map(|(_, page)| &page.entries);
    Ok(found.next().map(AuditEntry::written))
}

#[cfg(test)]
mod tests;
