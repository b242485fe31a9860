//! Egress: connections of pods to some destinations leave with the address of an egress pod.
//!
//! ```text
//! client's node  source ─► mark of the connection ─► rule ─► table of its class
//!                  ─► longest destination ─► tunnel by fl-egress to the replica's pod
//! egress pod     fl-egress ─► its own address (NAT) ─► the world
//!                reply ─► the node that the connection came from, by fl-egress ─► client
//! ```
//!
//! - The node does everything for its clients: pods have no device more, are not entered, and an annotation
//!   acts on running pods. One device does for all clients and all egresses.
//! - A connection stays with the replica that it began with ([`plan`]): when replicas come it stays, when
//!   its replica drains it stays, when its replica is gone it moves, and its other end resets it.
//! - A new pod whose choice is not in the kernel yet sends nothing to destinations of egresses ([`hold`]); beside
//!   another plugin that holds for every address that is not known ([`foreign`]).
//! - The egress pod ([`gateway`]) knows neither clients nor nodes, and asks nobody: a connection's mark is
//!   the number of the node that it came from, the last four bytes of its hardware address, and the tunnel's
//!   device learns where that hardware address is.

mod controller;
mod foreign;
mod gateway;
mod health;
mod hold;
mod kernel_state;
mod plan;
mod pods;
mod reconciler;
mod rows;
mod table;

use std::net::{IpAddr, Ipv6Addr};

use kernel::netlink::Mac;
use sha2::{Digest, Sha256};

pub use controller::{EgressControllerConfig, start as start_controller};
pub(crate) use foreign::ForeignPods;
pub use gateway::{Gateway, GatewayError, GatewaySettings, GatewayUse};
pub use health::follow as follow_silent;
pub use hold::{Choices, EgressHold, HOLD_TABLE, PodChoice};
pub use kernel_state::{EgressDevice, EgressError, apply, remove};
pub use plan::{
    ClassNumbers, Client, EgressInputs, EgressProgram, EgressView, ForeignNetwork, ReplicaView,
    plan, plan_on,
};
pub(crate) use pods::{NodePods, ServedPods};
pub(crate) use reconciler::{EgressMetrics, EgressReconciler, EgressSeen, PACE};
pub use table::{EgressTable, TABLE};

/// The device's name, on nodes and in egress pods.
pub const DEVICE: &str = "fl-egress";
/// The tunnel's UDP port.
pub const PORT: u16 = 4788;
/// The TCP port by which an egress pod says that it is ready.
pub const READY_PORT: u16 = 4787;
/// The label that egress pods have: the name of their egress.
pub const LABEL: &str = "fairlead.dev/egress";
/// The number on every packet.
const NETWORK: u32 = 0x66_65;
/// Where all egress pods are behind the tunnel, and where all nodes are.
const GATEWAY: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xe);
const NODES: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xf);
/// The beginning of every hardware address, and that of all egress pods.
const PREFIX: [u8; 2] = [0x0a, 0xf1];
const GATEWAY_MAC: Mac = Mac([PREFIX[0], PREFIX[1], 0, 0, 0, 1]);

/// The hardware address of a node's device. The last four bytes tell nodes apart: its IPv4 address, or what
/// follows from its name.
pub fn mac_of(node: &str, addresses: &[IpAddr]) -> Mac {
    let ipv4 = addresses.iter().find_map(|address| match address {
        IpAddr::V4(address) => Some(address.octets()),
        IpAddr::V6(_) => None,
    });
    let [a, b, c, d] = ipv4.unwrap_or_else(|| {
        let digest = Sha256::digest(node.as_bytes());
        [digest[0], digest[1], digest[2], digest[3] | 2]
    });
    Mac([PREFIX[0], PREFIX[1], a, b, c, d])
}

#[cfg(test)]
mod tests;
