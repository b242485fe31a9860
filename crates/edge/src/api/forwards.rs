//! Port-forwards that are open at this moment: who has them, to which pod, since when, and how much went
//! through. Any of them can be ended.
//!
//! One's own are shown to everybody; those of others to whoever may see what is in flight
//! (`inflight.fairlead.dev` in the fleet), in clusters that they may see. Each replica knows its own: the one that
//! is asked asks the others, and one that does not answer is named. One of another replica is ended there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use access::{AccessRequest, Identity, Verb};
use axum::Json;
use axum::extract::{Path, State};
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stallproof::{Map, Snapshot};
use tokio::sync::watch;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::forward::PassedBytes;
use super::inflight::INFLIGHT;
use super::replicas::{self, MissingReplica, ReplicaParts, ReplicaQuery};
use super::{Api, Caller, ErrorCode, Problem, Query, Route, Routes};

/// The resource in the audit.
const FORWARDS: &str = "portforwards";

pub(crate) fn routes() -> Routes {
    Routes::default().with(Route::list().all_replicas(), routes!(forwards)).with(
        Route::write(Verb::Delete, FORWARDS).at_replica().recording(&["replica"]),
        routes!(end_forward),
    )
}

/// The open ones. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Forwards(Arc<Open>);

#[derive(Debug, Default)]
struct Open {
    next: AtomicU64,
    /// Written when one opens or ends; read by whoever lists them.
    open: Snapshot<Map<u64, Arc<OpenForward>>>,
}

/// What is connected to.
#[derive(Debug)]
pub(crate) struct ForwardedPort {
    pub(crate) cluster: String,
    pub(crate) namespace: String,
    pub(crate) pod: String,
    /// None where it is said within the stream, as kubectl does.
    pub(crate) port: Option<u16>,
}

#[derive(Debug)]
struct OpenForward {
    id: u64,
    who: Identity,
    to: ForwardedPort,
    since: Timestamp,
    passed: PassedBytes,
    /// Who has ended it.
    end: watch::Sender<Option<Arc<str>>>,
}

/// An open one's place in the list, which it leaves when this is dropped.
#[derive(Debug)]
pub(crate) struct ListedForward {
    all: Forwards,
    it: Arc<OpenForward>,
}

impl Forwards {
    pub(crate) fn list(&self, who: &Identity, to: ForwardedPort) -> ListedForward {
        let id = self.0.next.fetch_add(1, Relaxed) + 1;
        let it = Arc::new(OpenForward {
            id,
            who: who.clone(),
            to,
            since: Timestamp::now(),
            passed: PassedBytes::default(),
            end: watch::Sender::new(None),
        });
        self.0.open.update(|open| {
            open.insert(id, Arc::clone(&it));
            true
        });
        ListedForward { all: self.clone(), it }
    }
}

impl ListedForward {
    pub(crate) fn passed(&self) -> &PassedBytes {
        &self.it.passed
    }

    /// Returns who has ended it, once somebody has.
    pub(crate) async fn ended(&self) -> Arc<str> {
        let mut end = self.it.end.subscribe();
        let ended = end.wait_for(Option::is_some).await.ok().and_then(|by| by.clone());
        match ended {
            Some(by) => by,
            None => std::future::pending().await,
        }
    }
}

impl Drop for ListedForward {
    fn drop(&mut self) {
        self.all.0.open.update(|open| open.remove(&self.it.id).is_some());
    }
}

/// The reason that a session ends with.
pub(crate) fn ended_by(user: &str) -> String {
    format!("{user} has ended this port-forward")
}

/// A port-forward that is open.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ForwardView {
    /// Of this replica: each counts its own.
    id: u64,
    /// The other replica that has it; absent where the one that was asked has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replica: Option<String>,
    user: String,
    /// How it was shown who asks: `local`, `token/…` or `session/…`.
    via: String,
    cluster: String,
    namespace: String,
    pod: String,
    /// Absent where kubectl says it within the stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    /// RFC 3339.
    #[schema(value_type = String)]
    since: Timestamp,
    bytes_to_pod: u64,
    bytes_from_pod: u64,
}

