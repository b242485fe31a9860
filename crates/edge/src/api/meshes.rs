//! Meshes. Every replica reads and writes them in the store; the controller that leads reconciles them.

use access::Verb;
use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use kube::ResourceExt;
use mesh::{ClusterTunnels, ExternalPeerError, Finding, ForgetError};
use objects::kinds::{ClusterMesh, ClusterMeshSpec, ClusterMeshStatus, DataPlane, ExternalPeer};
use objects::{Deletion, Id};
use serde::{Deserialize, Serialize};
use stallproof::Deadline;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::{Api, Body, Caller, Problem, Query, Route, Routes};

/// The resource that roles name, in the cluster `-`.
pub(crate) const MESHES: &str = "clustermeshes.fairlead.dev";
/// Who is let in from outside. It is a right of its own, which operators do not have: a machine that is let
/// in reaches the pods of all clusters.
const PEERS: &str = "clustermeshes.fairlead.dev/peers";
/// The largest request: hundreds of clusters with dozens of networks each.
const LARGEST: usize = 1 << 20;

pub(crate) fn routes() -> Routes {
    Routes::default()
        .with(Route::list(), routes!(meshes))
        .with(Route::read(), routes!(mesh))
        .with(
            Route::write(Verb::Update, MESHES).body(LARGEST).recording(&["spec"]),
            routes!(put_mesh),
        )
        .with(Route::write(Verb::Delete, MESHES), routes!(delete_mesh))
        .with(Route::list().at_leader(), routes!(check))
        .with(Route::write(Verb::Update, MESHES).recording(&["cluster"]), routes!(forget))
        .with(Route::list().at_leader(), routes!(tunnels))
        .with(
            Route::write(Verb::Create, PEERS).recording(&["name", "publicKey", "networks"]),
            routes!(add_peer),
        )
        .with(Route::write(Verb::Delete, PEERS), routes!(remove_peer))
}

/// A mesh: its spec, and its status.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Mesh {
    namespace: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<i64>,
    /// The mesh is deleted when its peers are gone; `status.joined` lists the clusters that it waits for.
    deleting: bool,
    /// The spec of a `ClusterMesh`.
    #[schema(value_type = Object)]
    spec: ClusterMeshSpec,
    /// The status of a `ClusterMesh`. It is absent until a controller that leads has reconciled the mesh.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    status: Option<ClusterMeshStatus>,
}

impl From<ClusterMesh> for Mesh {
    fn from(mesh: ClusterMesh) -> Self {
        Self {
            namespace: mesh.namespace().unwrap_or_default(),
            name: mesh.name_any(),
            generation: mesh.metadata.generation,
            deleting: mesh.metadata.deletion_timestamp.is_some(),
            spec: mesh.spec,
            status: mesh.status,
        }
    }
}

#[derive(Serialize, ToSchema)]
struct Meshes {
    meshes: Vec<Mesh>,
}

/// The document of meshes that were read.
pub(crate) fn document(meshes: Vec<ClusterMesh>) -> impl Serialize {
    Meshes { meshes: meshes.into_iter().map(Mesh::from).collect() }
}

/// Every mesh
#[utoipa::path(
    get, path = "/meshes", tag = "meshes",
    responses((status = 200, description = "Meshes by namespace and name", body = Meshes))
)]
async fn meshes(State(api): State<Api>, caller: Caller) -> Result<Json<Meshes>, Problem> {
    caller.may_in_fleet(MESHES, Verb::List)?;
    let all = api.meshes.list(caller.deadline).await?;
    Ok(Json(Meshes { meshes: all.into_iter().map(Mesh::from).collect() }))
}

