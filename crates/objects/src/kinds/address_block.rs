//! `AddressBlock`: a block of a pool, and the node that has it. It is claimed by creating it (its name
//! is its pool's and its number, so the store decides between two nodes) and given back by deleting
//! it. It carries what other nodes need to route to it.

#![allow(unreachable_pub, reason = "KubeSchema repeats the type inside a function")]

use std::net::IpAddr;

use ipnet::{Ipv4Net, Ipv6Net};
use kube::{CustomResource, KubeSchema, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::address_pool::Networks;
use super::field;
use crate::store::{Invalid, Kind};

/// A node has one address of each family, and a few at most where it has several networks.
const MOST_NODE_ADDRESSES: usize = 16;
const LONGEST_TROUBLE: usize = 4096;

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
    validation = Rule::new("self.metadata.name == self.spec.pool + '-' + string(self.spec.index)").message("a block is named by its pool and its number: POOL-INDEX"),
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
#[x_kube(validation = Rule::new("self.pool == oldSelf.pool && self.index == oldSelf.index && self.node == oldSelf.node && has(self.ipv4) == has(oldSelf.ipv4) && (!has(self.ipv4) || self.ipv4 == oldSelf.ipv4) && has(self.ipv6) == has(oldSelf.ipv6) && (!has(self.ipv6) || self.ipv6 == oldSelf.ipv6)").message("a block changes hands only by being deleted and claimed again"))]
pub struct AddressBlockSpec {
    #[schemars(length(min = 1, max = 63))]
    pub pool: String,
    /// Which block of the pool, counted over its subnets from 0.
    pub index: u32,
    /// Who has it.
    #[schemars(length(min = 1, max = 253))]
    pub node: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", length(max = 18))]
    pub ipv4: Option<Ipv4Net>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", length(max = 43))]
    pub ipv6: Option<Ipv6Net>,
    /// Where the node is reached: routes to the block go there.
    #[serde(default)]
    #[schemars(with = "Vec<String>", length(max = MOST_NODE_ADDRESSES), inner(length(max = 45)))]
    pub node_addresses: Vec<IpAddr>,
}

/// What its node says of it, from time to time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct AddressBlockStatus {
    /// Addresses that pods have.
    #[serde(default)]
    pub used: u32,
    #[serde(default)]
    pub free: u32,
    /// What is wrong with the node's part of the pool, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_TROUBLE))]
    pub trouble: Option<String>,
}

impl AddressBlock {
    /// What a block is called.
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
        field::name(&mut problems, "spec.pool", pool);
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
        if let Some(trouble) = self.status.as_ref().and_then(|status| status.trouble.as_ref())
            && trouble.chars().count() > LONGEST_TROUBLE
        {
            let problem = format!("has more than {LONGEST_TROUBLE} characters");
            problems.add("status.trouble", problem);
        }
        problems.into_result()
    }
}

#[cfg(test)]
mod tests;
