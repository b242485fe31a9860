//! `AddressPool`: where pods' addresses come from. The field names are those of Coil, so that moving
//! over is an import.
//!
//! A pool is cut into blocks of 2^`blockSizeBits` addresses, numbered from 0 over all its subnets in
//! their order. So subnets are only ever appended, and the size of a block never changes.
//!
//! An API server refuses what its schema can say (`networks`), and one that knows CEL also what the
//! rules here say. The rules use no function for networks: those are known from Kubernetes 1.31 on, and
//! an older server would refuse the definition. An older one lets more pass, and none sees that two
//! pools overlap; `net` looks at all of it before it claims, and says so in the pool's conditions.

#![allow(unreachable_pub, reason = "KubeSchema repeats the type inside a function")]

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use kube::{CustomResource, KubeSchema, ResourceExt};
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Condition, field, networks};
use crate::store::{Invalid, Kind};

/// A pool's name is a namespace's annotation, and the beginning of its blocks' names.
const LONGEST_NAME: usize = 63;
/// The most subnets of a pool; the CEL rule that compares them has each of these numbers in it.
const MOST_SUBNETS: usize = 16;
/// The binary logarithm of the largest block's size: 65,536 addresses are more than a node has pods.
pub const MOST_BLOCK_BITS: u8 = 16;
/// The binary logarithm of the largest subnet's size: with 16,777,216 addresses, IPv4's `/8` or IPv6's
/// `/104`, blocks can be counted, and a pool's addresses too.
const MOST_HOST_BITS: u8 = 24;
/// The most networks that are never masqueraded to.
const MOST_NEVER: usize = 64;
/// A network of either family.
const NETWORK: &str = "^[0-9a-fA-F:.]+/[0-9]{1,3}$";
const LONGEST_NETWORK: usize = 43;
const PORTS: &str = "^[0-9]{1,5}-[0-9]{1,5}$";
/// How many nodes a status lists; it counts all of them.
pub const MOST_NODES: usize = 256;

/// The rules of a pool, as an API server with CEL holds them. Each is also said by `check`, with the
/// field and what to write instead.
const APPENDED: &str = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15].all(i, i >= oldSelf.size() || (i < self.size() && self[i] == oldSelf[i]))";
const SAME_FAMILIES: &str =
    "self.all(s, has(s.ipv4) == has(self[0].ipv4) && has(s.ipv6) == has(self[0].ipv6))";
const ROOM_FOR_A_BLOCK: &str = "self.subnets.all(s, (!has(s.ipv4) || 32 - int(s.ipv4.substring(s.ipv4.indexOf('/') + 1)) >= self.blockSizeBits) && (!has(s.ipv6) || 128 - int(s.ipv6.substring(s.ipv6.indexOf('/') + 1)) >= self.blockSizeBits))";

/// Where pods' addresses come from.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[kube(
    group = "fairlead.dev",
    version = "v1alpha1",
    kind = "AddressPool",
    doc = "Where pods' addresses come from.",
    category = "fairlead",
    shortname = "fap",
    status = "AddressPoolStatus",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.size() <= 63").message("a pool's name has 63 characters at most"),
    printcolumn = r#"{"name":"Bits","type":"integer","jsonPath":".spec.blockSizeBits"}"#,
    printcolumn = r#"{"name":"Used","type":"integer","jsonPath":".status.used"}"#,
    printcolumn = r#"{"name":"Free","type":"integer","jsonPath":".status.free"}"#,
    printcolumn = r#"{"name":"Claimed","type":"integer","jsonPath":".status.claimed"}"#,
    printcolumn = r#"{"name":"Blocks","type":"integer","jsonPath":".status.blocks"}"#,
    printcolumn = r#"{"name":"Nodes","type":"integer","jsonPath":".status.nodes"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Why","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].message","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(ROOM_FOR_A_BLOCK).message("a subnet must have room for a block of 2^blockSizeBits addresses"))]
