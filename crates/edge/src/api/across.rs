//! One question to many clusters: lists, search, events, what they have together.
//!
//! Contract: only clusters that one may see are asked; one that is named and may not be seen has the
//! row of one that is not there. Every cluster has its row as soon as it answers, or when it is too
//! late; the whole is what came. A dead cluster costs its own row. Who may something else than when they
//! asked (or nothing at all any more) gets no more of it, and asks again.

mod events;
mod lists;
mod overview;
mod search;

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use fleet::fan::{self, Reply};
use fleet::{Connection, Error, State as ClusterState};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http::HeaderMap;
use serde::Serialize;
use serde_json::json;
use stallproof::Deadline;
use utoipa::ToSchema;

use super::problem::ProblemBody;
use super::rights::LOST;
use super::{Api, Caller, ErrorCode, Problem, Rights, Routes, sse};

pub(crate) fn routes() -> Routes {
    Routes::default()
        .and(lists::routes())
        .and(search::routes())
        .and(events::routes())
        .and(overview::routes())
}

/// How one cluster answered.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AskedCluster {
    name: String,
    ok: bool,
    took_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<ProblemBody>,
    /// It has more than was asked for.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
}

/// The clusters to ask: those that are named (`a,b`), or all that one may see and that are in use.
fn chosen(api: &Api, caller: &Caller, named: Option<&str>) -> Vec<fan::ClusterTarget> {
    let (view, actor) = (api.fleet.view(), caller.actor(api));
    let seen = |name: &str| caller.permissions.may_see_cluster(name);
    let Some(named) = named else {
        let used = view.clusters.values().filter(|view| view.state != ClusterState::Disabled);
        let names: BTreeSet<_> = used.map(|view| view.name.to_string()).collect();
        let names = names.into_iter().filter(|name| seen(name));
        return names.map(|name| (name.clone(), view.connection_as(&name, &actor))).collect();
    };
    let names: BTreeSet<_> =
        named.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let connection = |name: &str| {
        if seen(name) {
            view.connection_as(name, &actor)
        } else {
            Err(Error::NoSuchCluster { cluster: name.to_owned() })
        }
    };
    names.into_iter().map(|name| (name.to_owned(), connection(name))).collect()
}

/// How much one of so many clusters may have, so that all of them together have `most`.
fn share(most: usize, clusters: usize) -> usize {
    (most / clusters.max(1)).max(1)
}

/// Puts the clusters' parts together.
trait Merge: Send + 'static {
    type Part: Send + 'static;
    type Merged: Serialize;

    /// What a cluster's part adds, for who reads as it goes; nothing where only the whole is of use.
    fn told(&self, _cluster: &str, _part: &Self::Part) -> Option<Event> {
        None
    }

    /// Takes a cluster's part in; says whether the cluster has more.
    fn add(&mut self, cluster: &str, part: Self::Part) -> bool;

    /// All that came; the rows are in the order of the clusters' names.
    fn end(self, clusters: Vec<AskedCluster>) -> Self::Merged;
}

/// A cluster's part, or why it was not asked.
type ClusterAnswer<T> = Result<Result<T, Problem>, Error>;

/// A fan-out under way.
struct FanOut<W: Merge> {
    /// Whether it is read as it goes.
    as_it_goes: bool,
    replies: BoxStream<'static, Reply<Result<W::Part, Problem>>>,
    rows: Vec<AskedCluster>,
    whole: W,
}

impl<W: Merge> FanOut<W> {
    /// Takes the next reply in; what it adds, and its row.
    async fn next(&mut self) -> Option<(Option<Event>, AskedCluster)> {
        let mut told = None;
        let Reply { cluster, took, result } = self.replies.next().await?;
        let mut row = AskedCluster {
            name: cluster,
            ok: true,
            took_ms: millis(took),
            problem: None,
            truncated: false,
        };
        match result.map_err(|error| {
            if matches!(error, Error::NoSuchCluster { .. }) {
                // Nobody was asked, whether it is there or not.
                row.took_ms = 0;
            }
            Problem::from(error)
        }) {
            Ok(Ok(part)) => {
                told = self.as_it_goes.then(|| self.whole.told(&row.name, &part)).flatten();
                row.truncated = self.whole.add(&row.name, part);
            }
            Ok(Err(problem)) | Err(problem) => {
                row.ok = false;
                row.problem = Some(problem.body());
            }
        }
        self.rows.push(row.clone());
        Some((told, row))
    }

    fn end(mut self) -> W::Merged {
        self.rows.sort_by(|one, other| one.name.cmp(&other.name));
        self.whole.end(self.rows)
    }
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Asks every one of `chosen`, and answers as it is wanted: at the end, or as it goes.
async fn answer<W: Merge, F>(
    api: &Api,
    caller: &Caller,
    headers: &HeaderMap,
    chosen: Vec<fan::ClusterTarget>,
    whole: W,
    ask: impl Fn(Connection, Deadline) -> F + Send + 'static,
) -> Result<Response, Problem>
where
    F: Future<Output = ClusterAnswer<W::Part>> + Send + 'static,
{
    let names: Vec<_> = chosen.iter().map(|(name, _)| name.clone()).collect();
    // Time to answer before the pipeline calls it late.
    let deadline = Deadline::at(caller.deadline.instant() - caller.deadline.remaining() / 20);
    let replies = fan::fan(chosen, deadline, ask).boxed();
    let as_it_goes = sse::wanted(headers);
    let rows = Vec::with_capacity(names.len());
    let mut gathering = FanOut { as_it_goes, replies, rows, whole };
    let asked_with = Arc::clone(&caller.permissions);
    let rights = Rights::new(api, caller, move |now| now.are(&asked_with));
    if !as_it_goes {
        while gathering.next().await.is_some() {}
        // What was gathered is what they might see when they asked.
        if !rights.are_held() {
            return Err(Problem::new(ErrorCode::Forbidden, LOST));
        }
        return Ok(Json(gathering.end()).into_response());
    }
    let place =
        sse::open(api, caller, "fan-out", format!("{} clusters", names.len()), access::FLEET)?;
    let asked = sse::event("asked", &json!({ "clusters": names }));
    let events = stream::iter([asked]).chain(rows_then_whole(gathering));
    Ok(sse::respond(api, place, rights.guard_events(events)))
}

fn rows_then_whole<W: Merge>(
    gathering: FanOut<W>,
) -> impl futures::Stream<Item = Event> + Send + 'static {
    let events = stream::unfold(Some(gathering), |gathering| async move {
        let mut gathering = gathering?;
        Some(match gathering.next().await {
            Some((told, row)) => (vec![told, Some(sse::event("cluster", &row))], Some(gathering)),
            None => (vec![Some(sse::event("done", &gathering.end()))], None),
        })
    });
    events.flat_map(|events| stream::iter(events.into_iter().flatten()))
}

#[cfg(test)]
mod tests;
