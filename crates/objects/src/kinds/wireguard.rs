//! `WireguardNode`, a node's end of its tunnels, which that node alone writes; and `WireguardPeer`, a
//! node of another cluster as a peer of all nodes of this one, which the mesh's controller writes.

#![allow(unreachable_pub, reason = "KubeSchema repeats the type inside a function")]

use kube::{CustomResource, KubeSchema, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::field;
use super::mesh::MOST_EXTERNAL_NETWORKS;
use crate::store::{Invalid, Kind};

/// 32 bytes in base64, as `wg` writes them.
pub(super) const KEY: &str = "^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$";
pub(super) const KEY_LENGTH: usize = 44;
const MOST_ALLOWED_IPS: usize = 1024;
const LONGEST_NETWORK: usize = 49;
const LONGEST_HOST: usize = 253;
/// The most characters of an IPv6 address with a port.
const LONGEST_ENDPOINT: usize = 80;
/// The most characters of a mesh with its namespace.
const LONGEST_MESH: usize = 127;
/// As many clusters as a mesh has at most.
const MOST_MOVES: usize = 256;
/// How many tunnels a node's status lists; it counts all of them.
pub const MOST_TUNNELS: usize = 64;

/// A node's end of its WireGuard tunnels. The private key stays on the node.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[kube(
    group = "fairlead.dev",
    version = "v1alpha1",
    kind = "WireguardNode",
    doc = "A node's end of its WireGuard tunnels. The private key stays on the node.",
    category = "fairlead",
    shortname = "fwn",
    status = "WireguardNodeStatus",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name == self.spec.node").message("it is named by its node"),
    printcolumn = r#"{"name":"Key","type":"string","jsonPath":".spec.publicKey"}"#,
    printcolumn = r#"{"name":"Port","type":"integer","jsonPath":".spec.port"}"#,
    printcolumn = r#"{"name":"Implementation","type":"string","jsonPath":".status.implementation"}"#,
    printcolumn = r#"{"name":"Peers","type":"integer","jsonPath":".status.peers"}"#,
    printcolumn = r#"{"name":"Unreachable","type":"integer","jsonPath":".status.unreachable"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct WireguardNodeSpec {
    /// The node whose agent writes this.
    #[schemars(length(min = 1, max = field::LONGEST_NAME), regex(pattern = field::NAME))]
    pub node: String,
    /// The public half of the node's key.
    #[schemars(length(min = KEY_LENGTH, max = KEY_LENGTH), regex(pattern = KEY))]
    pub public_key: String,
    /// The public half of the key that the node is about to use. Peers that know it before lose no
    /// connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = KEY_LENGTH, max = KEY_LENGTH), regex(pattern = KEY))]
    pub next_public_key: Option<String>,
    /// The UDP port at which the node listens.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// Whether the node takes packets of this cluster's pods through its tunnels.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub encrypts_pods: bool,
}

/// What the node's agent observes of its tunnels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WireguardNodeStatus {
    /// Who encrypts: `kernel`, or `userspace`, which is the agent's process.
    #[schemars(length(max = 16))]
    pub implementation: String,
    /// The largest packet that the interface takes, in bytes.
    #[serde(default)]
    pub mtu: u32,
    /// The number of its peers.
    #[serde(default)]
    pub peers: u32,
    /// The number of those that do not answer probes through the tunnel.
    #[serde(default)]
    pub unreachable: u32,
    /// When this was so (RFC 3339). Counters are written every five minutes, changes within seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = field::LONGEST_TIME))]
    pub observed: Option<String>,
    /// The tunnels that do not answer, then those to gateways, then the others by name; the first 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_TUNNELS))]
    pub tunnels: Vec<WireguardTunnel>,
    /// On a node that is no gateway of its cluster: the gateway that packets for other clusters are sent
    /// to, and the way that they take to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = field::LONGEST_MESSAGE))]
    pub gateway: Option<String>,
    /// The clusters that are being moved from one data plane to another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_MOVES))]
    pub moves: Vec<WireguardMove>,
}

