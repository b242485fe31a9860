//! Checks whether Fairlead can be installed into a cluster, without changing it: version, permissions,
//! definitions, nodes, other pod networks, addresses, clocks.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cluster::{Cluster, Error, Reference, Version};
use crate::on_nodes::Ended;
use crate::ready::is_ready;
use crate::record::{Record, RecordError};
use crate::status::controller;

/// The oldest version that was tested, and the oldest that is still maintained.
const OLDEST: u32 = 20;
const USUAL: u32 = 28;
/// The oldest kernel whose nftables and network namespaces have what the agent needs.
const KERNEL: (u32, u32) = (5, 4);
/// A kubelet renews its lease every ten seconds. An older lease means that its clock or the kubelet is
/// wrong.
const SKEW: i64 = 60;
/// The architecture of the image.
const ARCHITECTURE: &str = "amd64";
/// How many names a finding lists.
const NAMED: usize = 5;

/// DaemonSets of other pod networks, and the names of those.
const NETWORKS: [(&str, &str); 12] = [
    ("antrea-agent", "Antrea"),
    ("aws-node", "the Amazon VPC CNI"),
    ("azure-cni", "Azure's CNI"),
    ("calico-node", "Calico"),
    ("canal", "Canal"),
    ("cilium", "Cilium"),
    ("coild", "Coil"),
    ("kindnet", "kindnet"),
    ("kube-flannel-ds", "Flannel"),
    ("kube-router", "kube-router"),
    ("ovnkube-node", "OVN-Kubernetes"),
    ("weave-net", "Weave Net"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Ok,
    /// It can be installed, and the user should know this.
    Warning,
    /// It cannot be installed.
    Failure,
}

/// One finding. The JSON is a contract.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub check: Cow<'static, str>,
    /// The node, if the finding is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    pub verdict: Verdict,
    pub message: String,
}

impl Finding {
    pub fn new(check: &'static str, verdict: Verdict, message: impl Into<String>) -> Self {
        Self { check: Cow::Borrowed(check), node: None, verdict, message: message.into() }
    }
}

/// Checks the cluster for an installation of these objects.
pub async fn check(
    cluster: &Cluster,
    namespace: &str,
    objects: &[Value],
    now: Timestamp,
) -> Result<Vec<Finding>, Error> {
    let version = cluster.version().await?;
    let mut found = vec![of_version(&version)];
    found.push(permissions(cluster, objects).await?);
    found.extend(definitions(cluster, objects).await?);
    found.push(earlier(cluster, namespace).await?);
    let nodes = cluster.list("v1", "Node", None, "").await?;
    found.extend(of_nodes(&nodes));
    if objects.iter().any(makes_network) {
        let daemons = cluster.list("apps/v1", "DaemonSet", None, "").await?;
        let installed =
            found.iter().any(|one| one.check == "earlier" && one.verdict != Verdict::Ok);
        found.push(of_networks(&daemons, &nodes, installed));
        let kubernetes = Reference::new("v1", "Service", Some("default"), "kubernetes");
        let service = cluster.get(&kubernetes).await?;
        found.push(of_addresses(objects, &nodes, service.as_ref()));
    }
    let leases =
        cluster.list("coordination.k8s.io/v1", "Lease", Some("kube-node-lease"), "").await?;
    found.push(of_clocks(&leases, &nodes, now));
    Ok(found)
}

/// Returns the findings of the check that runs on each node.
pub fn of_tasks(ended: Ended) -> Vec<Finding> {
    let mut found = Vec::new();
    for (node, how) in ended {
        let said = how.and_then(|said| {
            serde_json::from_str::<Vec<Finding>>(&said).map_err(|error| format!("{error}: {said}"))
        });
        let findings = said.unwrap_or_else(|why| {
            let message = format!("the node could not be looked at: {why}");
            vec![Finding::new("node", Verdict::Failure, message)]
        });
        let named = |finding| Finding { node: Some(node.clone()), ..finding };
        found.extend(findings.into_iter().map(named));
    }
    found
}

fn of_version(version: &Version) -> Finding {
    let text = &version.text;
    match version.minor {
        minor if minor < OLDEST => Finding::new(
            "version",
            Verdict::Failure,
            format!("Kubernetes {text} is older than 1.{OLDEST}: upgrade the cluster first"),
        ),
        minor if minor < USUAL => Finding::new(
            "version",
            Verdict::Warning,
            format!(
                "Kubernetes {text}: it works, but servers before 1.{USUAL} do not check all that newer ones do (see docs/install.md)"
            ),
        ),
        _ => Finding::new("version", Verdict::Ok, format!("Kubernetes {text}")),
    }
}

