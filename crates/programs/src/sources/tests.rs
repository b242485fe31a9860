#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::needless_pass_by_value, reason = "documents are written where they are used")]

use objects::Id;
use policy::Change;
use policy::program::PolicyKind;
use serde_json::json;

use super::{isolate, read};

fn network_policy(spec: serde_json::Value) -> super::SourceChange {
    let written = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
                         "metadata": {"name": "db", "namespace": "shop"}, "spec": spec});
    let id = Id::namespaced("shop", "db");
    let gone = Change::NetworkPolicy(super::key(&id), None);
    read(PolicyKind::NetworkPolicy, &id, Some(written), gone, isolate)
}

#[test]
fn a_policy_of_a_later_version_isolates_whom_it_selects_and_accepts_nothing() {
    let right = network_policy(json!({"podSelector": {"matchLabels": {"app": "db"}},
                                      "ingress": [{"from": [{"podSelector": {}}]}]}));
    assert_eq!(right.problem, None);
    let Change::NetworkPolicy(_, Some(policy)) = right.change else { panic!() };
    assert_eq!(policy.ingress.as_ref().map(Vec::len), Some(1));

    let later = network_policy(json!({"podSelector": {"matchLabels": {"app": "db"}},
                                      "policyTypes": ["Ingress", "Egress"],
                                      "ingress": [{"from": [{"podSelector": {}}], "onlyAtNight": true}]}));
    assert!(later.problem.as_ref().unwrap().contains("onlyAtNight"), "{:?}", later.problem);
    let Change::NetworkPolicy(key, Some(policy)) = later.change else { panic!() };
    assert_eq!(
        (key.to_string(), policy.pods.to_string()),
        ("shop/db".into(), "app in (db)".into())
    );
    assert_eq!((policy.ingress.clone(), policy.egress.clone()), (Some(vec![]), Some(vec![])));

    // Not even its selector can be read: it may select anybody.
    let later = network_policy(json!({"podSelector": {"cel": "x"}, "policyTypes": ["Ingress"]}));
    let Change::NetworkPolicy(_, Some(policy)) = later.change else { panic!() };
    assert_eq!(policy.pods.to_string(), "");
    assert_eq!((policy.ingress.clone(), policy.egress.clone()), (Some(vec![]), Some(vec![])));
}
