use serde_json::json;

use super::*;

fn state_of(value: Value) -> String {
    state(&serde_json::from_value(value).unwrap())
}

fn pod(status: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "x" }, "status": status })
}

#[test]
fn a_pod_is_in_the_state_that_kubectl_prints() {
    let waiting = |reason: &str| json!({ "state": { "waiting": { "reason": reason } } });
    let ended = |code: i64, reason: &str| json!({ "state": { "terminated": { "exitCode": code, "reason": reason } } });
    let running = json!({ "ready": true, "state": { "running": {} } });
    let cases = [
        (json!({ "phase": "Pending" }), "Pending"),
        (json!({ "phase": "Running", "containerStatuses": [running] }), "Running"),
        (
            json!({ "phase": "Running", "containerStatuses": [waiting("CrashLoopBackOff")] }),
            "CrashLoopBackOff",
        ),
        (json!({ "phase": "Failed", "reason": "Evicted" }), "Evicted"),
        (
            json!({ "phase": "Succeeded", "containerStatuses": [ended(0, "Completed")] }),
            "Completed",
        ),
        (
            json!({ "phase": "Running", "containerStatuses": [ended(0, "Completed"), running] }),
            "Running",
        ),
        (json!({ "phase": "Failed", "containerStatuses": [ended(3, "")] }), "ExitCode:3"),
        (
            json!({ "phase": "Pending", "initContainerStatuses": [ended(0, "Completed"), waiting("PodInitializing")] }),
            "Init:1/2",
        ),
        (
            json!({ "phase": "Pending", "initContainerStatuses": [waiting("ImagePullBackOff")] }),
            "Init:ImagePullBackOff",
        ),
    ];
    for (status, word) in cases {
        assert_eq!(state_of(pod(&status)), word, "{status}");
    }
    let mut deleted = pod(&json!({ "phase": "Running" }));
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    assert_eq!(state_of(deleted), "Terminating");
}

#[test]
fn what_has_replicas_is_ready_when_they_are() {
    let deployment = |generation: i64, status: Value| {
        state_of(json!({ "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "x", "generation": generation },
            "spec": { "replicas": 2 }, "status": status }))
    };
    assert_eq!(deployment(1, json!({})), "Progressing");
    assert_eq!(deployment(1, json!({ "observedGeneration": 1, "readyReplicas": 2 })), "Ready");
    assert_eq!(
        deployment(2, json!({ "observedGeneration": 1, "readyReplicas": 2 })),
        "Progressing"
    );
    let failed = json!({ "observedGeneration": 1, "readyReplicas": 1,
        "conditions": [{ "type": "Progressing", "status": "False" }] });
    assert_eq!(deployment(1, failed), "Failed");
}

#[test]
fn others_say_what_their_conditions_or_phase_say() {
    let job = |status: Value| {
        state_of(
            json!({ "kind": "Job", "apiVersion": "batch/v1", "metadata": {}, "status": status }),
        )
    };
    assert_eq!(job(json!({})), "Running");
    assert_eq!(
        job(json!({ "conditions": [{ "type": "Complete", "status": "True" }] })),
        "Complete"
    );
    let node = json!({ "kind": "Node", "apiVersion": "v1", "metadata": {},
        "spec": { "unschedulable": true },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    assert_eq!(state_of(node), "Ready,SchedulingDisabled");
    let claim = json!({ "kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {},
        "status": { "phase": "Bound" } });
    assert_eq!(state_of(claim), "Bound");
    assert_eq!(state_of(json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": {} })), "");
}
