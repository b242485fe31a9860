//! Facts about a cluster's pods, services and nodes, as plain values.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::Moment;

pub type Labels = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    pub uid: Arc<str>,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    /// Kind and name of its uppermost owner, as `Deployment/web`; none for a pod by itself.
    pub owner: Option<Arc<str>>,
    /// Empty until it is scheduled.
    pub node: Arc<str>,
    /// None for a pod in its node's network.
    pub addresses: Vec<IpAddr>,
    pub images: Vec<String>,
    pub labels: Labels,
    /// Since when the addresses are its own, as well as is known; its creation is early enough.
    pub from: Moment,
    /// When it gave them up, though the object is still there: it succeeded or failed.
    pub until: Option<Moment>,
}

impl PodFacts {
    /// The pod itself, if nothing owns it.
    pub fn owner(&self) -> Arc<str> {
        self.owner.clone().unwrap_or_else(|| format!("Pod/{}", self.name).into())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceFacts {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub cluster_addresses: Vec<IpAddr>,
    /// External and load balancer addresses.
    pub ingress_addresses: Vec<IpAddr>,
    /// Empty selects nothing, as in Kubernetes.
    pub selector: Labels,
    pub from: Moment,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    pub name: Arc<str>,
    pub addresses: Vec<IpAddr>,
    pub from: Moment,
}

/// A workload of a node, as the node's agent knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalWorkload {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub addresses: Vec<IpAddr>,
    /// Since when it has them.
    pub from: Moment,
}

/// Networks outside of the cluster that have a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalFacts {
    pub name: Arc<str>,
    pub networks: Vec<IpNet>,
}
