use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Moment, node, pod, service};

const NOW: Moment = Moment(9_000_000);

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn owned_by(kind: &str, name: &str, labels: &Value) -> Option<String> {
    let owner = json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": "u",
                       "controller": true});
    let read = read(json!({"metadata": {"name": "p", "namespace": "shop", "labels": labels,
                                        "ownerReferences": [owner]}}));
    pod(&read, NOW).owner.map(|owner| owner.to_string())
}

#[test]
fn the_uppermost_owner_is_told_by_its_name() {
    let hash = json!({"pod-template-hash": "5d4f8c7b9"});
    let owner = |kind, name, labels: &Value| owned_by(kind, name, labels).unwrap();
    assert_eq!(owner("ReplicaSet", "web-5d4f8c7b9", &hash), "Deployment/web");
    assert_eq!(owner("ReplicaSet", "web-5d4f8c7b9", &json!({})), "ReplicaSet/web-5d4f8c7b9");
    assert_eq!(owner("ReplicaSet", "alone", &hash), "ReplicaSet/alone");
    assert_eq!(owner("ReplicaSet", "-5d4f8c7b9", &hash), "ReplicaSet/-5d4f8c7b9");
    assert_eq!(owner("Job", "backup-28391040", &json!({})), "CronJob/backup");
    assert_eq!(owner("Job", "backup-2839", &json!({})), "Job/backup-2839");
    assert_eq!(owner("Job", "migrate", &json!({})), "Job/migrate");
    assert_eq!(owner("DaemonSet", "agent", &json!({})), "DaemonSet/agent");
    let bare = read(json!({"metadata": {"name": "p", "namespace": "shop"}}));
    assert_eq!(pod(&bare, NOW).owner, None);
    assert_eq!(&*pod(&bare, NOW).owner(), "Pod/p");
}

#[test]
fn a_pod_has_its_addresses_until_it_is_done() {
    let mut value = json!({
        "metadata": {"name": "p", "namespace": "shop", "uid": "u",
                     "creationTimestamp": "1970-01-01T00:00:05Z"},
        "spec": {"nodeName": "n",
                 "initContainers": [{"name": "i", "image": "init"}],
                 "containers": [{"name": "c", "image": "web"}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1",
                   "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]},
    });
    let running = pod(&read(value.clone()), NOW);
    assert_eq!(running.addresses.len(), 2);
    assert_eq!((running.from, running.until), (Moment(5000), None));
    assert_eq!(running.images, ["init", "web"]);
    value["status"]["phase"] = json!("Succeeded");
    assert_eq!(pod(&read(value.clone()), NOW).until, Some(NOW), "as well as is known");
    value["status"]["containerStatuses"] = json!([{
        "name": "c", "image": "web", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 0, "finishedAt": "1970-01-01T00:00:09Z"}},
    }]);
    assert_eq!(pod(&read(value.clone()), NOW).until, Some(Moment(9000)));
    value["spec"]["hostNetwork"] = json!(true);
    assert!(pod(&read(value), NOW).addresses.is_empty(), "they are its node's");
}

#[test]
fn services_and_nodes_have_addresses_inside_and_outside() {
    let of = service(&read(json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd96::1"],
                 "externalIPs": ["192.0.2.7"], "selector": {"app": "web"}},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.8"}, {"hostname": "lb"}]}},
    })));
    assert_eq!((of.cluster_addresses.len(), of.ingress_addresses.len()), (2, 2));
    let headless = service(&read(json!({
        "metadata": {"name": "db", "namespace": "shop"},
        "spec": {"clusterIP": "None", "clusterIPs": ["None"]},
    })));
    assert!(headless.cluster_addresses.is_empty() && headless.selector.is_empty());
    let known = node(&read(json!({
        "metadata": {"name": "n"},
        "spec": {"podCIDR": "10.64.0.0/24", "podCIDRs": ["10.64.0.0/24", "fd64::/64"]},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.168.0.1"},
                                 {"type": "Hostname", "address": "n"}]},
    })));
    assert_eq!((known.0.addresses.len(), known.1.len()), (1, 2));
}
