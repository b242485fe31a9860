use serde_json::{Value, json};

use super::*;

fn pod(name: &str, more: &Value) -> Pod {
    let mut pod = json!({ "metadata": { "name": name, "namespace": "shop", "uid": name } });
    merge(&mut pod, more);
    serde_json::from_value(pod).unwrap()
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}

fn owned_by(kind: &str) -> Value {
    let owner = json!({
        "apiVersion": "apps/v1", "kind": kind, "name": "it", "uid": "1", "controller": true,
    });
    json!({ "metadata": { "ownerReferences": [owner] } })
}

/// What becomes of one pod: `evict`, `skip`, or the refusal.
fn fate(pod: Pod, allow: Allow) -> String {
    let plan = plan([pod], allow);
    let fates: Vec<_> = (plan.evict.into_iter().map(|_| "evict".to_owned()))
        .chain(plan.skip.into_iter().map(|_| "skip".to_owned()))
        .chain(plan.refused.into_iter().map(|refusal| refusal.why()))
        .collect();
    assert_eq!(fates.len(), 1, "a pod has one fate");
    fates.into_iter().next().unwrap()
}

#[test]
fn what_is_made_anew_elsewhere_goes() {
    assert_eq!(fate(pod("web", &owned_by("ReplicaSet")), Allow::default()), "evict");
}

#[test]
fn what_comes_back_to_the_same_node_stays() {
    let allow = Allow { daemon_sets: true, ..Allow::default() };
    assert_eq!(fate(pod("agent", &owned_by("DaemonSet")), allow), "skip");
    let mirror = json!({ "metadata": { "annotations": { MIRROR: "1" } } });
    assert_eq!(fate(pod("etcd", &mirror), Allow::default()), "skip");
}

#[test]
fn a_pod_of_a_daemon_set_is_in_the_way_until_it_may_stay() {
    let agent = || pod("agent", &owned_by("DaemonSet"));
    assert!(fate(agent(), Allow::default()).contains("DaemonSet"));
    let force = Allow { unmanaged: true, empty_dir: true, ..Allow::default() };
    assert!(fate(agent(), force).contains("DaemonSet"), "no other flag is for it");
}

#[test]
fn each_reason_against_a_pod_is_told() {
    let volumes = json!({ "spec": {
        "containers": [], "volumes": [{ "name": "tmp", "emptyDir": {} }] } });
    let plan = plan([pod("cache", &volumes)], Allow::default());
    assert_eq!(plan.refused[0].reasons, [Reason::EmptyDir, Reason::Unmanaged]);
}

#[test]
fn what_would_be_lost_is_refused_until_it_is_allowed() {
    let (unmanaged, empty_dir) = (pod("alone", &json!({})), {
        let mut cache = owned_by("ReplicaSet");
        cache["spec"] = json!({ "containers": [], "volumes": [{ "name": "tmp", "emptyDir": {} }] });
        pod("cache", &cache)
    });
    assert!(fate(unmanaged.clone(), Allow::default()).contains("anew"));
    assert!(fate(empty_dir.clone(), Allow::default()).contains("emptyDir"));
    let allow = |unmanaged, empty_dir| Allow { unmanaged, empty_dir, ..Allow::default() };
    assert!(fate(unmanaged.clone(), allow(false, true)).contains("anew"));
    assert!(fate(empty_dir.clone(), allow(true, false)).contains("emptyDir"));
    assert_eq!(fate(unmanaged, allow(true, false)), "evict");
    assert_eq!(fate(empty_dir, allow(false, true)), "evict");
}

#[test]
fn an_owner_that_is_no_controller_makes_nothing_anew() {
    let mut owned = owned_by("ReplicaSet");
    owned["metadata"]["ownerReferences"][0]["controller"] = false.into();
    assert!(fate(pod("odd", &owned), Allow::default()).contains("anew"));
}

#[test]
fn what_has_ended_has_nothing_to_lose() {
    for phase in ["Succeeded", "Failed"] {
        let ended = json!({
            "spec": { "containers": [], "volumes": [{ "name": "tmp", "emptyDir": {} }] },
            "status": { "phase": phase },
        });
        assert_eq!(fate(pod("job", &ended), Allow::default()), "evict");
    }
}