pub struct AddressPoolSpec {
    /// The size of a block: it has 2 to the power of this many addresses. It never changes.
    #[serde(default = "block_size_bits")]
    #[schemars(range(min = 0, max = MOST_BLOCK_BITS))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("the size of a block never changes: make another pool"))]
    pub block_size_bits: u8,
    /// The subnets that pods' addresses are taken from, all with the same address families. More may be
    /// appended; none may be changed or taken away.
    #[schemars(length(min = 1, max = MOST_SUBNETS))]
    #[x_kube(validation = Rule::new(APPENDED).message("subnets are only ever appended: pods may have addresses of those that are there"))]
    #[x_kube(validation = Rule::new(SAME_FAMILIES).message("all subnets of a pool have the same families: pods of one pool are alike"))]
    pub subnets: Vec<Subnet>,
    /// Has connections that leave the pod network carry the node's address. Without it they carry the
    /// pod's own, which routers outside then have to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub masquerade: Option<Masquerade>,
    /// How packets to the pool's pods come from one node to another: direct, as they are, which takes a
    /// network that routes them; vxlan, inside UDP packets between the nodes; auto, direct where two nodes
    /// share a subnet and vxlan elsewhere. May be changed; pods keep their MTU until they are made anew.
    #[serde(default, skip_serializing_if = "Overlay::is_direct")]
    pub overlay: Overlay,
}

/// How packets come from one node to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Overlay {
    #[default]
    Direct,
    Auto,
    Vxlan,
}

impl Overlay {
    pub fn is_direct(&self) -> bool {
        *self == Self::Direct
    }
}

/// Which connections of a pool's pods carry their node's address. Those to addresses of any pool never
/// do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Masquerade {
    /// Networks to which pods talk with their own addresses, such as 192.168.0.0/16: the nodes' own
    /// network, or those of routers that know the pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MOST_NEVER),
        inner(length(min = 1, max = LONGEST_NETWORK), regex(pattern = NETWORK))
    )]
    pub never: Vec<String>,
    /// The ports that TCP and UDP connections get, such as 32768-60999; without it, 1024 to 65535.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 11), regex(pattern = PORTS))]
    pub ports: Option<String>,
}

/// A pool's masquerading as values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MasqueradeRule {
    pub never: Vec<IpNet>,
    pub ports: Option<(u16, u16)>,
}

/// An IPv4 network, an IPv6 network, or one of each with as many addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[x_kube(validation = Rule::new(networks::EITHER).message("at least one of ipv4 and ipv6 says which addresses"))]
#[x_kube(validation = Rule::new(networks::SAME_SIZE).message("ipv4 and ipv6 must have as many addresses as each other: the prefix of ipv6 is longer by 96"))]
#[x_kube(validation = Rule::new(networks::IPV4_NO_HOST_BITS).message("ipv4 has bits set after its prefix"))]
#[x_kube(validation = Rule::new(networks::IPV6_NO_HOST_BITS).message("ipv6 has bits set after its prefix"))]
#[x_kube(validation = Rule::new(networks::IPV4_FOR_PODS).message("ipv4 is reserved (this network, loopback, one link, multicast), not for pods"))]
pub struct Subnet {
    /// An IPv4 network, such as 10.64.0.0/16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = networks::LONGEST_IPV4), regex(pattern = networks::IPV4))]
    pub ipv4: Option<String>,
    /// An IPv6 network, such as fd00:64::/112. With an IPv4 network beside it, it has as many addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = networks::LONGEST_IPV6), regex(pattern = networks::IPV6))]
    pub ipv6: Option<String>,
}