/// One mesh
#[utoipa::path(
    get, path = "/meshes/{namespace}/{name}", tag = "meshes",
    responses((status = 200, description = "The mesh", body = Mesh))
)]
async fn mesh(
    State(api): State<Api>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Json<Mesh>, Problem> {
    caller.may_in_fleet(MESHES, Verb::Get)?;
    Ok(Json(found(&api, &caller, &namespace, &name).await?.into()))
}

async fn found(
    api: &Api,
    caller: &Caller,
    namespace: &str,
    name: &str,
) -> Result<ClusterMesh, Problem> {
    Ok(api.meshes.get(&Id::namespaced(namespace, name), caller.deadline).await?)
}

/// Tells the audit what the mesh was before.
async fn for_audit(api: &Api, caller: &Caller, id: &Id) {
    if let Ok(mesh) = api.meshes.get(id, caller.deadline).await {
        caller.trail.before(&mesh.spec);
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PutMesh {
    /// The spec of a `ClusterMesh`.
    #[schema(value_type = Object)]
    spec: ClusterMeshSpec,
}

/// Create a mesh, or replace its spec
#[utoipa::path(
    put, path = "/meshes/{namespace}/{name}", tag = "meshes", request_body = PutMesh,
    responses((status = 200, description = "The mesh as stored", body = Mesh))
)]
async fn put_mesh(
    State(api): State<Api>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
    Body(PutMesh { spec }): Body<PutMesh>,
) -> Result<Json<Mesh>, Problem> {
    caller.may_in_fleet(MESHES, Verb::Update)?;
    let id = Id::namespaced(namespace, name);
    let before = api.meshes.get(&id, caller.deadline).await.ok();
    let external = before.as_ref().map_or(&[][..], |mesh| &mesh.spec.external_peers);
    if !spec.external_peers.is_empty() && spec.external_peers != external {
        caller.may_in_fleet(PEERS, Verb::Create)?;
    }
    if let Some(mesh) = &before {
        caller.trail.before(&mesh.spec);
    }
    let mesh = api.meshes.put(&id, spec, caller.deadline).await?;
    caller.trail.after(&mesh.spec);
    Ok(Json(mesh.into()))
}

#[derive(Serialize, ToSchema)]
struct Removal {
    /// Whether the mesh is gone. If not, its peers are removed first.
    gone: bool,
}

/// Remove a mesh, and its peers everywhere
#[utoipa::path(
    delete, path = "/meshes/{namespace}/{name}", tag = "meshes",
    responses((status = 200, description = "Deleted, or being deleted", body = Removal))
)]
async fn delete_mesh(
    State(api): State<Api>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Json<Removal>, Problem> {
    caller.may_in_fleet(MESHES, Verb::Delete)?;
    let id = Id::namespaced(namespace, name);
    for_audit(&api, &caller, &id).await;
    let deleted = api.meshes.delete(&id, caller.deadline).await?;
    Ok(Json(Removal { gone: deleted == Deletion::Gone }))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct Ends {
    /// The cluster whose pods connect, by the mesh's name for it.
    from: String,
    /// The cluster that they connect to.
    to: String,
}

#[derive(Serialize, ToSchema)]
struct Checked {
    from: String,
    to: String,
    reaches: bool,
    /// Each has a `reason` and a `message`, in the order in which to fix them.
    #[schema(value_type = Vec<Object>)]
    reasons: Vec<Finding>,
    /// How many tunnels between the two clusters answer probes, both ways, as agents say.
    tunnels: u32,
}

/// Why the pods of one cluster cannot reach those of another
#[utoipa::path(
    get, path = "/meshes/{namespace}/{name}/check", tag = "meshes", params(Ends),
    responses((status = 200, description = "Reasons, in order", body = Checked))
)]
async fn check(
    State(api): State<Api>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
    Query(Ends { from, to }): Query<Ends>,
) -> Result<Json<Checked>, Problem> {
    caller.may_in_fleet(MESHES, Verb::Get)?;
    let mesh = found(&api, &caller, &namespace, &name).await?;
    let checked = mesh::check(&mesh, &from, &to).map_err(Problem::invalid)?;
    let mut reasons = checked.reasons;
    let mut answering = 0;
    if mesh.spec.data_planes().contains(&DataPlane::Wireguard)
        && let Some(clusters) = api.meshes.tunnels(&mesh, half(&caller)).await
    {
        let (found, up) = mesh::check_tunnels(&mesh, &from, &to, &clusters);
        reasons.extend(found);
        answering = up;
    }
    Ok(Json(Checked { from, to, reaches: reasons.is_empty(), reasons, tunnels: answering }))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Forget {
    /// The cluster that left the mesh, or that a mesh which is being deleted waits for.
    cluster: String,
}

/// Stop waiting for a cluster that does not answer; its peers stay as they are
#[utoipa::path(
    post, path = "/meshes/{namespace}/{name}/forget", tag = "meshes", request_body = Forget,
    responses((status = 204, description = "The mesh does not wait for the cluster any more"))
)]
async fn forget(
    State(api): State<Api>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
    Body(Forget { cluster }): Body<Forget>,
) -> Result<StatusCode, Problem> {
    caller.may_in_fleet(MESHES, Verb::Update)?;
    let id = Id::namespaced(namespace, name);
    match api.meshes.forget(&id, &cluster, caller.deadline).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(ForgetError::NotLeaving(why)) => Err(Problem::invalid(why)),
        Err(ForgetError::Store(error)) => Err(error.into()),
    }
}