/// How far a node is with the peers of one cluster that another data plane gives up, or takes back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WireguardMove {
    /// The mesh, as `namespace/name`.
    #[schemars(length(max = LONGEST_MESH))]
    pub mesh: String,
    /// The cluster of the peers.
    #[schemars(length(max = field::LONGEST_NAME))]
    pub cluster: String,
    /// The number of peers with `routing: TakeOver` whose networks are sent to them.
    #[serde(default)]
    pub taken_over: u32,
    /// The number of peers with `routing: Standby` whose networks are left to another data plane.
    #[serde(default)]
    pub standing_by: u32,
}

/// A tunnel to one peer, as the node sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WireguardTunnel {
    /// The name of the WireguardPeer.
    #[schemars(length(max = field::LONGEST_NAME))]
    pub peer: String,
    pub state: WireguardPathState,
    /// Where the peer was heard last, or is said to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_ENDPOINT))]
    pub endpoint: Option<String>,
    /// When the last handshake was (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = field::LONGEST_TIME))]
    pub last_handshake: Option<String>,
    #[serde(default)]
    pub received_bytes: u64,
    #[serde(default)]
    pub sent_bytes: u64,
    /// How many of a hundred probes were not answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_percent: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_micros: Option<u32>,
    /// The largest packet that comes through, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Whether packets for networks that the peer shares with others are sent to it. A peer that shares
    /// none has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carries: Option<bool>,
}

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
pub enum WireguardPathState {
    /// Probes are answered.
    Up,
    /// The last probes were not answered.
    Down,
    /// It was not probed yet, or cannot be.
    #[default]
    Unknown,
}

/// A node of another cluster as a peer. The fields have the names of Kilo's `Peer`.
#[derive(
    CustomResource, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema,
)]
#[kube(
    group = "fairlead.dev",
    version = "v1alpha1",
    kind = "WireguardPeer",
    doc = "A node of another cluster as a WireGuard peer of all nodes of this one.",
    category = "fairlead",
    shortname = "fwp",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Allowed","type":"string","jsonPath":".spec.allowedIPs"}"#,
    printcolumn = r#"{"name":"Key","type":"string","jsonPath":".spec.publicKey","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct WireguardPeerSpec {
    /// The networks behind the peer.
    #[serde(rename = "allowedIPs", default)]
    #[schemars(length(max = MOST_ALLOWED_IPS), inner(length(min = 1, max = LONGEST_NETWORK)))]
    pub allowed_ips: Vec<String>,
    /// Where the peer is reached first. Without one the peer connects by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<WireguardEndpoint>,
    /// Seconds between keepalives; 0 is none.
    #[serde(default)]
    #[schemars(range(min = 0, max = 65535))]
    pub persistent_keepalive: u16,
    #[schemars(length(min = KEY_LENGTH, max = KEY_LENGTH), regex(pattern = KEY))]
    pub public_key: String,
    /// The key that the peer is about to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = KEY_LENGTH, max = KEY_LENGTH), regex(pattern = KEY))]
    pub next_public_key: Option<String>,
    /// Set if the peer is a node of this cluster itself, which has gateways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<WireguardWithin>,
    /// When packets for its networks are sent to it.
    #[serde(default, skip_serializing_if = "WireguardRouting::is_always")]
    pub routing: WireguardRouting,
    /// The ranges of the mesh's machines outside of clusters. Packets for addresses there that no peer has
    /// are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MOST_EXTERNAL_NETWORKS),
        inner(length(min = 1, max = LONGEST_NETWORK))
    )]
    pub external_networks: Vec<String>,
}

/// A node of the same cluster. Nothing is sent to it through the tunnel but probes: it is reached by the
/// cluster's own network, and what other clusters have is sent to a gateway by that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WireguardWithin {
    /// Whether it is a gateway.
    #[serde(default)]
    pub gateway: bool,
    /// Its pod networks and internal addresses: packets for other clusters take the way to a gateway that
    /// packets for these take.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_ALLOWED_IPS), inner(length(min = 1, max = LONGEST_NETWORK)))]
    pub networks: Vec<String>,
}

/// When packets are sent to a peer.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
pub enum WireguardRouting {
    /// From the first moment on.
    #[default]
    Always,
    /// When its tunnel answers. Until then another data plane has its networks.
    TakeOver,
    /// No longer, once another data plane has routes to its networks. What comes from it is taken.
    Standby,
}

