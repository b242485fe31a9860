//! The events of many clusters.

use std::cmp::Reverse;

use axum::extract::State;
use axum::response::Response;
use fleet::Connection;
use fleet::resources::About;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::{AskedCluster, Merge, answer, chosen, share};
use crate::api::describe::{Event, events_seen};
use crate::api::{Api, Caller, Problem, Query, Route, Routes};

/// Events in one answer, of all clusters together: some tens of megabytes.
const MOST: usize = 50_000;

pub(super) fn routes() -> Routes {
    Routes::default().with(Route::list().fan_out(), routes!(events_across))
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct EventParams {
    /// `a,b`; all that one may see unless said.
    clusters: Option<String>,
    /// All namespaces when none is named.
    namespace: Option<String>,
    /// As the header `Request-Timeout`.
    #[expect(dead_code, reason = "read by the pipeline")]
    timeout: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct EventsAcross {
    clusters: Vec<AskedCluster>,
    /// The latest first.
    events: Vec<Event>,
}

/// Events of many clusters
///
/// With `Accept: text/event-stream`: `asked` with the clusters' names, `cluster` with each row as it
/// comes in, `done` with the whole.
#[utoipa::path(
    get, path = "/events", tag = "across", params(EventParams),
    responses((status = 200, description = "What came in time", content(
        (EventsAcross = "application/json"), (String = "text/event-stream")
    )))
)]
async fn events_across(
    State(api): State<Api>,
    caller: Caller,
    Query(asked): Query<EventParams>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let chosen = chosen(&api, &caller, asked.clusters.as_deref());
    let events = Events { most: share(MOST, chosen.len()), all: Vec::new() };
    let (asks, namespace) = (caller.clone(), asked.namespace);
    let ask = move |connection: Connection, deadline| {
        let (caller, namespace) = (asks.clone(), namespace.clone());
        async move {
            let about = namespace.as_deref().map_or(About::All, About::Namespace);
            events_seen(&connection, &caller, about, deadline).await
        }
    };
    answer(&api, &caller, &headers, chosen, events, ask).await
}

struct Events {
    /// From each cluster.
    most: usize,
    all: Vec<Event>,
}

impl Merge for Events {
    type Part = Vec<Event>;
    type Merged = EventsAcross;

    fn add(&mut self, cluster: &str, part: Vec<Event>) -> bool {
        let truncated = part.len() > self.most;
        // The latest come first.
        let latest = part.into_iter().take(self.most);
        self.all.extend(latest.map(|event| event.of(cluster)));
        truncated
    }

    fn end(mut self, clusters: Vec<AskedCluster>) -> EventsAcross {
        self.all.sort_by_key(|event| Reverse(event.last_seen));
        EventsAcross { clusters, events: self.all }
    }
}
