//! Why the pods of one cluster cannot reach the pods of another, according to the mesh's status.
//!
//! A packet needs a peer at both ends: one in the cluster that sends it, with a route to its destination,
//! and one in the cluster that receives it, from which it may come.

use kube::ResourceExt;
use objects::kinds::{ClusterMesh, MeshClusterStatus, MeshState};
use serde::Serialize;
use serde_json::Value;

use crate::name::{hashed_name, plain_name};
use crate::overlap;
use crate::tunnels::ClusterTunnels;

/// One reason why a cluster cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// One word for programs, part of the API.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
}

/// Whether the pods of one cluster reach the pods of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reachability {
    pub from: String,
    pub to: String,
    /// Why they do not, in the order in which to fix it. Empty if every node of both clusters has its
    /// peer in the other.
    pub reasons: Vec<Finding>,
}

impl Reachability {
    pub fn reaches(&self) -> bool {
        self.reasons.is_empty()
    }
}

/// Checks whether the pods of one cluster reach the pods of another. The error says that one of them is
/// no cluster of the mesh, and which clusters are.
pub fn check(mesh: &ClusterMesh, from: &str, to: &str) -> Result<Reachability, String> {
    let known: Vec<&str> = mesh.spec.clusters.iter().map(|c| c.name.as_str()).collect();
    if let Some(unknown) = [from, to].iter().find(|name| !known.contains(name)) {
        return Err(format!("the mesh has no cluster {unknown}; it has {}", known.join(", ")));
    }
    let mut reasons = Vec::new();
    let mut found = |reason, message: String| reasons.push(Finding { reason, message });
    if mesh.metadata.deletion_timestamp.is_some() {
        found("MeshDeleting", "the mesh is being deleted, and its peers with it".to_owned());
    }
    let status = mesh.status.clone().unwrap_or_default();
    if status.observed_generation.is_none() {
        let message =
            "no controller has reconciled the mesh yet: none leads, or it has just started";
        found("NotObserved", message.to_owned());
    } else if status.observed_generation < mesh.metadata.generation {
        found(
            "Outdated",
            "the mesh was changed, and no controller has reconciled it since".to_owned(),
        );
    }
    let of = |name: &str| status.clusters.iter().find(|cluster| cluster.name == name);
    let ends: Vec<_> = [from, to].into_iter().filter_map(of).collect();
    // The reasons that stop a whole cluster come before those of its nodes.
    for cluster in &ends {
        let (name, why) = (&cluster.name, cluster.why.as_deref().unwrap_or_default());
        let since = cluster.since.as_deref().unwrap_or("an unknown time");
        match cluster.state {
            MeshState::Overlapping => found("NetworksOverlap", format!("{name}: {why}")),
            MeshState::Unreachable => found(
                "ClusterUnreachable",
                format!(
                    "{name} cannot be reached since {since}: {why}; its peers are as they were"
                ),
            ),
            MeshState::Waiting if cluster.skipped == 0 && cluster.missing_in.is_empty() => {
                found("ClusterWaiting", format!("{name}: {why}"));
            }
            MeshState::Waiting | MeshState::Converged => {}
        }
    }
    for cluster in &ends {
        for node in &cluster.skipped_nodes {
            let message =
                format!("{}/{}: {}: {}", cluster.name, node.name, node.reason, node.message);
            found("NodeSkipped", message);
        }
        let listed = cluster.skipped_nodes.len() as u32;
        if let Some(more @ 1..) = cluster.skipped.checked_sub(listed) {
            found("NodeSkipped", format!("{} more nodes of {}", more, cluster.name));
        }
    }
    if from != to {
        let missing = |source: &MeshClusterStatus, target: &str| {
            let missing = source.missing_in.iter().any(|name| name == target);
            missing.then(|| {
                let why = source.why.as_deref().unwrap_or("they are being written");
                let name = &source.name;
                format!("{target} does not have all peers of {name}: {why}")
            })
        };
        for (source, target) in [(to, from), (from, to)] {
            if let Some(message) = of(source).and_then(|source| missing(source, target)) {
                found("PeersMissing", message);
            }
        }
    }
    Ok(Reachability { from: from.to_owned(), to: to.to_owned(), reasons })
}

