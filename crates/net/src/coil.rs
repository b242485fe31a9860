//! What Coil has (`coil.cybozu.com/v2`), as objects of ours. Pure: documents in, objects and a report out.
//!
//! ```text
//! AddressPool  ──► AddressPool of the same subnets and size of blocks
//! AddressBlock ──► AddressBlock of the same addresses, claimed for the same node
//! Egress       ──► Egress of the same destinations
//!                  report: kept, changed, refused; one line for each document
//! ```
//!
//! Invariants:
//! 1. An address that a pod of Coil has is of a block that is claimed for the pod's node, or its block is in the
//!    report as refused: no other node can claim it unseen.
//! 2. The same documents make the same objects: a second import changes nothing.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use objects::Kind;
use objects::kinds::{
    AddressBlock, AddressBlockSpec, AddressPool, AddressPoolSpec, Egress, EgressSpec, Subnet,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::pool::Pool;

/// The group and version of Coil's kinds.
pub const API_VERSION: &str = "coil.cybozu.com/v2";
const POOL: &str = "coil.cybozu.com/pool";
const NODE: &str = "coil.cybozu.com/node";
/// The container of an egress pod that translates addresses, with Coil and here.
const CONTAINER: &str = "egress";
/// Fields of that container that say how Coil's own program is run.
const COILS_OWN: [&str; 10] = [
    "image",
    "command",
    "args",
    "env",
    "envFrom",
    "ports",
    "livenessProbe",
    "readinessProbe",
    "securityContext",
    "volumeMounts",
];
/// The size of blocks of a pool that does not say it, with Coil and here.
const BLOCK_SIZE_BITS: u64 = 5;

/// What was imported, and what became of everything that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imported {
    pub pools: Vec<AddressPool>,
    pub blocks: Vec<AddressBlock>,
    pub egresses: Vec<Egress>,
    pub report: Vec<Finding>,
}

/// What became of one document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub what: String,
    pub name: String,
    pub outcome: Outcome,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// It means what it meant.
    Kept,
    /// It is not quite what it was; why says how.
    Changed,
    /// It is not carried over; why says what to do.
    Refused,
}

/// What an import must know of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// The addresses of each node that is there; empty if nodes are not known.
    pub nodes: BTreeMap<String, Vec<IpAddr>>,
    /// Pools of ours that are there.
    pub pools: Vec<AddressPool>,
}

/// Takes documents of Coil's kinds. What is of another kind is refused, each by itself.
pub fn import(documents: &[Value], cluster: &Cluster) -> Imported {
    let mut imported = Imported::default();
    // Blocks are judged by their pools, wherever in the documents those are.
    for kind in ["AddressPool", "AddressBlock", "Egress"] {
        for document in documents.iter().filter(|it| is(it, kind)) {
            let name = name_of(document);
            let (outcome, why) = match kind {
                "AddressPool" => imported.pool(document),
                "AddressBlock" => imported.block(document, cluster),
                _ => imported.egress(document),
            };
            imported.report.push(Finding { what: kind.to_owned(), name, outcome, why });
        }
    }
    let known =
        |it: &&Value| ["AddressPool", "AddressBlock", "Egress"].iter().any(|kind| is(it, kind));
    for document in documents.iter().filter(|it| !known(it)) {
        let what = text(document, "/kind").unwrap_or("document").to_owned();
        let (outcome, why) = match is(document, "BlockRequest") {
            true => (Outcome::Kept, "nothing waits for blocks here: nodes claim them".to_owned()),
            false => {
                let version = text(document, "/apiVersion").unwrap_or("no version");
                let why = format!(
                    "it is of {version}: AddressPool, AddressBlock and Egress of {API_VERSION} are imported"
                );
                (Outcome::Refused, why)
            }
        };
        imported.report.push(Finding { what, name: name_of(document), outcome, why });
    }
    imported
}

type Judged = (Outcome, String);

fn kept() -> Judged {
    (Outcome::Kept, String::new())
}

