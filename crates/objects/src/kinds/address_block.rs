//! `AddressBlock`: a block of a pool, and the node that has claimed it. A node claims a block by creating
//! it (its name is its pool's and its number, so the store decides between two nodes) and gives it back
//! by deleting it. A block carries what other nodes need to route to it.

#![allow(unreachable_pub, reason = "KubeSchema repeats the type inside a function")]

use std::net::IpAddr;

use ipnet::{Ipv4Net, Ipv6Net};
use kube::{CustomResource, KubeSchema, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::address_pool::Networks;
use super::{field, networks};
use crate::store::{Invalid, Kind};

/// The most addresses of a node: it has one of each family, and a few where it has several networks.
const MOST_NODE_ADDRESSES: usize = 16;
const LONGEST_TROUBLE: usize = 4096;
/// The most characters of a pool's name.
const LONGEST_POOL: usize = 63;
/// The most characters of an address of either family.
const ADDRESS: &str = "^[0-9a-fA-F:.]+$";
const LONGEST_ADDRESS: usize = 45;
/// `POOL-INDEX`. Put together and compared, it would cost more than a server allows: how long the text
/// of a number is, its estimate does not know. So the name is taken apart instead; no zeros go before
/// the number.
const NAMED_BY_POOL_AND_INDEX: &str = "self.metadata.name.startsWith(self.spec.pool + '-') && int(self.metadata.name.substring(self.spec.pool.size() + 1)) == self.spec.index && (self.spec.index > 0 ? !self.metadata.name.startsWith(self.spec.pool + '-0') : self.metadata.name.size() == self.spec.pool.size() + 2)";
const STAYS: &str = "self.pool == oldSelf.pool && self.index == oldSelf.index && self.node == oldSelf.node && has(self.ipv4) == has(oldSelf.ipv4) && (!has(self.ipv4) || self.ipv4 == oldSelf.ipv4) && has(self.ipv6) == has(oldSelf.ipv6) && (!has(self.ipv6) || self.ipv6 == oldSelf.ipv6)";

/// A block of addresses that a node has claimed from a pool.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[kube(
    group = "fairlead.dev",
    version = "v1alpha1",
    kind = "AddressBlock",
    doc = "A block of addresses that a node has claimed from a pool.",
    category = "fairlead",
    shortname = "fab",
    status = "AddressBlockStatus",
    derive = "PartialEq",
    validation = Rule::new(NAMED_BY_POOL_AND_INDEX).message("a block is named by its pool and its number: POOL-INDEX"),
    printcolumn = r#"{"name":"Pool","type":"string","jsonPath":".spec.pool"}"#,
    printcolumn = r#"{"name":"Node","type":"string","jsonPath":".spec.node"}"#,
    printcolumn = r#"{"name":"IPv4","type":"string","jsonPath":".spec.ipv4"}"#,
    printcolumn = r#"{"name":"IPv6","type":"string","jsonPath":".spec.ipv6"}"#,
    printcolumn = r#"{"name":"Used","type":"integer","jsonPath":".status.used"}"#,
    printcolumn = r#"{"name":"Free","type":"integer","jsonPath":".status.free"}"#,
    printcolumn = r#"{"name":"Via","type":"string","jsonPath":".spec.nodeAddresses","priority":1}"#,
    printcolumn = r#"{"name":"Trouble","type":"string","jsonPath":".status.trouble","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(STAYS).message("a block changes hands only by being deleted and claimed again"))]
#[x_kube(validation = Rule::new(networks::EITHER).message("at least one of ipv4 and ipv6 says which addresses"))]
#[x_kube(validation = Rule::new(networks::SAME_SIZE).message("ipv4 and ipv6 must have as many addresses as each other: the prefix of ipv6 is longer by 96"))]
#[x_kube(validation = Rule::new(networks::IPV4_NO_HOST_BITS).message("ipv4 has bits set after its prefix"))]
#[x_kube(validation = Rule::new(networks::IPV6_NO_HOST_BITS).message("ipv6 has bits set after its prefix"))]
pub struct AddressBlockSpec {
    #[schemars(length(min = 1, max = LONGEST_POOL), regex(pattern = field::NAME))]
    pub pool: String,
    /// The block's number in its pool, counted from 0 over the pool's subnets.
    pub index: u32,
    /// The node that has claimed the block.
    #[schemars(length(min = 1, max = field::LONGEST_NAME), regex(pattern = field::NAME))]
    pub node: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", length(max = networks::LONGEST_IPV4), regex(pattern = networks::IPV4))]
    pub ipv4: Option<Ipv4Net>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", length(max = networks::LONGEST_IPV6), regex(pattern = networks::IPV6))]
    pub ipv6: Option<Ipv6Net>,
    /// The node's addresses, to which other nodes route the block's addresses.
    #[serde(default)]
    #[schemars(
        with = "Vec<String>",
        length(max = MOST_NODE_ADDRESSES),
        inner(length(min = 1, max = LONGEST_ADDRESS), regex(pattern = ADDRESS))
    )]
    pub node_addresses: Vec<IpAddr>,
}

/// How the block is used, as its node says from time to time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct AddressBlockStatus {
    /// The number of addresses that pods have.
    #[serde(default)]
    pub used: u32,
    #[serde(default)]
    pub free: u32,
    /// What is wrong with the node's part of the pool, a sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_TROUBLE))]
    pub trouble: Option<String>,
}

impl AddressBlock {
    /// The name of a block.
    pub fn name_of(pool: &str, index: u32) -> String {
        format!("{pool}-{index}")
    }
}

impl AddressBlockSpec {
    pub fn networks(&self) -> Networks {
        Networks { ipv4: self.ipv4, ipv6: self.ipv6 }
    }
}

impl Kind for AddressBlock {
    const NAME: &'static str = "AddressBlock";
    const NAMESPACED: bool = false;

    fn check(&self) -> Result<(), Invalid> {
        let mut problems = Invalid::default();
        let AddressBlockSpec { pool, index, node, ipv4, ipv6, node_addresses } = &self.spec;
        field::name_within(&mut problems, "spec.pool", pool, LONGEST_POOL);
        field::name(&mut problems, "spec.node", node);
        let name = AddressBlock::name_of(pool, *index);
        if self.name_any() != name {
            problems.add("metadata.name", format!("must be {name}, by the pool and the index"));
        }
        if ipv4.is_none() && ipv6.is_none() {
            problems.add("spec", "has neither ipv4 nor ipv6");
        }
        if ipv4.is_some_and(|net| net.addr() != net.network()) {
            problems.add("spec.ipv4", "has bits set after its prefix");
        }
        if ipv6.is_some_and(|net| net.addr() != net.network()) {
            problems.add("spec.ipv6", "has bits set after its prefix");
        }
        if let (Some(ipv4), Some(ipv6)) = (ipv4, ipv6)
            && 32 - ipv4.prefix_len() != 128 - ipv6.prefix_len()
        {
            problems.add("spec", "ipv4 and ipv6 must have as many addresses as each other");
        }
        let count = node_addresses.len();
        field::at_most(&mut problems, "spec.nodeAddresses", count, MOST_NODE_ADDRESSES);
        problems.into_result()
    }

    fn check_status(&self) -> Result<(), Invalid> {
        let mut problems = Invalid::default();
        let trouble = self.status.as_ref().and_then(|status| status.trouble.as_deref());
        let trouble = trouble.unwrap_or_default();
        field::no_longer(&mut problems, "status.trouble", trouble, LONGEST_TROUBLE);
        problems.into_result()
    }
}

#[cfg(test)]
mod tests;
