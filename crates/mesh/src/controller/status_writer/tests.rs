use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use objects::kinds::{ClusterMesh, ClusterMeshStatus, JoinedCluster, MeshState};
use serde_json::{Value, json};

use super::{complete, events, is_ready};

fn status(state: &str, ready: &str, reason: &str) -> ClusterMeshStatus {
    serde_json::from_value(json!({
        "clusters": [{"name": "a", "state": state, "why": "because"}],
        "conditions": [
            {"type": "Ready", "status": ready, "reason": reason, "message": "a: because"},
            {"type": "Progressing", "status": "False", "reason": "Converged", "message": "nothing"},
        ],
    }))
    .unwrap()
}

/// A mesh of the cluster `x` and a second one.
fn mesh(second: &str) -> ClusterMesh {
    let cluster = |name: &str, of: &str| json!({"name": name, "clusterRef": of, "allowedNetworks": ["10.0.0.0/16"]});
    serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh",
        "metadata": {"name": "m", "namespace": "n"},
        "spec": {"clusters": [cluster("a", "x"), cluster("b", second)]},
    }))
    .unwrap()
}

fn reasons(before: Option<&ClusterMeshStatus>, now: &ClusterMeshStatus) -> Vec<&'static str> {
    events(before, now).into_iter().map(|event| event.reason).collect()
}

#[test]
fn what_does_not_come_right_by_itself_is_told_once() {
    let converged = status("Converged", "True", "Converged");
    let waiting = status("Waiting", "False", "Waiting");
    let attention = status("Waiting", "False", "NeedsAttention");
    let away = status("Unreachable", "False", "Waiting");
    assert_eq!(reasons(None, &waiting), [""; 0]);
    assert_eq!(reasons(Some(&waiting), &converged), ["Converged"]);
    assert_eq!(reasons(Some(&converged), &converged), [""; 0]);
    assert_eq!(reasons(Some(&converged), &attention), ["NeedsAttention"]);
    assert_eq!(reasons(Some(&attention), &attention), [""; 0]);
    assert_eq!(reasons(Some(&converged), &away), ["ClusterUnreachable"]);
    // The first look at a cluster that is away is no news.
    assert_eq!(reasons(None, &away), [""; 0]);
    assert_eq!(reasons(Some(&away), &away), [""; 0]);
}

#[test]
fn what_has_not_changed_keeps_its_times() {
    let mut first = status("Converged", "True", "Converged");
    complete(&mut first, None, &mesh("y"));
    assert!(first.clusters[0].since.is_some() && first.clusters[0].last_success.is_some());
    let long_ago = "2020-01-01T00:00:00Z".to_owned();
    first.clusters[0].since = Some(long_ago.clone());
    first.clusters[0].last_success = Some(long_ago.clone());
    let mut again = first.clone();
    complete(&mut again, Some(&first), &mesh("y"));
    assert_eq!(again, first);

    // It was well until now, and is not any more.
    let mut lost = status("Unreachable", "False", "Waiting");
    lost.clusters[0].last_success = Some(long_ago.clone());
    complete(&mut lost, Some(&first), &mesh("y"));
    assert_ne!(lost.clusters[0].last_success.as_ref(), Some(&long_ago));
    let mut still = lost.clone();
    still.clusters[0].state = MeshState::Waiting;
    still.clusters[0].since = None;
    complete(&mut still, Some(&lost), &mesh("y"));
    assert_eq!(still.clusters[0].last_success, lost.clusters[0].last_success);
}

#[test]
fn a_mesh_that_goes_says_whom_it_waits_for_and_is_not_ready() {
    let mut going = status("Unreachable", "False", "Deleting");
    let leaving = Some("no answer".to_owned());
    going.joined =
        vec![JoinedCluster { name: "b".to_owned(), leaving, ..JoinedCluster::default() }];
    let mut deleted = mesh("y");
    deleted.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    complete(&mut going, None, &deleted);
    assert!(!is_ready(&going));
    let said: Value = serde_json::to_value(&going.conditions).unwrap();
    assert_eq!(said[0]["message"], "peers are left in b: no answer");
    assert_eq!((&said[1]["status"], &said[1]["reason"]), (&json!("True"), &json!("Leaving")));
}

#[test]
fn a_mesh_that_should_have_been_refused_says_why_it_is_not_ready() {
    let mut status = status("Converged", "True", "Converged");
    let before = status.clone();
    complete(&mut status, None, &mesh("y"));
    assert_eq!(status.conditions[0].reason, before.conditions[0].reason);
    assert!(is_ready(&status));
    complete(&mut status, None, &mesh("x"));
    assert!(!is_ready(&status));
    assert_eq!(status.conditions[0].reason, "Invalid");
    let sentence = "the mesh is invalid: spec.clusters[1]: is the same cluster as clusters[0]";
    assert_eq!(status.conditions[0].message, sentence);
}
