//! `Inputs`: a cluster and policies from documents, for decisions without a server.

use std::sync::Arc;

use objects::Invalid;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::compile::{Change, Compiler};
use crate::manifest::{Document, bare_namespace, read};
use crate::spec::{Policies, Settings};

#[derive(Clone, Debug, Default)]
pub struct Inputs {
    pub cluster: Cluster,
    pub policies: Policies,
}

impl Inputs {
    pub fn new(settings: Settings) -> Self {
        let policies = Policies { settings, ..Policies::default() };
        Self { policies, cluster: Cluster::default() }
    }

    /// Takes in an object of the cluster; others are skipped, and the answer says so.
    pub fn add_cluster(&mut self, document: &Value) -> Result<bool, Invalid> {
        match read(document)? {
            Document::Cluster(change) => {
                self.apply(change);
                Ok(true)
            }
            Document::Policy(..) | Document::Other(_) => Ok(false),
        }
    }

    /// Takes in a policy; objects of a cluster are skipped. Warns of what cannot be followed as it is
    /// written.
    pub fn add_policy(&mut self, document: &Value) -> Result<Vec<String>, Invalid> {
        match read(document)? {
            Document::Cluster(_) => Ok(Vec::new()),
            Document::Policy(change, warnings) => {
                self.apply(change);
                Ok(warnings)
            }
            Document::Other(kind) => {
                let problem = format!(
                    "{kind} is no policy; there are NetworkPolicy, ClusterNetworkPolicy, \
                     AdminNetworkPolicy, BaselineAdminNetworkPolicy, Group and NetworkRule"
                );
                Err(Invalid(vec![("kind".to_owned(), problem)]))
            }
        }
    }

    /// Adds the namespaces that pods are in and that no document describes.
    pub fn complete(&mut self) {
        for key in self.cluster.pods.keys() {
            let labels = || bare_namespace(&key.namespace);
            self.cluster.namespaces.entry(Arc::clone(&key.namespace)).or_insert_with(labels);
        }
    }

    /// A compiler that has taken all of it in.
    pub fn compiler(&self) -> Compiler {
        let mut compiler = Compiler::new(self.policies.settings);
        let Cluster { namespaces, pods, nodes, services, pools } = self.cluster.clone();
        let Policies { network, cluster, groups, rules, settings: _ } = self.policies.clone();
        let mut all: Vec<Change> = Vec::new();
        all.extend(network.into_iter().map(|(k, v)| Change::NetworkPolicy(k, Some(v))));
        all.extend(cluster.into_iter().map(|(k, v)| Change::ClusterPolicy(k, Some(v))));
        all.extend(groups.into_iter().map(|(k, v)| Change::Group(k, Some(v))));
        all.extend(rules.into_iter().map(|(k, v)| Change::Rule(k, Some(v))));
        all.extend(namespaces.into_iter().map(|(k, v)| Change::Namespace(k, Some(v))));
        all.extend(nodes.into_iter().map(|(k, v)| Change::Node(k, Some(v))));
        all.extend(services.into_iter().map(|(k, v)| Change::Service(k, Some(v))));
        all.extend(pools.into_iter().map(|(k, v)| Change::Pool(k, Some(v))));
        all.extend(pods.into_iter().map(|(k, v)| Change::Pod(k, Some(v))));
        all.into_iter().for_each(|change| compiler.apply(change));
        compiler
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Namespace(name, Some(labels)) => {
                self.cluster.namespaces.insert(name, labels);
            }
            Change::Pod(key, Some(pod)) => {
                self.cluster.pods.insert(key, pod);
            }
            Change::Node(name, Some(node)) => {
                self.cluster.nodes.insert(name, node);
            }
            Change::Service(key, Some(service)) => {
                self.cluster.services.insert(key, service);
            }
            Change::Pool(name, Some(networks)) => {
                self.cluster.pools.insert(name, networks);
            }
            Change::NetworkPolicy(key, Some(policy)) => {
                self.policies.network.insert(key, policy);
            }
            Change::ClusterPolicy(key, Some(policy)) => {
                self.policies.cluster.insert(key, policy);
            }
            Change::Group(name, Some(group)) => {
                self.policies.groups.insert(name, group);
            }
            Change::Rule(key, Some(rule)) => {
                self.policies.rules.insert(key, rule);
            }
            // A disabled rule is none.
            _ => {}
        }
    }
}
