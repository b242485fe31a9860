//! Clusters that are real API servers: the one where the controller lives, a tenant to whom something
//! comes late, and a tenant beside it to whom nothing happens.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Node, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use mesh::Peer;
use serde_json::json;
use testkit::KubeServer;

use crate::incident::Cannot;

pub(crate) const NAMESPACE: &str = "fairlead";
const PEERS: &str = "peers.kilo.squat.ai";

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
        let patch = Patch::Apply(mesh::definition());
        definitions.patch(PEERS, &PatchParams::apply("kilo"), &patch).await?;
        Ok(())
    }

    /// A node joins.
    pub(crate) async fn add_node(&self, i: usize) -> Result<(), Cannot> {
        let number = self.number;
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": format!("n{i:03}"), "annotations": {
                "kilo.squat.ai/key": format!("key-{number}-{i}"),
                "kilo.squat.ai/wireguard-ip": format!("10.{number}.255.{i}/16"),
                "kilo.squat.ai/force-endpoint": format!("198.51.{number}.{i}:51820"),
            }},
            "spec": {
                "podCIDR": format!("10.{number}.{i}.0/24"),
                "podCIDRs": [format!("10.{number}.{i}.0/24")],
            },
        }))?;
        Api::all(self.client.clone()).create(&PostParams::default(), &node).await?;
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
