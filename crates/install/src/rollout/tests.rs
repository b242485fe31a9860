use serde_json::json;

use super::*;

fn object(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}})
}

fn record(objects: &[Value]) -> Record {
    Record {
        version: "1".to_owned(),
        chosen: json!({}),
        values: json!({}),
        objects: objects.to_vec(),
    }
}

#[test]
fn what_others_stand_on_comes_first() {
    let objects = [
        object("apps/v1", "Deployment", "controller"),
        object("fairlead.dev/v1alpha1", "AddressPool", "default"),
        object("v1", "Service", "api"),
        object("apps/v1", "DaemonSet", "agent"),
        object("v1", "Namespace", "fairlead"),
        object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "pools"),
    ];
    let phases = Phases::of(&objects);
    let names = |objects: &[&Value]| -> Vec<String> {
        objects.iter().map(|o| o["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&phases.definitions), ["pools"]);
    assert_eq!(names(&phases.foundations), ["fairlead", "api", "default"]);
    assert_eq!(names(&phases.agents), ["agent"]);
    assert_eq!(names(&phases.controllers), ["controller"]);
}

#[test]
fn only_what_the_new_version_lacks_goes_and_never_a_definition() {
    let definition = object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "old");
    let before = record(&[object("v1", "Service", "a"), object("v1", "Service", "b"), definition]);
    let wanted = record(&[object("v1", "Service", "b")]);
    let gone = no_longer_wanted(Some(&before), &wanted);
    assert_eq!(gone, [object("v1", "Service", "a")]);
    assert!(no_longer_wanted(None, &wanted).is_empty());
}

#[test]
fn what_is_kept_says_so_itself() {
    let mut pool = object("fairlead.dev/v1alpha1", "AddressPool", "default");
    assert!(!is_kept(&pool));
    pool["metadata"]["annotations"] = json!({KEEP: "keep"});
    assert!(is_kept(&pool));
}

#[test]
fn a_failure_names_every_workload_and_its_pods() {
    let what = vec![NotReady {
        object: "DaemonSet fairlead/fairlead-agent".to_owned(),
        readiness: Readiness {
            ready: false,
            done: 1,
            wanted: 3,
            why: Some("agents are not ready".to_owned()),
        },
        pods: vec!["fairlead-agent-x on node2: ImagePullBackOff".to_owned()],
    }];
    let failed = RolloutError::NotReady { after: Duration::from_secs(300), what };
    let text = failed.to_string();
    assert!(text.contains("after 300 s"), "{text}");
    assert!(text.contains("1 of 3, agents are not ready"), "{text}");
    assert!(text.contains("\n    fairlead-agent-x on node2: ImagePullBackOff"), "{text}");
}

#[test]
fn an_old_server_is_sent_no_rules() {
    let mut definition = object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "pools");
    definition["spec"] =
        json!({"versions": [{"schema": {"x-kubernetes-validations": [1], "type": "object"}}]});
    let of = |minor| Version { minor, text: String::new() };
    let new = fitted(vec![definition.clone()], &of(25));
    assert_eq!(new, [definition.clone()]);
    let old = fitted(vec![definition], &of(24));
    assert_eq!(old[0]["spec"], json!({"versions": [{"schema": {"type": "object"}}]}));
}
