//! Pods of two clusters in a mesh: the interface that carries the mesh also encrypts the packets inside of a
//! cluster, or carries the mesh alone.

#![allow(clippy::unwrap_used, reason = "tests")]

mod controllers;
mod encrypted_pods;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::thread;
use std::time::Duration;

use controllers::{Controller, create};
use encrypted_pods::*;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use objects::kinds::ClusterMesh;
use serde_json::json;
use testkit::requires;

const HOME: &str = "fairlead";

/// Has a controller plan a mesh of two clusters, from the first one's API server.
async fn planned(clusters: [&Stage; 2], dir: &Path, address: &str) -> Controller {
    let client = clusters[0].client.clone();
    create(&Api::<Namespace>::all(client.clone()), json!({"metadata": {"name": HOME}})).await;
    let mut entries = Vec::new();
    for (name, stage) in ["here", "there"].into_iter().zip(clusters) {
        let kubeconfig = ByteString(stage.server.access().kubeconfig().as_bytes().to_vec());
        let secret = Secret {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            data: Some(BTreeMap::from([("kubeconfig".to_owned(), kubeconfig)])),
            ..Secret::default()
        };
        let secrets = Api::namespaced(client.clone(), HOME);
        secrets.create(&PostParams::default(), &secret).await.unwrap();
        let networks: Vec<_> = stage.pods.split('+').collect();
        entries.push(json!({"name": name, "kubeconfigSecretRef": {"name": name},
                            "allowedNetworks": networks, "persistentKeepalive": 5}));
    }
    let mesh = json!({"metadata": {"name": "m", "namespace": HOME},
                      "spec": {"dataPlane": "wireguard", "clusters": entries}});
    create(&Api::<ClusterMesh>::namespaced(client, HOME), mesh).await;
    Controller::start(&clusters[0].server.kubeconfig_path(), dir, address, 0)
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_one_interface_encrypts_a_cluster_and_carries_a_mesh() {
    requires!(kube, netns, tun, nft);
    let dir = tempfile::tempdir().unwrap();
    let here = Stage::new().await;
    let there = here.beside("10.65.0.0/24+fd00:65::/120").await;
    let (sandbox, capture) = (&here.sandbox, &here.capture);
    let (mut a, mut b) = (here.machine(0).await, here.machine(1).await);
    let mut c = there.machine(2).await;
    for machine in [&mut a, &mut b, &mut c] {
        machine.mesh = "on";
        machine.start("required");
    }
    let _controller = planned([&here, &there], dir.path(), "127.78.0.6").await;
    let (p, q, r) = (a.pod(sandbox, "p"), b.pod(sandbox, "q"), c.pod(sandbox, "r"));
    let (at_p, at_q, at_r) = (p.answers(), q.answers(), r.answers());
    // Inside of the cluster, and from one to the other both ways: everybody is seen with his own address.
    // Before nodes hear of each other nothing tells them what a mesh is to carry.
    assert_eq!(p.until_heard(at_q), p.address);
    assert_eq!(p.until_heard(at_r), p.address);
    assert_eq!(q.until_heard(at_r), q.address);
    assert_eq!(r.until_heard(at_p), r.address);
    a.until_encrypted(1);
    b.until_encrypted(1);
    let before = capture.clear();
    let loads = [Load::start(p.connect(q.echo())), Load::start(p.connect(r.echo()))];
    loads.iter().for_each(|load| load.goes_on("a connection"));
    // The agent is killed, and its interface is gone: neither leaves by another way.
    a.end("-KILL");
    let stray = p.udp();
    for to in [at_q, at_r].into_iter().cycle().take(100) {
        let _ = stray.send_to(MARKER, to);
        thread::sleep(Duration::from_millis(5));
    }
    for to in [at_q, at_r] {
        let refused = a.here().udp().send_to(MARKER, to).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::HostUnreachable, "{refused}");
    }
    a.start("required");
    loads.iter().for_each(|load| load.goes_on("the connection after the agent was killed"));
    loads.into_iter().for_each(Load::stop);
    assert_eq!(r.until_heard(at_p), r.address);
    assert_eq!(r.until_heard(at_q), r.address);
    assert_eq!(capture.clear(), before, "packets left in clear text");
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_pods_of_a_masqueraded_pool_keep_their_addresses_in_a_mesh() {
    requires!(kube, netns, tun, nft);
    let dir = tempfile::tempdir().unwrap();
    let here = Stage::new().await;
    let there = here.beside("10.65.0.0/24+fd00:65::/120").await;
    let (mut a, mut c) = (here.machine(0).await, there.machine(2).await);
    for machine in [&mut a, &mut c] {
        machine.mesh = "on";
        machine.start("none");
    }
    let _controller = planned([&here, &there], dir.path(), "127.78.0.7").await;
    let (p, r) = (a.pod(&here.sandbox, "p"), c.pod(&here.sandbox, "r"));
    let (at_p, at_r) = (p.answers(), r.answers());
    assert_eq!(p.until_heard(at_r), p.address);
    assert_eq!(r.until_heard(at_p), r.address);
    let before = here.capture.clear();
    assert_eq!(p.until_heard(at_r), p.address);
    assert_eq!(here.capture.clear(), before, "packets left in clear text");
}