#[derive(Serialize, ToSchema)]
struct Tunnels {
    /// Each cluster with its nodes: their keys, endpoints and networks, and what their agents say of their
    /// tunnels.
    #[schema(value_type = Vec<Object>)]
    clusters: Vec<ClusterTunnels>,
}

/// A dead cluster takes half of the time at most.
fn half(caller: &Caller) -> Deadline {
    caller.deadline.within(caller.deadline.remaining() / 2)
}

/// The nodes of a mesh and their tunnels
#[utoipa::path(
    get, path = "/meshes/{namespace}/{name}/tunnels", tag = "meshes",
    responses((status = 200, description = "By cluster and node", body = Tunnels))
)]
async fn tunnels(
    State(api): State<Api>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Json<Tunnels>, Problem> {
    caller.may_in_fleet(MESHES, Verb::Get)?;
    let mesh = found(&api, &caller, &namespace, &name).await?;
    let clusters = api.meshes.tunnels(&mesh, half(&caller)).await;
    let why = "no controller leads yet; ask again in a few seconds";
    let clusters = clusters.ok_or_else(|| Problem::invalid(why.to_owned()))?;
    Ok(Json(Tunnels { clusters }))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct AddPeer {
    /// The machine's name in the mesh.
    name: String,
    /// The public half of its key. The private half stays on the machine.
    public_key: String,
    /// The networks behind it, which clusters reach through it.
    #[serde(default)]
    networks: Vec<String>,
    /// Whether a machine of this name gets the new key.
    #[serde(default)]
    replace: bool,
}

#[derive(Serialize, ToSchema)]
struct AddedPeer {
    /// An entry of `externalPeers` of the mesh's spec.
    #[schema(value_type = Object)]
    peer: ExternalPeer,
}

/// Add a machine outside of clusters to a mesh
#[utoipa::path(
    post, path = "/meshes/{namespace}/{name}/peers", tag = "meshes", request_body = AddPeer,
    responses((status = 200, description = "The machine with its addresses", body = AddedPeer))
)]
async fn add_peer(
    State(api): State<Api>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
    Body(AddPeer { name: peer, public_key, networks, replace }): Body<AddPeer>,
) -> Result<Json<AddedPeer>, Problem> {
    caller.may_in_fleet(PEERS, Verb::Create)?;
    let id = Id::namespaced(namespace, name);
    let added =
        api.meshes.add_external_peer(&id, &peer, &public_key, &networks, replace, caller.deadline);
    let peer = added.await.map_err(refused)?;
    caller.trail.after(&peer);
    Ok(Json(AddedPeer { peer }))
}

/// Remove a machine outside of clusters from a mesh
#[utoipa::path(
    delete, path = "/meshes/{namespace}/{name}/peers/{peer}", tag = "meshes",
    responses((status = 204, description = "No cluster lets it in any more, as soon as each is told"))
)]
async fn remove_peer(
    State(api): State<Api>,
    caller: Caller,
    Path((namespace, name, peer)): Path<(String, String, String)>,
) -> Result<StatusCode, Problem> {
    caller.may_in_fleet(PEERS, Verb::Delete)?;
    let id = Id::namespaced(namespace, name);
    for_audit(&api, &caller, &id).await;
    api.meshes.remove_external_peer(&id, &peer, caller.deadline).await.map_err(refused)?;
    Ok(StatusCode::NO_CONTENT)
}

fn refused(error: ExternalPeerError) -> Problem {
    match error {
        ExternalPeerError::Refused(why) => Problem::invalid(why),
        ExternalPeerError::Store(error) => error.into(),
    }
}

#[cfg(test)]
mod tests;
