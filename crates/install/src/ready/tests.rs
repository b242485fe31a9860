use serde_json::json;

use super::*;

fn deployed(status: &Value) -> Readiness {
    readiness(&json!({
        "kind": "Deployment",
        "metadata": {"generation": 2},
        "spec": {"replicas": 3},
        "status": status,
    }))
}

#[test]
fn a_status_of_the_spec_before_says_nothing() {
    let stale = deployed(&json!({
        "observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3,
    }));
    assert!(!stale.ready);
    let current = deployed(&json!({
        "observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3,
    }));
    assert_eq!(current, Readiness { ready: true, done: 3, wanted: 3, why: None });
}

#[test]
fn a_rollout_is_over_when_the_last_old_replica_is_gone() {
    let surge = deployed(&json!({
        "observedGeneration": 2, "replicas": 4, "updatedReplicas": 3, "availableReplicas": 4,
    }));
    assert!(!surge.ready, "{surge:?}");
    let starting = deployed(&json!({
        "observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 1,
    }));
    assert_eq!((starting.ready, starting.done), (false, 1));
    assert!(!deployed(&json!({})).ready, "nothing is known of it");
}

#[test]
fn controllers_with_volumes_are_counted_as_those_without() {
    let set = |status: Value| {
        let meta = json!({"generation": 1});
        readiness(&json!({
            "kind": "StatefulSet", "metadata": meta, "spec": {"replicas": 3}, "status": status,
        }))
    };
    let old_server = json!({
        "observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3,
    });
    assert!(set(old_server).ready);
    let starting = json!({
        "observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3,
        "availableReplicas": 2,
    });
    assert_eq!((set(starting.clone()).ready, set(starting).done), (false, 2));
}

#[test]
fn every_node_counts_for_agents() {
    let agents = |available: u64, updated: u64| {
        readiness(&json!({
            "kind": "DaemonSet",
            "metadata": {"generation": 1},
            "status": {
                "observedGeneration": 1, "desiredNumberScheduled": 3,
                "numberAvailable": available, "updatedNumberScheduled": updated,
            },
        }))
    };
    assert!(agents(3, 3).ready);
    assert_eq!(agents(2, 3).why.as_deref(), Some("agents are not ready"));
    assert!(agents(3, 2).why.is_some_and(|why| why.contains("version before")));
}

#[test]
fn a_definition_whose_names_are_taken_says_by_whom() {
    let taken = readiness(&json!({"kind": "CustomResourceDefinition", "status": {"conditions": [
        {"type": "NamesAccepted", "status": "False", "message": "\"groups\" is already in use"},
    ]}}));
    assert_eq!(taken.why.as_deref(), Some("\"groups\" is already in use"));
    let served = readiness(&json!({"kind": "CustomResourceDefinition", "status": {"conditions": [
        {"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"},
    ]}}));
    assert!(served.ready);
}

#[test]
fn a_pod_that_is_not_ready_says_why() {
    let pod = |status: Value| trouble(&json!({"status": status}));
    assert_eq!(pod(json!({"conditions": [{"type": "Ready", "status": "True"}]})), None);
    let unscheduled = pod(json!({"conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/3 nodes are available",
    }]}));
    assert_eq!(unscheduled.as_deref(), Some("Unschedulable: 0/3 nodes are available"));
    let pulling = pod(json!({"containerStatuses": [{"state": {"waiting": {
        "reason": "ImagePullBackOff", "message": "Back-off pulling image \"fairlead\"",
    }}}]}));
    assert!(pulling.is_some_and(|why| why.starts_with("ImagePullBackOff: Back-off")));
    let crashing = pod(json!({"containerStatuses": [{
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 2, "message": "error: no data directory"}},
    }]}));
    assert_eq!(
        crashing.as_deref(),
        Some("CrashLoopBackOff; it ended with 2: error: no data directory")
    );
    let creating = pod(
        json!({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}),
    );
    assert_eq!(creating.as_deref(), Some("it is starting"));
}