/// How the pool is used, as the leading controller last saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressPoolStatus {
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The number of blocks in the pool.
    #[serde(default)]
    pub blocks: u64,
    /// The number of blocks that nodes have claimed.
    #[serde(default)]
    pub claimed: u64,
    /// The number of addresses that pods have, as their nodes last said.
    #[serde(default)]
    pub used: u64,
    /// The number of addresses that no pod has, in claimed blocks or not.
    #[serde(default)]
    pub free: u64,
    /// The number of nodes that have blocks of the pool.
    #[serde(default)]
    pub nodes: u64,
    /// The nodes with the most blocks.
    #[serde(default)]
    #[schemars(length(max = MOST_NODES))]
    pub per_node: Vec<NodeBlocks>,
    /// The conditions Ready, Exhausted and Consistent.
    #[serde(default)]
    #[schemars(length(max = field::MOST_CONDITIONS))]
    pub conditions: Vec<Condition>,
}

/// The blocks and addresses that one node has of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct NodeBlocks {
    #[schemars(length(max = field::LONGEST_NAME))]
    pub node: String,
    pub blocks: u64,
    pub used: u64,
}

/// A subnet as networks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    pub ipv4: Option<Ipv4Net>,
    pub ipv6: Option<Ipv6Net>,
}

impl Networks {
    /// The number of host bits, which is the same for both families. None where there is no network.
    pub fn host_bits(&self) -> Option<u8> {
        let ipv4 = self.ipv4.map(|net| 32 - net.prefix_len());
        ipv4.or_else(|| self.ipv6.map(|net| 128 - net.prefix_len()))
    }

    pub fn overlaps(&self, other: &Self) -> bool {
        let ipv4 = self.ipv4.zip(other.ipv4).is_some_and(|(a, b)| overlap(a.into(), b.into()));
        ipv4 || self.ipv6.zip(other.ipv6).is_some_and(|(a, b)| overlap(a.into(), b.into()))
    }

    /// Whether all of `other` is in this subnet.
    pub fn contains(&self, other: &Self) -> bool {
        let within = |mine: Option<IpNet>, theirs: Option<IpNet>| match (mine, theirs) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(mine), Some(theirs)) => mine.contains(&theirs),
        };
        within(self.ipv4.map(Into::into), other.ipv4.map(Into::into))
            && within(self.ipv6.map(Into::into), other.ipv6.map(Into::into))
    }

    fn all(&self) -> impl Iterator<Item = IpNet> {
        self.ipv4.map(IpNet::from).into_iter().chain(self.ipv6.map(IpNet::from))
    }
}

impl std::fmt::Display for Networks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, net) in self.all().enumerate() {
            write!(f, "{}{net}", if i == 0 { "" } else { " and " })?;
        }
        Ok(())
    }
}

fn overlap(a: IpNet, b: IpNet) -> bool {
    a.contains(&b) || b.contains(&a)
}

fn block_size_bits() -> u8 {
    5
}

impl AddressPoolSpec {
    pub fn new(block_size_bits: u8, subnets: Vec<Subnet>) -> Self {
        Self { block_size_bits, subnets, masquerade: None, overlay: Overlay::Direct }
    }

    /// How the pool's pods are masqueraded, or everything that is wrong with it.
    pub fn masquerade(&self) -> Result<Option<MasqueradeRule>, Invalid> {
        let mut problems = Invalid::default();
        let rule = self.masquerade.as_ref().map(|masquerade| masquerade.read(&mut problems));
        problems.into_result().map(|()| rule)
    }

    /// The subnets as networks, or everything that is wrong with them.
    pub fn networks(&self) -> Result<Vec<Networks>, Invalid> {
        let mut problems = Invalid::default();
        let networks = self.read(&mut problems);
        problems.into_result().map(|()| networks)
    }