fn refused(why: impl Into<String>) -> Judged {
    (Outcome::Refused, why.into())
}

fn is(document: &Value, kind: &str) -> bool {
    document["apiVersion"] == API_VERSION && document["kind"] == kind
}

fn text<'a>(document: &'a Value, path: &str) -> Option<&'a str> {
    document.pointer(path).and_then(Value::as_str)
}

fn name_of(document: &Value) -> String {
    let name = text(document, "/metadata/name").unwrap_or("(without a name)");
    match text(document, "/metadata/namespace") {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

fn is_leaving(document: &Value) -> bool {
    document.pointer("/metadata/deletionTimestamp").is_some_and(|it| !it.is_null())
}

impl Imported {
    fn pool(&mut self, document: &Value) -> Judged {
        if is_leaving(document) {
            return refused("it is being deleted");
        }
        let spec = &document["spec"];
        let bits = spec["blockSizeBits"].as_u64().unwrap_or(BLOCK_SIZE_BITS);
        let Ok(bits) = u8::try_from(bits) else {
            return refused(format!("blockSizeBits is {bits}: no block is so large"));
        };
        let mut corrected = Vec::new();
        let mut network = |subnet: &Value, family: &str| -> Option<String> {
            let said = subnet[family].as_str()?;
            let net = said.parse::<IpNet>().ok().map(|net| net.trunc().to_string());
            if let Some(net) = net.filter(|net| net != said) {
                corrected.push(format!("{said} is {net}"));
                return Some(net);
            }
            Some(said.to_owned())
        };
        let subnets = spec["subnets"].as_array().into_iter().flatten();
        let subnets = subnets
            .map(|subnet| Subnet { ipv4: network(subnet, "ipv4"), ipv6: network(subnet, "ipv6") })
            .collect();
        let name = text(document, "/metadata/name").unwrap_or_default();
        let pool = AddressPool::new(name, AddressPoolSpec::new(bits, subnets));
        if let Err(problems) = pool.check() {
            return refused(format!("{problems}; blocks of it are refused too"));
        }
        self.pools.push(pool);
        match corrected.is_empty() {
            true => kept(),
            false => (Outcome::Changed, corrected.join("; ")),
        }
    }

    fn block(&mut self, document: &Value, cluster: &Cluster) -> Judged {
        if is_leaving(document) {
            return refused("it is being deleted: import again when it is gone");
        }
        let label = |key: &str| document["metadata"]["labels"][key].as_str();
        let Some(node) = label(NODE).filter(|node| !node.is_empty()) else {
            return refused(format!("its label {NODE} names no node"));
        };
        let Some(pool) = label(POOL).filter(|pool| !pool.is_empty()) else {
            return refused(format!("its label {POOL} names no pool"));
        };
        if !cluster.nodes.is_empty() && !cluster.nodes.contains_key(node) {
            return refused(format!("there is no node {node}: nobody has its addresses"));
        }
        let Some(index) = document["index"].as_u64().and_then(|it| u32::try_from(it).ok()) else {
            return refused("it has no index");
        };
        let found = self.pools.iter().chain(&cluster.pools);
        let mut found = found.filter(|it| it.metadata.name.as_deref() == Some(pool));
        let Some(found) = found.find_map(|it| Pool::of(it).ok()) else {
            return refused(format!("there is no pool {pool}: import it with its blocks"));
        };
        let Some(networks) = found.block(index) else {
            return refused(format!("pool {pool} has no block {index}"));
        };
        let mut wrong = Vec::new();
        for (family, ours) in
            [("ipv4", networks.ipv4.map(IpNet::V4)), ("ipv6", networks.ipv6.map(IpNet::V6))]
        {
            let theirs = document[family].as_str().map(str::parse::<IpNet>);
            match (theirs, ours) {
                (None, None) => {}
                (Some(Ok(theirs)), Some(ours)) if theirs == ours => {}
                (theirs, ours) => {
                    let told =
                        |net: Option<IpNet>| net.map_or("nothing".to_owned(), |it| it.to_string());
                    let theirs = theirs.and_then(Result::ok);
                    wrong.push(format!(
                        "{family} is {}, and {} by its pool",
                        told(theirs),
                        told(ours)
                    ));
                }
            }
        }
        if !wrong.is_empty() {
            return refused(format!(
                "{}: move its pods to other addresses first (delete them after the pool is set right)",
                wrong.join("; ")
            ));
        }
        let name = AddressBlock::name_of(pool, index);
        let spec = AddressBlockSpec {
            pool: pool.to_owned(),
            index,
            node: node.to_owned(),
            ipv4: networks.ipv4,
            ipv6: networks.ipv6,
            node_addresses: cluster.nodes.get(node).cloned().unwrap_or_default(),
        };
        let block = AddressBlock::new(&name, spec);
        if let Err(problems) = block.check() {
            return refused(problems.to_string());
        }
        let renamed = text(document, "/metadata/name") != Some(name.as_str());
        self.blocks.push(block);
        match renamed {
            true => (Outcome::Changed, format!("its name is {name}, by its pool and its index")),
            false => kept(),
        }
    }

    fn egress(&mut self, document: &Value) -> Judged {
        if is_leaving(document) {
            return refused("it is being deleted");
        }
        let Some(namespace) = text(document, "/metadata/namespace") else {
            return refused("it has no namespace");
        };
        let mut spec = document["spec"].clone();
        if !spec.is_object() {
            return refused("it has no spec");
        }
        let mut changes = Vec::new();
        let replicas = spec["replicas"].as_i64();
        if let Some(nets) = spec.pointer_mut("/destinations").and_then(Value::as_array_mut) {
            for net in nets {
                let said = net.as_str().unwrap_or_default().to_owned();
                if let Some(exact) = said.parse::<IpNet>().ok().map(|it| it.trunc().to_string())
                    && exact != said
                {
                    changes.push(format!("{said} is {exact}"));
                    *net = exact.into();
                }
            }
        }
        let template = spec.pointer_mut("/template/spec").and_then(Value::as_object_mut);
        if let Some(template) = template {
            changes.extend(without_coils_own(template));
        }
        let spec: EgressSpec = match read(spec) {
            Ok(spec) => spec,
            Err(why) => return refused(why),
        };
        if spec.fou_source_port_auto {
            changes.push("fouSourcePortAuto does nothing: the tunnel's port always follows from the connection".to_owned());
        }
        if spec.session_affinity_config.is_some() {
            changes.push(
                "sessionAffinityConfig does nothing: a client stays as long as its replica does"
                    .to_owned(),
            );
        }
        if replicas == Some(0) {
            changes.push("it has no replicas: connections are dropped".to_owned());
        }
        let mut egress = Egress::new(text(document, "/metadata/name").unwrap_or_default(), spec);
        egress.metadata.namespace = Some(namespace.to_owned());
        if let Err(problems) = egress.check() {
            return refused(problems.to_string());
        }
        self.egresses.push(egress);
        match changes.is_empty() {
            true => kept(),
            false => (Outcome::Changed, changes.join("; ")),
        }
    }
}

/// Takes out how Coil's program is run in the container that is ours here.
fn without_coils_own(pod: &mut Map<String, Value>) -> Vec<String> {
    let mut taken = Vec::new();
    let containers = pod.get_mut("containers").and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten().filter(|it| it["name"] == CONTAINER) {
        let Some(container) = container.as_object_mut() else { continue };
        for field in COILS_OWN {
            if container.remove(field).is_some() {
                taken.push(field);
            }
        }
    }
    let account = pod.get("serviceAccountName").and_then(Value::as_str);
    if account.is_some_and(|account| account.contains("coil")) {
        pod.remove("serviceAccountName");
        taken.push("serviceAccountName");
    }
    match taken.is_empty() {
        true => Vec::new(),
        false => vec![format!("{} of Coil's own program is left out", taken.join(", "))],
    }
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| format!("it cannot be read: {error}"))
}

#[cfg(test)]
mod tests;
