//! What the leader knows of a mesh's nodes and their tunnels: for a machine outside that is to reach them,
//! and for who asks how the tunnels are.

use std::collections::BTreeMap;

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::ListParams;
use objects::kinds::{ClusterMesh, DataPlane, MeshClusterRef};
use serde::Serialize;
use serde_json::Value;
use stallproof::{Deadline, sentence};

use crate::controller::MeshAccess;
use crate::meshes::Meshes;
use crate::observation::Observed;
use crate::overlap;
use crate::pairs::Pairs;
use crate::peer::PeerEndpoint;
use crate::planner::Planner;
use crate::source::PeeredNode;

/// One cluster of a mesh.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTunnels {
    pub cluster: String,
    /// Why nothing, or not everything, is known of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    pub nodes: Vec<NodeTunnels>,
}

/// A node as a peer of others, and its tunnels to them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeTunnels {
    pub node: String,
    pub public_key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The networks that are sent to it. One node of a cluster has those that no node covers.
    pub networks: Vec<String>,
    /// The status of its `WireguardNode`, as its agent wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Value>,
    /// Since when that agent has said nothing, if that is too long: the status may be so no longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<Timestamp>,
}

/// An agent says how its tunnels are at least every five minutes.
const SILENT_AFTER: SignedDuration = SignedDuration::from_mins(6);

fn silent_since(status: &Value, now: Timestamp) -> Option<Timestamp> {
    let observed: Timestamp = status["observed"].as_str()?.parse().ok()?;
    (now.duration_since(observed) > SILENT_AFTER).then_some(observed)
}

impl Meshes {
    /// Asks every cluster of a mesh for its nodes' tunnels. None in a process that does not lead.
    pub async fn tunnels(
        &self,
        mesh: &ClusterMesh,
        deadline: Deadline,
    ) -> Option<Vec<ClusterTunnels>> {
        let access = self.leading()?;
        let namespace = overlap::namespace(mesh);
        let spec = &mesh.spec;
        let plan = |plane| (plane, Planner::of_plane(mesh, &[], plane, &Pairs::new()));
        let mut planners: BTreeMap<DataPlane, Planner> =
            spec.data_planes().into_iter().map(plan).collect();
        let mut clusters = Vec::new();
        for cluster in &mesh.spec.clusters {
            let Some(reference) = cluster.reference(&namespace) else { continue };
            let plane = spec.data_plane_of(cluster);
            let observation = access.nodes(&reference, plane);
            for (of, planner) in &mut planners {
                planner.observe(&cluster.name, &access.nodes(&reference, *of));
            }
            let why = match &observation.nodes {
                Observed::Known(_) => None,
                Observed::Waiting(what) => Some(format!("waiting for {what}")),
                Observed::Away(why) => Some(why.clone()),
            };
            clusters.push((cluster.name.clone(), plane, reference, why));
        }
        for planner in planners.values_mut() {
            while planner.advance(256) {
                tokio::task::yield_now().await;
            }
        }
        let now = Timestamp::now();
        let read = clusters.into_iter().map(|(cluster, plane, reference, why)| {
            let nodes = planners.get(&plane).map(|planner| nodes(planner, &cluster));
            let nodes = nodes.unwrap_or_default();
            let access = &access;
            async move {
                let mut found = ClusterTunnels { cluster, why, nodes };
                match statuses(access, &reference, deadline).await {
                    Ok(statuses) => {
                        for node in &mut found.nodes {
                            let own = statuses.iter().find(|(name, _)| *name == node.node);
                            node.status = own.and_then(|(_, status)| status.clone());
                            let status = node.status.as_ref();
                            node.silent_since = status.and_then(|it| silent_since(it, now));
                        }
                    }
                    Err(why) => found.why = found.why.or(Some(why)),
                }
                found
            }
        });
        Some(join_all(read).await)
    }
}

/// The nodes of a cluster that have peers elsewhere. The first that has an endpoint carries what no node
/// covers.
fn nodes(planner: &Planner, cluster: &str) -> Vec<NodeTunnels> {
    let Some(source) = planner.source(cluster) else { return Vec::new() };
    let carrier = source.peered.values().find(|it| it.endpoint.is_some()).map(|it| it.name.clone());
    let node = |peered: &PeeredNode| {
        let mut networks = peered.routes.to_vec();
        if carrier.as_ref() == Some(&peered.name) {
            networks.extend(source.residual.iter().cloned());
        }
        NodeTunnels {
            node: peered.name.to_string(),
            public_key: peered.key.clone(),
            endpoint: peered.endpoint.as_ref().map(PeerEndpoint::text),
            networks,
            status: None,
            silent_since: None,
        }
    };
    let gateways = source.peered.values().map(node);
    // Nodes that send to gateways have something to say of their way there.
    let inside = source.inside.values().filter(|it| !source.peered.contains_key(&it.name));
    let inside = inside.map(|peered| NodeTunnels {
        node: peered.name.to_string(),
        public_key: peered.key.clone(),
        ..NodeTunnels::default()
    });
    gateways.chain(inside).collect()
}

type Statuses = Vec<(String, Option<Value>)>;

/// What agents wrote of their tunnels. A cluster with another data plane has none.
async fn statuses(
    access: &MeshAccess,
    cluster: &MeshClusterRef,
    deadline: Deadline,
) -> Result<Statuses, String> {
    let connection = access.connection(cluster).map_err(|error| sentence(&error))?;
    let doing = "reading tunnels";
    let kind = "wireguardnodes.fairlead.dev";
    let listed = connection.on(kind, None, doing, deadline, |api, _| async move {
        api.list(&ListParams::default()).await
    });
    match listed.await {
        Ok(all) => {
            let status = |it: &kube::api::DynamicObject| it.data.get("status").cloned();
            Ok(all.items.iter().map(|it| (it.name_any(), status(it))).collect())
        }
        Err(fleet::Error::NoSuchKind { .. }) => Ok(Vec::new()),
        Err(error) => Err(sentence(&error)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_agent_is_silent_that_said_nothing_for_longer_than_it_should() {
        let at = |minute: i64| Timestamp::from_second(60 * minute).expect("a moment");
        let status = json!({"observed": at(4).to_string()});
        assert_eq!(silent_since(&status, at(10)), None);
        assert_eq!(silent_since(&status, at(11)), Some(at(4)));
        assert_eq!(silent_since(&status, at(3)), None, "clocks differ");
        assert_eq!(silent_since(&json!({}), at(10)), None, "it has said nothing yet");
    }
}