    fn read(&self, problems: &mut Invalid) -> Vec<Networks> {
        let Self { block_size_bits, subnets, .. } = self;
        if *block_size_bits > MOST_BLOCK_BITS {
            let problem = format!("is {block_size_bits}; must be 0 to {MOST_BLOCK_BITS}");
            problems.add("spec.blockSizeBits", problem);
        }
        if subnets.is_empty() {
            problems.add("spec.subnets", "needs at least one subnet, such as ipv4: 10.64.0.0/16");
        }
        field::at_most(problems, "spec.subnets", subnets.len(), MOST_SUBNETS);
        let mut read = Vec::<Networks>::with_capacity(subnets.len());
        for (i, subnet) in subnets.iter().enumerate() {
            let at = format!("spec.subnets[{i}]");
            let networks = read_subnet(problems, &at, subnet, *block_size_bits);
            if let Some(first) = read.first()
                && let (Some(first), Some(this)) = (families(first), families(&networks))
                && first != this
            {
                let problem =
                    format!("has {this}, and subnets[0] {first}: pods of one pool are alike");
                problems.add(&at, problem);
            }
            for (j, other) in read.iter().enumerate().filter(|(_, other)| other.overlaps(&networks))
            {
                problems.add(&at, format!("{networks} overlaps subnets[{j}], {other}"));
            }
            read.push(networks);
        }
        read
    }
}

impl Masquerade {
    fn read(&self, problems: &mut Invalid) -> MasqueradeRule {
        let Self { never, ports } = self;
        field::at_most(problems, "spec.masquerade.never", never.len(), MOST_NEVER);
        let mut rule = MasqueradeRule::default();
        for (i, written) in never.iter().enumerate() {
            let at = format!("spec.masquerade.never[{i}]");
            match written.parse::<IpNet>() {
                Ok(net) if net.addr() == net.network() => rule.never.push(net),
                Ok(net) => {
                    let meant = net.trunc();
                    problems
                        .add(at, format!("{net} has bits set after its prefix; {meant} has not"));
                }
                Err(_) => {
                    let problem = format!("{written:?} is not a network such as 192.168.0.0/16");
                    problems.add(at, problem);
                }
            }
        }
        if let Some(written) = ports {
            let read = written.split_once('-').and_then(|(first, last)| {
                let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
                (0 < first && first <= last).then_some((first, last))
            });
            rule.ports = read;
            if read.is_none() {
                let problem = format!("{written:?} is not a range of ports such as 32768-60999");
                problems.add("spec.masquerade.ports", problem);
            }
        }
        rule
    }
}

fn families(networks: &Networks) -> Option<&'static str> {
    match (networks.ipv4, networks.ipv6) {
        (Some(_), Some(_)) => Some("both families"),
        (Some(_), None) => Some("IPv4 alone"),
        (None, Some(_)) => Some("IPv6 alone"),
        (None, None) => None,
    }
}

#[expect(clippy::unwrap_used, reason = "constants; a test reads every pattern there is")]
static IPV4: LazyLock<Regex> = LazyLock::new(|| Regex::new(networks::IPV4).unwrap());
#[expect(clippy::unwrap_used, reason = "constants; a test reads every pattern there is")]
static IPV6: LazyLock<Regex> = LazyLock::new(|| Regex::new(networks::IPV6).unwrap());

