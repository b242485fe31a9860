//! Clusters that are real API servers: the one where the controller lives and its tenants, their nodes,
//! and what a mesh of them should have.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Node, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use mesh::{Observation, Observed, Peer, index, label};
use objects::kinds::{ClusterMesh, MeshCondition};
use serde_json::json;
use stallproof::Deadline;
use testkit::KubeServer;

use crate::incident::Cannot;

pub(crate) const NAMESPACE: &str = "fairlead";
const PEERS: &str = "peers.kilo.squat.ai";
const ENDPOINT: &str = "kilo.squat.ai/force-endpoint";

/// How long anything may take that should take seconds: a busy machine gets more.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// One cluster.
pub(crate) struct Tenant {
    pub(crate) name: &'static str,
    /// Tells its networks from the others'.
    number: usize,
    pub(crate) server: KubeServer,
    pub(crate) client: Client,
}

impl Tenant {
    pub(crate) async fn start(name: &'static str, number: usize) -> Self {
        let server = KubeServer::start().await;
        let client = server.client().await;
        Self { name, number, server, client }
    }

    /// The Peer CRD lands.
    pub(crate) async fn teach(&self) -> Result<(), Cannot> {
        let definitions = Api::<CustomResourceDefinition>::all(self.client.clone());
        let patch = Patch::Apply(mesh::peer_crd());
        definitions.patch(PEERS, &PatchParams::apply("kilo"), &patch).await?;
        Ok(())
    }

    /// A node joins.
    pub(crate) async fn add_node(&self, i: usize) -> Result<(), Cannot> {
        self.add_node_with(i, i).await
    }

    /// A node joins with another network for its pods than its own: below 255.
    pub(crate) async fn add_node_with(&self, i: usize, network: usize) -> Result<(), Cannot> {
        let number = self.number;
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": node_name(i), "annotations": {
                "kilo.squat.ai/key": format!("key-{number}-{i}"),
                "kilo.squat.ai/wireguard-ip": format!("10.{number}.255.{i}/16"),
                ENDPOINT: format!("198.51.{number}.{i}:51820"),
            }},
            "spec": {
                "podCIDR": format!("10.{number}.{network}.0/24"),
                "podCIDRs": [format!("10.{number}.{network}.0/24")],
            },
        }))?;
        Api::all(self.client.clone()).create(&PostParams::default(), &node).await?;
        Ok(())
    }

    /// A node is reached at another port.
    pub(crate) async fn move_node(&self, i: usize, port: u16) -> Result<(), Cannot> {
        let endpoint = format!("198.51.{}.{i}:{port}", self.number);
        let patch = Patch::Merge(json!({"metadata": {"annotations": {ENDPOINT: endpoint}}}));
        let nodes = Api::<Node>::all(self.client.clone());
        nodes.patch(&node_name(i), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub(crate) async fn remove_node(&self, i: usize) -> Result<(), Cannot> {
        let nodes = Api::<Node>::all(self.client.clone());
        nodes.delete(&node_name(i), &DeleteParams::default()).await?;
        Ok(())
    }

    pub(crate) async fn nodes(&self) -> Result<Vec<Node>, Cannot> {
        Ok(Api::<Node>::all(self.client.clone()).list(&ListParams::default()).await?.items)
    }

    /// None where the kind is not known.
    pub(crate) async fn peers(&self) -> Option<Vec<Peer>> {
        let api = Api::<Peer>::all(self.client.clone());
        Some(api.list(&ListParams::default()).await.ok()?.items)
    }

    pub(crate) async fn make_namespace(&self) -> Result<(), Cannot> {
        let namespace = Namespace {
            metadata: ObjectMeta { name: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        Api::all(self.client.clone()).create(&PostParams::default(), &namespace).await?;
        Ok(())
    }

    /// As a `ClusterMesh` names it.
    pub(crate) fn in_mesh(&self, reference: &serde_json::Value) -> serde_json::Value {
        let number = self.number;
        let mut cluster = json!({
            "name": self.name,
            "allowedNetworks": [format!("10.{number}.0.0/16")],
        });
        if let (Some(cluster), Some(reference)) = (cluster.as_object_mut(), reference.as_object()) {
            cluster.extend(reference.clone());
        }
        cluster
    }
}

fn node_name(i: usize) -> String {
    format!("n{i:03}")
}

pub(crate) fn soon() -> Deadline {
    Deadline::after(PATIENCE)
}

/// A mesh of the home cluster and a tenant, whose kubeconfig is in a Secret of its name.
pub(crate) fn joined(name: &str, home: &Tenant, tenant: &Tenant) -> Result<ClusterMesh, Cannot> {
    let reference = json!({"kubeconfigSecretRef": {"name": tenant.name}});
    Ok(serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"clusters": [
            home.in_mesh(&json!({"local": true})), tenant.in_mesh(&reference),
        ]},
    }))?)
}

/// What is still to be written in a mesh of these clusters, as a plan of what is there now says; and
/// how many peers there are of it.
pub(crate) async fn planned(
    mesh: &ClusterMesh,
    clusters: [&Tenant; 2],
) -> Result<(mesh::Plan, usize), Cannot> {
    let mut observations = BTreeMap::new();
    let mut there = 0;
    let of_mesh =
        |peer: &&Peer| peer.labels().get(label::MESH).is_some_and(|name| *name == mesh.name_any());
    for cluster in clusters {
        let nodes = Observed::Known(index(cluster.nodes().await?));
        let peers = cluster.peers().await;
        there += peers.as_ref().map_or(0, |peers| peers.iter().filter(of_mesh).count());
        let peers = match peers {
            Some(peers) => Observed::Known(peers.into_iter().collect()),
            None => Observed::Waiting("the Peer CRD".to_owned()),
        };
        observations.insert(cluster.name.to_owned(), Observation { nodes, peers });
    }
    Ok((mesh::plan(mesh, &[], &observations), there))
}

pub(crate) fn is_ready(conditions: &[MeshCondition]) -> bool {
    conditions.iter().any(|c| c.r#type == "Ready" && c.status == "True")
}

/// The same kubeconfig with other credentials of the same administrator: its certificate, or its token.
pub(crate) fn otherwise(kubeconfig: &str) -> Result<String, Cannot> {
    let [certificate, token] =
        ["certificate", "token"].map(|name| format!(r#""current-context": "{name}""#));
    let rotated = if kubeconfig.contains(&certificate) {
        kubeconfig.replace(&certificate, &token)
    } else {
        kubeconfig.replace(&token, &certificate)
    };
    if rotated == kubeconfig {
        return Err("the kubeconfig has no credentials to rotate to".into());
    }
    Ok(rotated)
}

pub(crate) fn secret(name: &str, kubeconfig: &str) -> Secret {
    let data =
        BTreeMap::from([("kubeconfig".to_owned(), ByteString(kubeconfig.as_bytes().to_vec()))]);
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(NAMESPACE.to_owned()),
        ..ObjectMeta::default()
    };
    Secret { metadata, data: Some(data), ..Secret::default() }
}