#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
struct ForwardList {
    forwards: Vec<ForwardView>,
    /// Replicas whose port-forwards are not in this.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    missing: Vec<MissingReplica>,
}

impl ForwardList {
    /// Adds those of the other replicas; oldest first.
    fn merge(&mut self, parts: ReplicaParts<Self>) {
        self.missing.extend(parts.missing);
        for (replica, part) in parts.told {
            let of = |it| ForwardView { replica: Some(replica.clone()), ..it };
            self.forwards.extend(part.forwards.into_iter().map(of));
        }
        self.forwards.sort_by_key(|it| it.since);
    }
}

/// Whether the caller may see, and end, this one.
fn is_for(caller: &Caller, forward: &OpenForward) -> bool {
    let cluster = access::FLEET;
    let ask = AccessRequest { cluster, namespace: None, resource: INFLIGHT, verb: Verb::List };
    forward.who.user == caller.who.user
        || (access::decide(&caller.permissions, &ask).is_allowed()
            && caller.permissions.may_see_cluster(&forward.to.cluster))
}

/// Port-forwards that are open
///
/// One's own, and those of others for who may list `inflight.fairlead.dev` in the fleet; oldest first, of all
/// replicas.
#[utoipa::path(
    get, path = "/forwards", tag = "pods",
    responses((status = 200, description = "Oldest first", body = ForwardList))
)]
async fn forwards(State(api): State<Api>, caller: Caller, headers: HeaderMap) -> Json<ForwardList> {
    let open = api.serving.forwards.0.open.load();
    let mut seen: Vec<_> = open.values().filter(|it| is_for(&caller, it)).collect();
    seen.sort_by_key(|it| it.id);
    let view = |it: &Arc<OpenForward>| ForwardView {
        id: it.id,
        replica: None,
        user: it.who.user.to_string(),
        via: it.who.via.to_string(),
        cluster: it.to.cluster.clone(),
        namespace: it.to.namespace.clone(),
        pod: it.to.pod.clone(),
        port: it.to.port,
        since: it.since,
        bytes_to_pod: it.passed.to_pod.load(Relaxed),
        bytes_from_pod: it.passed.from_pod.load(Relaxed),
    };
    let forwards = seen.into_iter().map(view).collect();
    let mut list = ForwardList { forwards, missing: Vec::new() };
    if let Some(replicas) = replicas::to_ask(&api, &headers) {
        let question = ReplicaQuery { path: "/forwards", query: Vec::new() };
        list.merge(replicas::ask(&api, replicas, &caller, &question).await);
    }
    Json(list)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct OfReplica {
    /// The replica that has it, as the list says; unless said, the one that is asked.
    #[serde(default, rename = "replica")]
    _replica: Option<String>,
}

/// End a port-forward
///
/// One's own, or another's for who may see it and has `forward` on pods there.
#[utoipa::path(
    delete, path = "/forwards/{id}", tag = "pods", params(OfReplica),
    responses((status = 204, description = "It has been told to end"))
)]
async fn end_forward(
    State(api): State<Api>,
    caller: Caller,
    Path(id): Path<String>,
    // The pipeline has taken the request to the replica that it names.
    Query(_of): Query<OfReplica>,
) -> Result<StatusCode, Problem> {
    let number: Option<u64> = id.parse().ok();
    let open = &api.serving.forwards.0.open;
    let found = number.and_then(|number| open.read(|open| open.get(&number).cloned()));
    let found = found.filter(|it| is_for(&caller, it)).ok_or_else(|| {
        Problem::new(
            ErrorCode::NotFound,
            format!("no port-forward {id} is open; it may have ended"),
        )
    })?;
    let ForwardedPort { cluster, namespace, pod, .. } = &found.to;
    if found.who.user != caller.who.user {
        let (namespace, resource) = (Some(&**namespace), super::pods::PODS);
        caller.may(&AccessRequest { cluster, namespace, resource, verb: Verb::Forward })?;
    }
    caller.trail.detail("user", &*found.who.user);
    caller.trail.detail("pod", format!("{namespace}/{pod} of {cluster}"));
    found.end.send_replace(Some(Arc::clone(&caller.who.user)));
    Ok(StatusCode::NO_CONTENT)
}
