//! A Secret that suddenly leads to another cluster, on three real API servers: what the mesh wrote in the
//! old cluster is named until it is removed or given up.

#![allow(clippy::unwrap_used, reason = "tests")]

mod stage;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node, Secret};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use mesh::{Meshes, Peer};
use objects::kinds::{ClusterMesh, JoinedCluster};
use objects::{Expected, Id};
use serde_json::{Value, json};
use stage::{NAMESPACE, eventually, lead, soon};
use stallproof::Tasks;
use testkit::KubeServer;

fn mesh(name: &str, clusters: &[(&str, u8)]) -> ClusterMesh {
    let cluster = |(name, network): &(&str, u8)| {
        json!({"name": name, "kubeconfigSecretRef": {"name": name},
               "allowedNetworks": [format!("10.{network}.0.0/16")]})
    };
    let clusters: Vec<Value> = clusters.iter().map(cluster).collect();
    serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"installCRDs": true, "clusters": clusters},
    }))
    .unwrap()
}

fn secret(name: &str, server: &KubeServer) -> Secret {
    stage::secret(name, server.access().kubeconfig())
}

/// The names of the peers that a mesh has in a cluster.
async fn peers(client: &Client, mesh: &str) -> Vec<String> {
    let ours = ListParams::default().labels(&format!("fairlead.dev/mesh={mesh}"));
    let listed = Api::<Peer>::all(client.clone()).list(&ours).await;
    listed.map(|all| all.items.iter().map(ResourceExt::name_any).collect()).unwrap_or_default()
}

mod kube_servers {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_cluster_that_a_secret_no_longer_leads_to_is_named_and_cleared_by_another_way() {
        testkit::requires!(kube);
        let servers = futures::future::join_all((0..3).map(|_| KubeServer::start())).await;
        let clients = futures::future::join_all(servers.iter().map(KubeServer::client)).await;
        let [a, b, c] = &clients[..] else { panic!() };
        let (objects, tasks) = (stage::store(a, &[]).await, Tasks::new("test"));
        for (i, client) in clients.iter().enumerate() {
            // The second and the third have the same networks: one takes the place of the other.
            let network = i.min(1);
            let node: Node = serde_json::from_value(json!({
                "metadata": {"name": format!("n{i}"), "annotations": {
                    "kilo.squat.ai/key": format!("key-{i}"),
                    "kilo.squat.ai/wireguard-ip": format!("10.{network}.255.{i}/16"),
                }},
                "spec": {"podCIDR": format!("10.{network}.{i}.0/24"), "podCIDRs": [format!("10.{network}.{i}.0/24")]},
            }))
            .unwrap();
            Api::all(client.clone()).create(&PostParams::default(), &node).await.unwrap();
        }
        for (name, server) in [("a", &servers[0]), ("b", &servers[1])] {
            objects.apply(&secret(name, server), Expected::Any, soon()).await.unwrap();
        }
        lead(&objects, &tasks);
        objects.apply(&mesh("m", &[("a", 0), ("b", 1)]), Expected::Any, soon()).await.unwrap();
        eventually("peers are written", || async {
            peers(b, "m").await == ["m--a--n0"] && peers(a, "m").await == ["m--b--n1"]
        })
        .await;
        let id = Id::namespaced(NAMESPACE, "m");
        let joined = || async {
            let mesh = objects.get::<ClusterMesh>(&id, soon()).await.unwrap();
            mesh.and_then(|it| it.status).map(|it| it.joined).unwrap_or_default()
        };
        let uid = Api::<Namespace>::all(b.clone()).get("kube-system").await.unwrap().uid().unwrap();
        let knows = |joined: &[JoinedCluster]| {
            joined.iter().any(|it| it.name == "b" && it.identity.as_ref() == Some(&uid))
        };
        eventually("it is noted which cluster it is", || async { knows(&joined().await) }).await;

        // The Secret leads elsewhere. What was written in the old cluster is there, and is named.
        objects.apply(&secret("b", &servers[2]), Expected::Any, soon()).await.unwrap();
        eventually("the new cluster has its peers", || async {
            peers(c, "m").await == ["m--a--n0"] && peers(a, "m").await == ["m--b--n2"]
        })
        .await;
        let names_it = |it: &JoinedCluster| it.leaving.as_ref().is_some_and(|it| it.contains(&uid));
        eventually("the old cluster is named", || async { joined().await.iter().any(names_it) })
            .await;
        assert_eq!(peers(b, "m").await, ["m--a--n0"]);

        // Another mesh knows a way to it: it is cleared.
        objects.apply(&secret("old", &servers[1]), Expected::Any, soon()).await.unwrap();
        objects
            .apply(&mesh("other", &[("a", 0), ("old", 9)]), Expected::Any, soon())
            .await
            .unwrap();
        eventually("it is cleared", || async { peers(b, "m").await.is_empty() }).await;
        eventually("and forgotten", || async {
            !joined().await.iter().any(|it| it.leaving.is_some())
        })
        .await;

        // Back and forth with nobody who knows a way: a person gives it up.
        let other = Id::namespaced(NAMESPACE, "other");
        objects.delete::<ClusterMesh>(&other, Expected::Any, soon()).await.unwrap();
        eventually("the other mesh is gone", || async {
            objects.get::<ClusterMesh>(&other, soon()).await.unwrap().is_none()
        })
        .await;
        objects.apply(&secret("b", &servers[1]), Expected::Any, soon()).await.unwrap();
        eventually("now the third is left", || async {
            joined().await.iter().any(|it| it.leaving.is_some()) && peers(b, "m").await.len() == 1
        })
        .await;
        Meshes::new(objects.clone()).forget(&id, "b", soon()).await.unwrap();
        eventually("it is given up", || async {
            !joined().await.iter().any(|it| it.leaving.is_some())
        })
        .await;
        assert_eq!(peers(c, "m").await, ["m--a--n0"]);
        tasks.shutdown(Duration::from_secs(10)).await;
    }
}
