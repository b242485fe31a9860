//! Encryption of the pod network between nodes: what net tells the WireGuard interface, and what it says of
//! the ways that came of it.
//!
//! The interface's own routes lead packets into it, before the main table is looked into
//! (`wireguard/src/cluster.rs`). Here is only what belongs to pods: their MTU, their addresses that no
//! masquerading replaces, and the faults of ways.

mod hold;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use serde_json::{Value, json};
use stallproof::Snapshot;
use wireguard::{ClusterTunnel, ClusterTunnels, Encryption, NodeNetworks, PodNetwork};

use crate::pool::Pools;
use crate::routes::RoutedBlock;
use crate::trust;

pub(crate) use hold::GuardHold;

/// How pods' packets are encrypted.
#[derive(Clone, Debug)]
pub struct PodEncryption {
    pub mode: Encryption,
    /// The WireGuard interface's name, UDP port and MTU.
    pub interface: String,
    pub port: u16,
    pub mtu: u32,
    /// The pod network, for the interface to follow.
    pub network: Snapshot<Option<PodNetwork>>,
    /// The ways to other nodes, as the interface finds them.
    pub tunnels: Snapshot<ClusterTunnels>,
    /// Where it is required: the networks of which nothing leaves in clear text any more.
    pub guarded: Snapshot<BTreeSet<IpNet>>,
}

/// The pod network as this node knows it. `blocks` are the other nodes'.
pub(crate) fn pod_network<'a>(
    addresses: Vec<IpAddr>,
    own: impl IntoIterator<Item = &'a Arc<RoutedBlock>>,
    blocks: impl IntoIterator<Item = &'a Arc<RoutedBlock>>,
    pools: &Pools,
    complete: bool,
) -> PodNetwork {
    let mut nodes = BTreeMap::<String, NodeNetworks>::new();
    for block in blocks {
        let RoutedBlock { node, networks, via, .. } = &**block;
        let known = nodes.entry(node.clone()).or_default();
        known.networks.extend(networks.iter().map(IpNet::trunc));
        let new: Vec<_> = via.iter().copied().filter(|it| !known.addresses.contains(it)).collect();
        known.addresses.extend(new);
    }
    for known in nodes.values_mut() {
        known.networks.sort_unstable();
        known.networks.dedup();
    }
    let pools = pools.values().filter_map(|judged| judged.object.spec.networks().ok()).flatten();
    PodNetwork {
        addresses,
        own: own.into_iter().flat_map(|block| &block.networks).map(IpNet::trunc).collect(),
        pools: pools.flat_map(trust::networks).map(|network| network.trunc()).collect(),
        nodes,
        complete,
    }
}

impl PodEncryption {
    /// Holds pods until nothing of them can leave in clear text, where that is required.
    pub(crate) fn hold(&self) -> Option<GuardHold> {
        (self.mode == Encryption::Required).then(|| GuardHold::new(self.guarded.clone()))
    }

    /// Says what is wrong with the ways to nodes, each with the node's name.
    pub(crate) fn faults(&self) -> Vec<(String, String)> {
        let tunnels = self.tunnels.load();
        if tunnels.implementation.is_none() {
            let why = format!(
                "there is no WireGuard interface {} yet{}: see the agent's log",
                self.interface,
                match self.mode {
                    Encryption::Required => ", and nothing is sent to other nodes' pods without",
                    Encryption::Preferred => ", and pods' packets are not encrypted",
                }
            );
            return vec![("encryption".to_owned(), why)];
        }
        let told = |(node, way): (&String, &ClusterTunnel)| {
            Some((format!("node {node}"), self.fault(node, way)?))
        };
        tunnels.nodes.iter().filter_map(told).collect()
    }

    fn fault(&self, node: &str, way: &ClusterTunnel) -> Option<String> {
        let what = match way {
            ClusterTunnel { key: None, .. } => format!(
                "it has said no key with which it takes pods' packets: see whether net.encryption is on \
                 there, and `kubectl get wireguardnode {node}`"
            ),
            ClusterTunnel { last_handshake: None, .. } => format!(
                "there was no handshake with it: see whether UDP port {} is let through both ways",
                self.port
            ),
            ClusterTunnel { path, .. } if path.down => {
                "it does not answer through the tunnel".to_owned()
            }
            _ => return None,
        };
        Some(match (self.mode, way.routed) {
            (Encryption::Required, _) => format!("its pods are not reached: {what}"),
            (Encryption::Preferred, false) => {
                format!("packets to its pods are not encrypted: {what}")
            }
            (Encryption::Preferred, true) => what,
        })
    }

    /// Returns a row for each other node.
    pub(crate) fn rows(&self) -> Vec<Value> {
        let tunnels = self.tunnels.load();
        let row = |(node, way): (&String, &ClusterTunnel)| {
            json!({
                "node": node,
                "way": match (self.mode, way.routed, way.key.is_some()) {
                    (_, true, _) => "encrypted",
                    (Encryption::Required, ..) => "refused",
                    (Encryption::Preferred, ..) => "clear",
                },
                "mode": self.mode.to_string(),
                "implementation": tunnels.implementation.map(|it| it.to_string()),
                "mtu": way.path.mtu.unwrap_or(tunnels.mtu),
                "key": way.key.map(|key| key.to_string()),
                "lastHandshakeSeconds": way.last_handshake.map(|it| it.as_secs()),
                "receivedBytes": way.received_bytes,
                "sentBytes": way.sent_bytes,
                "lossPercent": way.path.loss,
                "milliseconds": way.path.round_trip.map(|it| it.as_secs_f64() * 1_000.0),
                "fault": self.fault(node, way),
            })
        };
        tunnels.nodes.iter().map(row).collect()
    }

    /// Returns the way to one node, if its pods' packets go into the tunnel.
    pub(crate) fn towards(&self, node: &str, blocks: &[RoutedBlock]) -> Option<Vec<Value>> {
        let tunnels = self.tunnels.load();
        let way = tunnels.nodes.get(node).filter(|way| way.routed)?;
        let at = blocks.first().and_then(|block| block.via.first());
        let mut families: Vec<_> = blocks
            .iter()
            .flat_map(|block| &block.networks)
            .map(|network| if network.addr().is_ipv4() { "ipv4" } else { "ipv6" })
            .collect();
        families.sort_unstable();
        families.dedup();
        let row = |family| {
            json!({
                "family": family, "path": "wireguard", "at": at, "port": self.port,
                "mtu": tunnels.mtu, "carries": way.path.mtu,
                "milliseconds": way.path.round_trip.map(|it| it.as_secs_f64() * 1_000.0),
                "fault": self.fault(node, way),
            })
        };
        Some(families.into_iter().map(row).collect())
    }
}

#[cfg(test)]
mod tests;
