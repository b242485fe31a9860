//! A cluster at a glance, and what its pods and nodes use.

use access::Verb;
use axum::Json;
use axum::extract::{Path, State};
use fleet::resources::overview::{self, NodesOverview, PodsOverview, WorkloadsOverview};
use fleet::resources::usage::{self, Usage, UsageOf};
use fleet::{Connection, Error};
use serde::{Deserialize, Serialize};
use stallproof::Deadline;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::scope::Scope;
use super::{Api, Caller, ErrorCode, Problem, Query, Route, Routes};

pub(crate) fn routes() -> Routes {
    Routes::default()
        .with(Route::list(), routes!(cluster_overview))
        .with(Route::list(), routes!(cluster_usage))
}

/// What of a cluster one may see, summed up. What may not be listed is left out.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct Overview {
    /// total, ready, cordoned, allocatable (`cpuMillis`, `memoryBytes`), pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    nodes: Option<NodesOverview>,
    /// total, byPhase, notReady, restarts, requests, limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pods: Option<PodsOverview>,
    /// Of each kind: kind, total, ready.
    #[schema(value_type = Vec<Object>)]
    workloads: Vec<WorkloadsOverview>,
}

/// A cluster at a glance
#[utoipa::path(
    get, path = "/clusters/{cluster}/overview", tag = "resources",
    responses((status = 200, description = "Sums of what one may see", body = Overview))
)]
async fn cluster_overview(
    State(api): State<Api>,
    caller: Caller,
    Path(cluster): Path<String>,
) -> Result<Json<Overview>, Problem> {
    let connection = caller.connection(&api, &cluster)?;
    Ok(Json(Overview::of(&connection, &caller, caller.deadline).await?))
}

impl Overview {
    /// Sums up what the caller may see of a cluster.
    pub(crate) async fn of(
        connection: &Connection,
        caller: &Caller,
        deadline: Deadline,
    ) -> Result<Self, Error> {
        let scope = async |word: &str| scope(connection, caller, word, deadline).await;
        let nodes = match scope("nodes.v1.").await? {
            Some(_) => Some(overview::nodes(connection, deadline).await?),
            None => None,
        };
        let pods = match scope("pods.v1.").await? {
            Some(shown) => {
                let shown = |pod: &_| shown.has_object(pod);
                Some(overview::pods(connection, shown, deadline).await?)
            }
            None => None,
        };
        let mut workloads = Vec::new();
        for kind in ["deployments", "statefulsets", "daemonsets"] {
            if let Some(shown) = scope(&format!("{kind}.v1.apps")).await? {
                let shown = |object: &_| shown.has_object(object);
                let sum = overview::workloads(connection, kind, shown, deadline);
                workloads.push(sum.await?);
            }
        }
        Ok(Self { nodes, pods, workloads })
    }

    /// Adds what another cluster has.
    pub(crate) fn add(&mut self, other: &Self) {
        if let Some(nodes) = &other.nodes {
            self.nodes.get_or_insert_default().add(nodes);
        }
        if let Some(pods) = &other.pods {
            self.pods.get_or_insert_default().add(pods);
        }
        for sum in &other.workloads {
            match self.workloads.iter_mut().find(|known| known.kind == sum.kind) {
                Some(known) => {
                    known.total += sum.total;
                    known.ready += sum.ready;
                }
                None => self.workloads.push(sum.clone()),
            }
        }
    }
}

/// The scope of a list of all objects of a kind; none where it is refused.
async fn scope(
    connection: &Connection,
    caller: &Caller,
    word: &str,
    deadline: Deadline,
) -> Result<Option<Scope>, Error> {
    let found = connection.find(word, deadline).await?;
    Ok(Scope::list(caller, connection.cluster(), &found, None, Verb::List).ok())
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct UsageParams {
    /// pods or nodes.
    kind: UsageKind,
    /// Of pods: all that one may see unless said.
    namespace: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum UsageKind {
    Pods,
    Nodes,
}

#[derive(Serialize, ToSchema)]
struct UsageList {
    /// namespace, name, cpuMillis, memoryBytes.
    #[schema(value_type = Vec<Object>)]
    usage: Vec<Usage>,
}

/// What pods or nodes use now
///
/// As the cluster's metrics server says; a cluster without one answers `no-such-kind`.
#[utoipa::path(
    get, path = "/clusters/{cluster}/usage", tag = "resources", params(UsageParams),
    responses((status = 200, description = "CPU and memory of each", body = UsageList))
)]
async fn cluster_usage(
    State(api): State<Api>,
    caller: Caller,
    Path(cluster): Path<String>,
    Query(UsageParams { kind, namespace }): Query<UsageParams>,
) -> Result<Json<UsageList>, Problem> {
    let connection = caller.connection(&api, &cluster)?;
    let (of, word) = match kind {
        UsageKind::Pods => (UsageOf::Pods, "pods.v1."),
        UsageKind::Nodes => (UsageOf::Nodes, "nodes.v1."),
    };
    let found = connection.find(word, caller.deadline).await?;
    let scope = Scope::list(&caller, &cluster, &found, namespace.as_deref(), Verb::List)?;
    if scope.is_empty() {
        return Ok(Json(UsageList { usage: Vec::new() }));
    }
    let used = usage::usage(&connection, of, namespace.as_deref(), caller.deadline).await;
    let mut usage = used.map_err(|error| match error {
        Error::NoSuchKind { cluster, .. } => Problem::new(
            ErrorCode::NoSuchKind,
            format!("{cluster} has no metrics server (metrics.k8s.io); install one to see usage"),
        ),
        error => error.into(),
    })?;
    usage.retain(|one| scope.has(one.namespace.as_deref(), &one.name));
    Ok(Json(UsageList { usage }))
}
