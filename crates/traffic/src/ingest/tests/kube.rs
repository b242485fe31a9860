//! Facts from a real API server.

use ::kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use serde::de::DeserializeOwned;
use serde_json::Value;
use testkit::{KubeServer, requires};

use super::*;

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn pod(name: &str) -> Pod {
    read(json!({
        "metadata": {"name": name, "labels": {"app": "web", "pod-template-hash": "abc"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-abc",
                                 "uid": "00000000-0000-0000-0000-000000000001",
                                 "controller": true}]},
        "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "web:1"}]},
    }))
}

/// What an address stands for now.
fn at(controller: &Controller, address: IpAddr) -> String {
    controller.ingest.inventory().directory.resolve(address, Moment::now()).to_string()
}

async fn becomes(controller: &Controller, address: IpAddr, wanted: &str) {
    let patience = soon();
    while at(controller, address) != wanted {
        assert!(!patience.has_passed(), "{address} is {}", at(controller, address));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn pods_services_nodes_and_an_address_that_is_used_again_are_told_apart() {
    requires!(kube);
    let server = KubeServer::start().await;
    let (client, namespace) = (server.client().await, server.namespace().await);
    let dir = tempfile::tempdir().unwrap();
    let controller = Controller::start(dir.path(), 2).await;
    let objects = Objects::kubernetes(client.clone(), "test");
    controller.ingest.follow_cluster(&objects, &controller.tasks);

    let (post, patch) = (PostParams::default(), PatchParams::default());
    let nodes = Api::<Node>::all(client.clone());
    nodes.create(&post, &read(json!({"metadata": {"name": "node-1"}}))).await.unwrap();
    let status = json!({"status": {"addresses": [
        {"type": "InternalIP", "address": "172.16.0.1"}]}});
    nodes.patch_status("node-1", &patch, &Patch::Merge(&status)).await.unwrap();
    becomes(&controller, "172.16.0.1".parse().unwrap(), "host node-1").await;

    let services = Api::<Service>::namespaced(client.clone(), &namespace);
    let service = json!({"metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    let service = services.create(&post, &read(service)).await.unwrap();
    let cluster_address = service.spec.unwrap().cluster_ip.unwrap().parse().unwrap();
    becomes(&controller, cluster_address, &format!("service {namespace}/web")).await;

    let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
    let address: IpAddr = "10.1.2.3".parse().unwrap();
    let running = json!({"status": {"phase": "Running", "podIP": "10.1.2.3",
                                    "podIPs": [{"ip": "10.1.2.3"}]}});
    pods.create(&post, &pod("first")).await.unwrap();
    pods.patch_status("first", &patch, &Patch::Merge(&running)).await.unwrap();
    becomes(&controller, address, &format!("{namespace}/first")).await;
    let group = format!("{namespace}/Deployment/web");
    let learned = controller.ingest.inventory().groups.all_learned();
    assert!(learned.iter().any(|(ns, owner, _)| format!("{ns}/{owner}") == group), "{learned:?}");
    let then = Moment::now();

    // The next one may not begin in the same second: that is as well as a server tells.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    pods.delete("first", &DeleteParams::default().grace_period(0)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    pods.create(&post, &pod("second")).await.unwrap();
    pods.patch_status("second", &patch, &Patch::Merge(&running)).await.unwrap();
    becomes(&controller, address, &format!("{namespace}/second")).await;

    // Each is credited with what was said while it had the address.
    let outside: IpAddr = "192.0.2.7".parse().unwrap();
    let seen = |last: Moment, bytes| {
        let seen = record(0, 0, 80, bytes);
        Record { client: outside, server: address, last, ..seen }
    };
    let one = Report { agent: "node-1".into(), ..report(1, vec![seen(then, 100)]) };
    controller.offer(&one).await.unwrap();
    let two = Report { agent: "node-1".into(), ..report(2, vec![seen(Moment::now(), 150)]) };
    controller.offer(&two).await.unwrap();
    let all = controller.until(|all| all.len() == 2).await;
    let mut all: Vec<_> =
        all.iter().map(|it| (it.server.endpoint.to_string(), it.totals.bytes)).collect();
    all.sort();
    let expected = [("first", 100), ("second", 50)]
        .map(|(name, bytes)| (format!("{namespace}/{name}"), bytes));
    assert_eq!(all, expected);

    nodes.delete("node-1", &DeleteParams::default()).await.unwrap();
    let after = Moment(Moment::now().0 + 3_600_000);
    let patience = soon();
    let gone = || {
        let inventory = controller.ingest.inventory();
        inventory.directory.resolve("172.16.0.1".parse().unwrap(), after).kind() == "external"
    };
    while !gone() {
        assert!(!patience.has_passed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
