//! A text in the names, addresses, labels, images and namespaces of objects.

use std::sync::Arc;

use access::{AccessRequest, Permissions, Verb};
use axum::extract::State;
use axum::response::Response;
use axum::response::sse::Event;
use fleet::Connection;
use fleet::resources::{self, SearchQuery, SearchResult};
use http::HeaderMap;
use kube::core::ApiResource;
use serde::{Deserialize, Serialize};
use stallproof::Deadline;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::{AskedCluster, ClusterAnswer, Merge, answer, chosen, share};
use crate::api::scope::{is_visible, resource};
use crate::api::{Api, Caller, Problem, Query, Route, Routes, sse};

/// Hits from one cluster, at most: more are no longer looked at.
const MOST: usize = 1000;
/// Hits in one answer: some megabytes.
const MOST_IN_ALL: usize = 20_000;

pub(super) fn routes() -> Routes {
    Routes::default().with(Route::list().fan_out(), routes!(search))
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct SearchParams {
    /// The text, whatever its case; or an address, or the beginning of one.
    q: String,
    /// `a,b`; all that one may see unless said.
    clusters: Option<String>,
    /// Hits from each cluster: 50 unless said, 1000 at most.
    limit: Option<usize>,
    /// `pods,deployments.apps`; what people look for unless said.
    kinds: Option<String>,
    /// As the header `Request-Timeout`.
    #[expect(dead_code, reason = "read by the pipeline")]
    timeout: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct Found {
    clusters: Vec<AskedCluster>,
    /// The best first.
    hits: Vec<Hit>,
    /// Whether a cluster had more.
    truncated: bool,
    /// What a cluster could not search, or not wholly.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    incomplete: Vec<Incomplete>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Hit {
    cluster: String,
    kind: String,
    api_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    /// What the text was found in.
    why: String,
}

#[derive(Debug, Serialize, ToSchema)]
struct Incomplete {
    cluster: String,
    kind: String,
    why: String,
}

impl From<resources::Hit> for Hit {
    fn from(hit: resources::Hit) -> Self {
        let field = serde_json::to_value(hit.matched.field).unwrap_or_default();
        Self {
            cluster: hit.cluster,
            kind: hit.kind,
            api_version: hit.api_version,
            namespace: hit.namespace,
            name: hit.name,
            why: format!("{} {}", field.as_str().unwrap_or_default(), hit.matched.value),
        }
    }
}

/// Search for a text
///
/// With `Accept: text/event-stream`: `asked` with the clusters' names; of each cluster as it answers
/// `hits` with what it found, and `cluster` with its row; `done` with the whole.
#[utoipa::path(
    get, path = "/search", tag = "across", params(SearchParams),
    responses((status = 200, description = "What came in time", content(
        (Found = "application/json"), (String = "text/event-stream")
    )))
)]
async fn search(
    State(api): State<Api>,
    caller: Caller,
    Query(asked): Query<SearchParams>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let mut query = SearchQuery { text: asked.q, ..SearchQuery::default() };
    if query.text.trim().is_empty() {
        return Err(Problem::invalid("say what to search for: `q=web`"));
    }
    if let Some(kinds) = asked.kinds {
        let kinds = kinds.split(',').map(str::trim).filter(|kind| !kind.is_empty());
        query.kinds = kinds.map(ToOwned::to_owned).collect();
    }
    let chosen = chosen(&api, &caller, asked.clusters.as_deref());
    let most = MOST.min(share(MOST_IN_ALL, chosen.len()));
    query.limit = asked.limit.unwrap_or(query.limit).min(most);
    let (permissions, query) = (Arc::clone(&caller.permissions), Arc::new(query));
    let ask = move |connection: Connection, deadline| {
        let (permissions, query) = (Arc::clone(&permissions), Arc::clone(&query));
        async move { one(connection, &query, &permissions, deadline).await }
    };
    answer(&api, &caller, &headers, chosen, Hits::default(), ask).await
}

async fn one(
    connection: Connection,
    query: &SearchQuery,
    permissions: &Permissions,
    deadline: Deadline,
) -> ClusterAnswer<SearchResult> {
    let name = connection.cluster().to_owned();
    let allowed = |cluster: &str, namespace: Option<&str>, kind: &ApiResource| {
        may_find(permissions, cluster, namespace, kind)
    };
    let mut result = resources::search([(name, Ok(connection))], query, allowed, deadline).await?;
    if let Some(missing) = result.missing.pop() {
        return Err(*missing.error);
    }
    // A namespace is seen by its own name, which the search does not tell while it goes.
    result.hits.retain(|hit| {
        let resource = if is_core(hit) { hit.resource.as_str() } else { "" };
        is_visible(permissions, &hit.cluster, hit.namespace.as_deref(), resource, &hit.name)
    });
    Ok(Ok(result))
}

fn is_core(hit: &resources::Hit) -> bool {
    !hit.api_version.contains('/')
}

/// Whether objects of a kind in a namespace may be found.
pub(super) fn may_find(
    permissions: &Permissions,
    cluster: &str,
    namespace: Option<&str>,
    kind: &ApiResource,
) -> bool {
    let resource = resource(kind);
    let ask = AccessRequest { cluster, namespace, resource: &resource, verb: Verb::List };
    access::decide(permissions, &ask).is_allowed()
}

#[derive(Default)]
struct Hits {
    hits: Vec<resources::Hit>,
    truncated: bool,
    incomplete: Vec<Incomplete>,
}

/// What one cluster found.
#[derive(Serialize)]
struct ClusterHits<'a> {
    cluster: &'a str,
    hits: Vec<Hit>,
}

impl Merge for Hits {
    type Part = SearchResult;
    type Merged = Found;

    fn told(&self, cluster: &str, part: &SearchResult) -> Option<Event> {
        let hits = part.hits.iter().cloned().map(Hit::from).collect();
        Some(sse::event("hits", &ClusterHits { cluster, hits }))
    }

    fn add(&mut self, _cluster: &str, part: SearchResult) -> bool {
        let truncated = !part.truncated.is_empty();
        self.truncated |= truncated;
        self.hits.extend(part.hits);
        let incomplete = part.incomplete.into_iter().map(|it| Incomplete {
            cluster: it.cluster,
            kind: it.kind,
            why: it.why,
        });
        self.incomplete.extend(incomplete);
        truncated
    }

    fn end(mut self, clusters: Vec<AskedCluster>) -> Found {
        self.hits.sort_by(|one, other| {
            let key = |hit: &resources::Hit| (hit.matched.field, hit.matched.how);
            let name = |hit: &resources::Hit| {
                (hit.name.clone(), hit.cluster.clone(), hit.namespace.clone(), hit.kind.clone())
            };
            key(one).cmp(&key(other)).then_with(|| name(one).cmp(&name(other)))
        });
        Found {
            clusters,
            hits: self.hits.into_iter().map(Hit::from).collect(),
            truncated: self.truncated,
            incomplete: self.incomplete,
        }
    }
}