fn read_subnet(problems: &mut Invalid, at: &str, subnet: &Subnet, block_bits: u8) -> Networks {
    let Subnet { ipv4, ipv6 } = subnet;
    if ipv4.is_none() && ipv6.is_none() {
        problems.add(at, "has neither ipv4 nor ipv6: give at least one network");
    }
    let mut read = |family: &str, written: &Option<String>, example: &str| -> Option<IpNet> {
        let written = written.as_deref()?;
        let field = format!("{at}.{family}");
        let parsed = written.parse::<IpNet>().ok();
        let right = |net: &IpNet| matches!(net, IpNet::V4(_)) == (family == "ipv4");
        let Some(net) = parsed.filter(right) else {
            problems.add(field, format!("{written:?} is not a network such as {example}"));
            return None;
        };
        if net.addr() != net.network() {
            let meant = net.trunc();
            problems.add(field, format!("{net} has bits set after its prefix; {meant} has not"));
            return None;
        }
        if let Some((taken, what)) = reserved().into_iter().find(|(taken, _)| overlap(*taken, net))
        {
            problems
                .add(field, format!("{net} overlaps {taken}, which is for {what}, not for pods"));
            return None;
        }
        let bits = net.max_prefix_len() - net.prefix_len();
        if bits > MOST_HOST_BITS {
            let longest = net.max_prefix_len() - MOST_HOST_BITS;
            let problem =
                format!("{net} has 2^{bits} addresses; 2^{MOST_HOST_BITS} at most, a /{longest}");
            problems.add(field, problem);
            return None;
        }
        if bits < block_bits {
            let problem = format!(
                "{net} has 2^{bits} addresses and a block 2^{block_bits}: it has no room for one"
            );
            problems.add(field, problem);
            return None;
        }
        // What the schema takes and what is taken here must be the same.
        let pattern = if family == "ipv4" { &IPV4 } else { &IPV6 };
        if !pattern.is_match(written) {
            problems.add(field, format!("{written:?} must be written as {net}"));
            return None;
        }
        Some(net)
    };
    let ipv4 = read("ipv4", ipv4, "10.64.0.0/16");
    let ipv6 = read("ipv6", ipv6, "fd00:64::/112");
    let networks = Networks {
        ipv4: ipv4.and_then(|net| if let IpNet::V4(net) = net { Some(net) } else { None }),
        ipv6: ipv6.and_then(|net| if let IpNet::V6(net) = net { Some(net) } else { None }),
    };
    if let (Some(ipv4), Some(ipv6)) = (networks.ipv4, networks.ipv6) {
        let bits = 32 - ipv4.prefix_len();
        if bits != 128 - ipv6.prefix_len() {
            let needed = 128 - bits;
            let problem = format!(
                "{ipv4} and {ipv6} must have as many addresses as each other: with this ipv4, ipv6 \
                 is a /{needed}"
            );
            problems.add(at, problem);
        }
    }
    networks
}

/// The networks of which no pod can have an address, each with the reason.
fn reserved() -> [(IpNet, &'static str); 8] {
    let v4 = |a, b, prefix| IpNet::from(Ipv4Net::new_assert(Ipv4Addr::new(a, b, 0, 0), prefix));
    let v6 = |first, prefix| {
        IpNet::from(Ipv6Net::new_assert(Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 0), prefix))
    };
    [
        (v4(0, 0, 8), "\"this network\""),
        (v4(127, 0, 8), "loopback"),
        (v4(169, 254, 16), "one link"),
        (v4(224, 0, 4), "multicast"),
        (v4(240, 0, 4), "nobody"),
        // Also IPv4 written as IPv6.
        (v6(0, 16), "loopback and IPv4"),
        (v6(0xfe80, 10), "one link"),
        (v6(0xff00, 8), "multicast"),
    ]
}

impl Kind for AddressPool {
    const NAME: &'static str = "AddressPool";
    const NAMESPACED: bool = false;

    fn check(&self) -> Result<(), Invalid> {
        let mut problems = Invalid::default();
        if self.name_any().len() > LONGEST_NAME {
            problems.add("metadata.name", format!("has {LONGEST_NAME} characters at most"));
        }
        self.spec.read(&mut problems);
        if let Some(masquerade) = &self.spec.masquerade {
            masquerade.read(&mut problems);
        }
        problems.into_result()
    }

    /// Checks the status alone: when the spec is not valid, the status says so.
    fn check_status(&self) -> Result<(), Invalid> {
        let mut problems = Invalid::default();
        if let Some(AddressPoolStatus { per_node, conditions, .. }) = &self.status {
            field::at_most(&mut problems, "status.perNode", per_node.len(), MOST_NODES);
            for (i, node) in per_node.iter().enumerate() {
                let at = format!("status.perNode[{i}].node");
                field::no_longer(&mut problems, &at, &node.node, field::LONGEST_NAME);
            }
            field::conditions(&mut problems, conditions);
        }
        problems.into_result()
    }
}

#[cfg(test)]
mod tests;