async fn permissions(cluster: &Cluster, objects: &[Value]) -> Result<Finding, Error> {
    let kinds: BTreeSet<(&str, &str)> = objects
        .iter()
        .filter_map(|object| Some((object["apiVersion"].as_str()?, object["kind"].as_str()?)))
        .collect();
    let mut missing = Vec::new();
    for (api_version, kind) in &kinds {
        for verb in ["create", "patch"] {
            if !cluster.may(verb, api_version, kind).await? {
                missing.push(format!("{verb} {kind}"));
            }
        }
    }
    Ok(if missing.is_empty() {
        let message = format!("all of the {} kinds may be written", kinds.len());
        Finding::new("permissions", Verdict::Ok, message)
    } else {
        let message = format!(
            "this user may not: {}; use a kubeconfig of a cluster administrator",
            listed(&missing)
        );
        Finding::new("permissions", Verdict::Failure, message)
    })
}

/// Has the server check each definition by a dry run.
async fn definitions(cluster: &Cluster, objects: &[Value]) -> Result<Vec<Finding>, Error> {
    let mut refused = Vec::new();
    let definitions: Vec<_> =
        objects.iter().filter(|object| object["kind"] == "CustomResourceDefinition").collect();
    for definition in &definitions {
        if let Err(error) = cluster.try_out(definition).await {
            refused.push(Finding::new(
                "definitions",
                Verdict::Failure,
                stallproof::sentence(&error),
            ));
        }
    }
    if refused.is_empty() && !definitions.is_empty() {
        let message = format!("the server takes all {}", definitions.len());
        refused.push(Finding::new("definitions", Verdict::Ok, message));
    }
    Ok(refused)
}

async fn earlier(cluster: &Cluster, namespace: &str) -> Result<Finding, Error> {
    let found = match Record::read(cluster, namespace).await {
        Ok(found) => found,
        Err(RecordError::Cluster(error)) => return Err(error),
        Err(damaged) => {
            return Ok(Finding::new("earlier", Verdict::Failure, damaged.to_string()));
        }
    };
    if let Some(record) = found {
        let message = format!("{} is installed: `fairlead upgrade` replaces it", record.version);
        return Ok(Finding::new("earlier", Verdict::Warning, message));
    }
    let deployed = controller(cluster, namespace).await?.unwrap_or_default();
    Ok(match deployed["metadata"]["labels"]["app.kubernetes.io/managed-by"].as_str() {
        Some("Helm") => {
            let message = "Helm has installed it: go on with `helm upgrade`";
            Finding::new("earlier", Verdict::Failure, message)
        }
        _ => Finding::new("earlier", Verdict::Ok, "nothing is installed yet"),
    })
}

fn of_nodes(nodes: &[Value]) -> Vec<Finding> {
    let mut found = Vec::new();
    if nodes.is_empty() {
        found.push(Finding::new("nodes", Verdict::Warning, "there is no node yet"));
        return found;
    }
    let name = |node: &Value| node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let info = |node: &Value, field: &str| {
        node["status"]["nodeInfo"][field].as_str().unwrap_or_default().to_owned()
    };
    let linux: Vec<_> = nodes
        .iter()
        .filter(|node| matches!(info(node, "operatingSystem").as_str(), "linux" | ""))
        .collect();
    let old: Vec<_> = linux
        .iter()
        .filter(|node| kernel(&info(node, "kernelVersion")).is_some_and(|found| found < KERNEL))
        .map(|node| format!("{} ({})", name(node), info(node, "kernelVersion")))
        .collect();
    let other: Vec<_> = linux
        .iter()
        .filter(|node| !matches!(info(node, "architecture").as_str(), ARCHITECTURE | ""))
        .map(|node| format!("{} ({})", name(node), info(node, "architecture")))
        .collect();
    if !old.is_empty() {
        let (major, minor) = KERNEL;
        let message = format!("kernels before {major}.{minor}: {}; upgrade them", listed(&old));
        found.push(Finding::new("nodes", Verdict::Failure, message));
    }
    if !other.is_empty() {
        let message = format!(
            "the image is for {ARCHITECTURE}, and these are not: {}; name an image of your own with --set image.repository",
            listed(&other)
        );
        found.push(Finding::new("nodes", Verdict::Warning, message));
    }
    if found.is_empty() {
        let message = format!("{} with Linux, kernels and architecture fit", linux.len());
        found.push(Finding::new("nodes", Verdict::Ok, message));
    }
    found
}

