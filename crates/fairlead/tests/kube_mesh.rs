//! `fairlead controller` as a process, with a mesh of two clusters: it is killed while it writes peers, it
//! hands over, and it stops when it is told to.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod controllers;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::Duration;

use controllers::{Controller, create, eventually, leader, log, prepared};
use k8s_openapi::ByteString;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt};
use mesh::Peer;
use objects::kinds::ClusterMesh;
use serde_json::json;
use testkit::{Fault, KubeServer, Proxy, requires};

async fn add_node(client: &Client, cluster: u8, i: u8) {
    let pods = format!("10.{cluster}.{i}.0/24");
    let node = json!({
        "metadata": {"name": format!("n{i:03}"), "annotations": {
            "kilo.squat.ai/key": format!("key-{cluster}-{i}"),
            "kilo.squat.ai/wireguard-ip": format!("10.{cluster}.255.{i}/16"),
        }},
        "spec": {"podCIDR": pods, "podCIDRs": [pods]},
    });
    create(&Api::<Node>::all(client.clone()), node).await;
}

async fn peers(client: &Client) -> Vec<(String, Option<String>)> {
    let listed = Api::<Peer>::all(client.clone()).list(&ListParams::default()).await;
    let all = listed.map(|all| all.items).unwrap_or_default();
    all.iter().map(|peer| (peer.name_any(), peer.resource_version())).collect()
}

async fn has(client: &Client, count: usize) {
    eventually("all peers are written", async || {
        (peers(client).await.len() == count).then_some(())
    })
    .await;
}

/// The Secrets of both kubeconfigs are beside the mesh.
async fn write_mesh(client: &Client, kubeconfigs: [(&str, &str); 2]) {
    for (name, kubeconfig) in kubeconfigs {
        let data = ByteString(kubeconfig.as_bytes().to_vec());
        let secret = Secret {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            data: Some(BTreeMap::from([("kubeconfig".to_owned(), data)])),
            ..Secret::default()
        };
        let secrets = Api::namespaced(client.clone(), "fairlead");
        secrets.create(&PostParams::default(), &secret).await.unwrap();
    }
    let mesh = json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh", "metadata": {"name": "m"},
        "spec": {"installCRDs": true, "clusters": [
            {"name": "a", "kubeconfigSecretRef": {"name": "a"}, "allowedNetworks": ["10.0.0.0/16"]},
            {"name": "b", "kubeconfigSecretRef": {"name": "b"}, "allowedNetworks": ["10.1.0.0/16"]},
        ]},
    });
    create(&Api::<ClusterMesh>::namespaced(client.clone(), "fairlead"), mesh).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_kube_a_controller_that_is_killed_while_it_writes_peers_is_finished_by_the_next() {
    requires!(kube);
    let (server, other) = (prepared().await, KubeServer::start().await);
    let (a, b) = (server.client().await, other.client().await);
    let proxy = Proxy::start(other.address());
    let through = other.through(&proxy);
    let kubeconfigs = [("a", server.access().kubeconfig()), ("b", through.kubeconfig())];
    write_mesh(&a, kubeconfigs).await;
    add_node(&a, 0, 1).await;
    add_node(&b, 1, 1).await;
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = ("127.77.0.1", "127.77.0.2");
    let port = TcpListener::bind((first, 0)).unwrap().local_addr().unwrap().port();
    let kubeconfig = server.kubeconfig_path();
    let one = Controller::start(&kubeconfig, dir.path(), first, port);
    let leases = Api::<Lease>::namespaced(a.clone(), "fairlead");
    eventually("the first leads", async || leader(&leases).await.filter(|it| it == first)).await;
    has(&a, 1).await;
    has(&b, 1).await;
    let two = Controller::start(&kubeconfig, dir.path(), second, port);
    eventually("the second is ready", async || (two.readyz().0 == 200).then_some(())).await;

    // kill -9 while peers are on their way to a slow cluster.
    proxy.inject(Fault::Delay(Duration::from_millis(400)));
    for i in 2..42 {
        add_node(&a, 0, i).await;
    }
    eventually("some are written", async || (peers(&b).await.len() > 3).then_some(())).await;
    // What the dying leader sends from here on does not arrive.
    proxy.inject(Fault::BlackHole);
    drop(one);
    let left = peers(&b).await;
    assert!(left.len() < 41, "it was not killed while it wrote");
    proxy.heal();
    eventually("the second leads", async || leader(&leases).await.filter(|it| it == second)).await;
    has(&b, 41).await;
    // What was written stays as it was.
    let now = peers(&b).await;
    assert!(left.iter().all(|peer| now.contains(peer)), "{}", log(dir.path(), second));

    // Told to stop, it hands over at once, and ends by itself.
    let three = Controller::start(&kubeconfig, dir.path(), first, port);
    eventually("a third is ready", async || (three.readyz().0 == 200).then_some(())).await;
    let mut two = two;
    two.terminate();
    add_node(&b, 1, 2).await;
    eventually("the third leads", async || leader(&leases).await.filter(|it| it == first)).await;
    has(&a, 2).await;
    eventually("the second has ended", async || two.has_ended().then_some(())).await;
    let status = two.child.wait().unwrap();
    assert!(status.success(), "{status}: {}", log(dir.path(), second));
    let now = peers(&b).await;
    assert!(left.iter().all(|peer| now.contains(peer)));
    eventually("the mesh is ready", async || {
        let (code, ..) = three.fairlead(&["mesh", "status", "m", "-o", "json"]);
        (code == 0).then_some(())
    })
    .await;
}