/// What the tunnels between two clusters have to say, in the order of nodes: the reasons why packets do not
/// come through, and how many tunnels answer.
pub fn check_tunnels(
    mesh: &ClusterMesh,
    from: &str,
    to: &str,
    clusters: &[ClusterTunnels],
) -> (Vec<Finding>, u32) {
    let (name, namespace) = (mesh.name_any(), overlap::namespace(mesh));
    let of = |cluster: &str| clusters.iter().find(|it| it.cluster == cluster);
    let (mut reasons, mut answering) = (Vec::new(), 0);
    for (here, there) in [(from, to), (to, from)] {
        let (Some(sending), Some(receiving)) = (of(here), of(there)) else { continue };
        let peer_of = |peer: &str| {
            receiving.nodes.iter().find(|it| {
                peer == plain_name(&name, there, &it.node)
                    || peer == hashed_name(&namespace, &name, there, &it.node)
            })
        };
        for node in &sending.nodes {
            let Some(status) = &node.status else { continue };
            if let Some(since) = &node.silent_since {
                let message = format!(
                    "{here}/{}: its agent has said nothing of its tunnels since {since}; does it run, and does \
                     it reach its API server?",
                    node.node
                );
                reasons.push(Finding { reason: "AgentSilent", message });
                continue;
            }
            let tunnels = status["tunnels"].as_array().map_or(&[][..], Vec::as_slice);
            for tunnel in tunnels {
                let peer = tunnel["peer"].as_str().unwrap_or_default();
                let Some(remote) = peer_of(peer) else { continue };
                let ends = format!("{here}/{} to {there}/{}", node.node, remote.node);
                match tunnel_problem(status, tunnel, &ends) {
                    Some(finding) => reasons.push(finding),
                    None => answering += u32::from(tunnel["state"] == "Up"),
                }
            }
        }
    }
    (reasons, answering)
}

/// The first step at which packets end that a node's agent has found: the name, the handshake, the way
/// through the tunnel, its MTU, its loss.
fn tunnel_problem(status: &Value, tunnel: &Value, ends: &str) -> Option<Finding> {
    let finding = |reason, message: String| Some(Finding { reason, message });
    let endpoint = tunnel["endpoint"].as_str();
    if tunnel["state"] == "Down" {
        return match (tunnel["lastHandshake"].as_str(), endpoint) {
            (None, None) => finding(
                "NoEndpoint",
                format!("{ends}: no address is known, and nobody has connected from there"),
            ),
            (None, Some(at)) => finding(
                "NoHandshake",
                format!(
                    "{ends}: no handshake with {at}; does a firewall drop its UDP port, or have the two \
                     different preshared keys?"
                ),
            ),
            (Some(last), _) => finding(
                "TunnelDown",
                format!("{ends}: probes are not answered; the last handshake was {last}"),
            ),
        };
    }
    let loss = tunnel["lossPercent"].as_u64().unwrap_or(0);
    if loss >= LOSSY {
        return finding("TunnelLossy", format!("{ends}: {loss} of 100 probes are lost"));
    }
    let (narrow, wide) = (tunnel["mtu"].as_u64(), status["mtu"].as_u64());
    match (narrow, wide) {
        (Some(narrow), Some(wide)) if narrow < MIN_MTU && narrow < wide => finding(
            "MtuTooSmall",
            format!("{ends}: packets of more than {narrow} bytes do not come through"),
        ),
        _ => None,
    }
}

/// From how many lost probes of a hundred on a tunnel is of little use.
const LOSSY: u64 = 20;
/// The least that IPv6 needs.
const MIN_MTU: u64 = 1280;

#[cfg(test)]
mod tests;