/// Returns the first two numbers of a kernel's version.
fn kernel(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split(['.', '-', '+']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn makes_network(object: &Value) -> bool {
    object["kind"] == "AddressPool"
}

/// Finds another pod network by its DaemonSet, or by nodes that are Ready, which they are not without one.
fn of_networks(daemons: &[Value], nodes: &[Value], installed: bool) -> Finding {
    let found = daemons.iter().find_map(|daemon| {
        let name = daemon["metadata"]["name"].as_str()?;
        let (_, whose) = NETWORKS.iter().find(|(known, _)| *known == name)?;
        Some((name, *whose))
    });
    match found {
        None if !installed && nodes.iter().any(is_ready) => Finding::new(
            "networks",
            Verdict::Warning,
            "nodes are Ready, so some pod network is there already: remove it first, or install without net; --on-nodes says which it is",
        ),
        None => Finding::new("networks", Verdict::Ok, "no other pod network is known here"),
        Some((name, whose)) => Finding::new(
            "networks",
            Verdict::Warning,
            format!(
                "{whose} makes the pod network (DaemonSet {name}): new pods would have theirs from Fairlead, and pods of both would not reach each other; remove it first, or install with --components guard,mesh,admission,console"
            ),
        ),
    }
}

/// Checks that no pool has an address of a node or Service.
fn of_addresses(objects: &[Value], nodes: &[Value], kubernetes: Option<&Value>) -> Finding {
    let mut pools: Vec<(&str, IpNet)> = Vec::new();
    for pool in objects.iter().filter(|object| makes_network(object)) {
        let name = pool["metadata"]["name"].as_str().unwrap_or_default();
        let subnets = pool["spec"]["subnets"].as_array().into_iter().flatten();
        for network in subnets.flat_map(|subnet| [&subnet["ipv4"], &subnet["ipv6"]]) {
            pools
                .extend(network.as_str().and_then(|text| text.parse().ok()).map(|net| (name, net)));
        }
    }
    let within = |address: &str| {
        let address: IpAddr = address.parse().ok()?;
        pools.iter().find(|(_, network)| network.contains(&address))
    };
    let mut wrong = Vec::new();
    for node in nodes {
        let addresses = node["status"]["addresses"].as_array().into_iter().flatten();
        for address in addresses.filter_map(|address| address["address"].as_str()) {
            if let Some((pool, network)) = within(address) {
                let name = node["metadata"]["name"].as_str().unwrap_or_default();
                wrong.push(format!(
                    "{network} of pool {pool} has the address {address} of node {name}"
                ));
            }
        }
    }
    let services = kubernetes.and_then(|service| service["spec"]["clusterIP"].as_str());
    if let Some(address) = services
        && let Some((pool, network)) = within(address)
    {
        wrong.push(format!("{network} of pool {pool} has the address {address} of a Service"));
    }
    match wrong.is_empty() {
        true => {
            Finding::new("addresses", Verdict::Ok, "pools have no address of a node or Service")
        }
        false => Finding::new(
            "addresses",
            Verdict::Failure,
            format!("{}: choose other subnets with --set net.pools or --values", listed(&wrong)),
        ),
    }
}

fn of_clocks(leases: &[Value], nodes: &[Value], now: Timestamp) -> Finding {
    let ready =
        |name: &str| nodes.iter().any(|node| node["metadata"]["name"] == name && is_ready(node));
    let mut off = Vec::new();
    for lease in leases {
        let name = lease["metadata"]["name"].as_str().unwrap_or_default();
        let renewed: Option<Timestamp> =
            lease["spec"]["renewTime"].as_str().and_then(|time| time.parse().ok());
        let Some(renewed) = renewed.filter(|_| ready(name)) else { continue };
        let seconds = now.duration_since(renewed).as_secs();
        if seconds.abs() > SKEW {
            off.push(format!("{name} ({seconds} s)"));
        }
    }
    match off.is_empty() {
        true => Finding::new("clocks", Verdict::Ok, "nodes and this machine agree"),
        false => Finding::new(
            "clocks",
            Verdict::Warning,
            format!(
                "these nodes' clocks differ from this machine's: {}; certificates may be refused, so set them by NTP",
                listed(&off)
            ),
        ),
    }
}

fn listed(all: &[String]) -> String {
    let shown = all.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests;
