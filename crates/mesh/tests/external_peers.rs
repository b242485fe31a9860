//! Machines outside of clusters in a mesh that an API server keeps: they come and go by server-side apply.

#![allow(clippy::unwrap_used, reason = "tests")]

mod stage;

use kube::api::PostParams;
use kube::{Api, Client};
use mesh::{ExternalPeerError, Meshes};
use objects::Id;
use objects::kinds::ClusterMesh;
use serde_json::{Value, json};
use stage::{NAMESPACE, soon, store};
use testkit::{KubeServer, requires};

const KEYS: [&str; 2] = [
    "b8a8LyxAlV0vKMcV8jcW5x7JG3l9Tss5g5WgqcSSOTk=",
    "c8a8LyxAlV0vKMcV8jcW5x7JG3l9Tss5g5WgqcSSOTk=",
];

fn mesh(name: &str) -> ClusterMesh {
    let cluster = |name: &str, network: &str| json!({"name": name, "clusterRef": name, "allowedNetworks": [network]});
    serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"dataPlane": "wireguard", "externalNetworks": ["10.99.0.0/24"],
                 "clusters": [cluster("a", "10.1.0.0/16"), cluster("b", "10.2.0.0/16")]},
    }))
    .unwrap()
}

/// The spec as the API server has it.
async fn spec(client: &Client, id: &Id) -> Value {
    let api = Api::<ClusterMesh>::namespaced(client.clone(), NAMESPACE);
    let object = api.get(&id.name).await.unwrap();
    serde_json::to_value(&object.spec).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn on_kube_machines_are_added_and_every_one_of_them_revoked() {
    requires!(kube);
    let server = KubeServer::start().await;
    let client = server.client().await;
    let meshes = Meshes::new(store(&client, &[]).await);
    let ids = ["ours", "theirs"].map(|name| Id::namespaced(NAMESPACE, name));
    // One is made by us, and one by somebody with kubectl.
    meshes.put(&ids[0], mesh("ours").spec, soon()).await.unwrap();
    let api = Api::<ClusterMesh>::namespaced(client.clone(), NAMESPACE);
    api.create(&PostParams::default(), &mesh("theirs")).await.unwrap();
    for id in &ids {
        let before = spec(&client, id).await;
        let add = async |name: &str, key: &str| {
            meshes.add_external_peer(id, name, key, &[], false, soon()).await.unwrap().addresses
        };
        let revoke = async |name: &str| meshes.remove_external_peer(id, name, soon()).await;
        // One alone, then two, in either order.
        for names in [["laptop", "office"], ["office", "laptop"]] {
            assert_eq!(add("laptop", KEYS[0]).await, ["10.99.0.1"]);
            revoke("laptop").await.unwrap();
            assert_eq!(spec(&client, id).await, before);
            assert_eq!(add("laptop", KEYS[0]).await, ["10.99.0.1"]);
            assert_eq!(add("office", KEYS[1]).await, ["10.99.0.2"]);
            revoke(names[0]).await.unwrap();
            let left = spec(&client, id).await;
            assert_eq!(left["externalPeers"].as_array().unwrap().len(), 1);
            assert_eq!(left["externalPeers"][0]["name"], names[1]);
            revoke(names[1]).await.unwrap();
            assert_eq!(spec(&client, id).await, before, "nothing else has changed");
        }
        let none = revoke("laptop").await;
        assert!(matches!(none, Err(ExternalPeerError::Refused(_))), "{none:?}");
    }
}