impl WireguardRouting {
    pub fn is_always(&self) -> bool {
        *self == Self::Always
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct WireguardEndpoint {
    #[serde(rename = "dnsOrIP")]
    pub dns_or_ip: WireguardHost,
    /// Its UDP port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
}

/// A name or an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct WireguardHost {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_HOST))]
    pub dns: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_HOST))]
    pub ip: Option<String>,
}

impl Kind for WireguardNode {
    const NAME: &'static str = "WireguardNode";
    const NAMESPACED: bool = false;

    fn check(&self) -> Result<(), Invalid> {
        let mut problems = Invalid::default();
        let WireguardNodeSpec { node, public_key, next_public_key, port, .. } = &self.spec;
        field::name(&mut problems, "spec.node", node);
        if self.name_any() != *node {
            problems.add("metadata.name", format!("must be {node}, as spec.node"));
        }
        check_key(&mut problems, "spec.publicKey", Some(public_key));
        check_key(&mut problems, "spec.nextPublicKey", next_public_key.as_ref());
        if *port == 0 {
            problems.add("spec.port", "is 1 to 65535");
        }
        problems.into_result()
    }

    fn check_status(&self) -> Result<(), Invalid> {
        let mut problems = Invalid::default();
        if let Some(status) = &self.status {
            let most = MOST_TUNNELS;
            field::at_most(&mut problems, "status.tunnels", status.tunnels.len(), most);
        }
        problems.into_result()
    }
}

impl Kind for WireguardPeer {
    const NAME: &'static str = "WireguardPeer";
    const NAMESPACED: bool = false;

    fn check(&self) -> Result<(), Invalid> {
        let mut problems = Invalid::default();
        let WireguardPeerSpec { allowed_ips, endpoint, public_key, next_public_key, .. } =
            &self.spec;
        field::at_most(&mut problems, "spec.allowedIPs", allowed_ips.len(), MOST_ALLOWED_IPS);
        let within = self.spec.within.iter().flat_map(|within| within.networks.iter().enumerate());
        let within = within.map(|it| ("within.networks", it));
        let allowed = allowed_ips.iter().enumerate().map(|it| ("allowedIPs", it));
        let external = self.spec.external_networks.iter().enumerate();
        let external = external.map(|it| ("externalNetworks", it));
        for (field, (at, network)) in allowed.chain(within).chain(external) {
            if network.parse::<ipnet::IpNet>().is_err() {
                problems.add(format!("spec.{field}[{at}]"), "is no network, such as 10.1.0.0/16");
            }
        }
        if endpoint.as_ref().is_some_and(|endpoint| endpoint.port == 0) {
            problems.add("spec.endpoint.port", "is 1 to 65535");
        }
        check_key(&mut problems, "spec.publicKey", Some(public_key));
        check_key(&mut problems, "spec.nextPublicKey", next_public_key.as_ref());
        problems.into_result()
    }
}

pub(super) fn check_key(problems: &mut Invalid, path: &str, key: Option<&String>) {
    let last = |key: &str| key.as_bytes().get(42).is_some_and(|b| b"AEIMQUYcgkosw048".contains(b));
    let text = |key: &str| {
        key.bytes().take(42).all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
    };
    let whole =
        |key: &&String| key.len() == KEY_LENGTH && text(key) && last(key) && key.ends_with('=');
    if key.is_some_and(|key| !whole(&key)) {
        problems.add(path, "is no key: 32 bytes in base64, as `wg pubkey` writes them");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn node(name: &str, key: &str) -> WireguardNode {
        let spec = WireguardNodeSpec {
            node: "n1".to_owned(),
            public_key: key.to_owned(),
            next_public_key: None,
            port: 51820,
            encrypts_pods: false,
        };
        WireguardNode::new(name, spec)
    }

    #[test]
    fn a_node_writes_under_its_own_name_and_a_key_is_one() {
        let key = "b8a8LyxAlV0vKMcV8jcW5x7JG3l9Tss5g5WgqcSSOTk=";
        node("n1", key).check().unwrap();
        assert!(node("n2", key).check().is_err());
        for bad in ["", "b8a8", &key[..43], &key.replace('=', "A"), &key.replace("Tk=", "Tl=")] {
            assert!(node("n1", bad).check().is_err(), "{bad}");
        }
    }
}
