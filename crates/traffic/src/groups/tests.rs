use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use objects::kinds::{Group, GroupMode, GroupSpec};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::Groups;
use crate::conversations::{End, Endpoint, Labels, Moment, PodFacts, ServiceFacts};

fn group(name: &str, mode: Option<&str>, criteria: &Value) -> Group {
    let spec: GroupSpec =
        serde_json::from_value(json!({"mode": mode, "criteria": criteria})).unwrap();
    Group::new(name, spec)
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn pod(namespace: &str, name: &str, app: &str) -> PodFacts {
    PodFacts {
        uid: format!("{namespace}-{name}").into(),
        namespace: namespace.into(),
        name: name.into(),
        owner: Some(format!("Deployment/{app}").into()),
        node: "node-a".into(),
        addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        images: vec![format!("registry/{app}:1"), "registry/sidecar:2".to_owned()],
        labels: labels(&[("app", app)]),
        from: Moment(0),
        until: None,
    }
}

fn service(namespace: &str, name: &str, app: &str) -> ServiceFacts {
    ServiceFacts {
        namespace: namespace.into(),
        name: name.into(),
        cluster_addresses: Vec::new(),
        ingress_addresses: Vec::new(),
        selector: labels(&[("app", app)]),
        from: Moment(0),
    }
}

/// Whether `shop/web-1` of app web is in a group of these criteria.
fn fits(criteria: &Value) -> bool {
    let mut groups = Groups::new(GroupMode::Discover);
    groups.apply_namespace(&"shop".into(), &labels(&[("team", "blue")]));
    groups.apply_service(&service("shop", "front", "web"));
    groups.apply_service(&service("shop", "back", "other"));
    groups.apply_pod(&pod("shop", "web-1", "web"), Moment(0));
    groups.apply_group(&group("g", None, criteria)).unwrap();
    !groups.of(&"shop".into(), &"web-1".into()).unwrap().groups.is_empty()
}

#[test]
fn criteria_mean_what_they_say() {
    let one = |key: &str, op: &str, value: &str| json!([{"key": key, "op": op, "value": value}]);
    let label = |label: &str, op: &str, value: &str| json!([{"key": "label", "label": label, "op": op, "value": value}]);
    let cases = [
        (one("image", "contains", "sidecar"), true),
        // None of its images may.
        (one("image", "!contains", "sidecar"), false),
        (one("node", "=", "node-a"), true),
        (one("name", "prefix", "web-"), true),
        (one("name", "!prefix", "web-"), false),
        (one("service", "=", "front"), true),
        (one("service", "=", "back"), false),
        (one("namespace", "regex", "^sh"), true),
        (one("namespace", "!regex", "^sh"), false),
        (label("app", "=", "web"), true),
        (label("app", "!=", "web"), false),
        // What has no such label is not it.
        (label("tier", "!=", "web"), true),
        (label("tier", "regex", ".*"), false),
        (json!([{"key": "namespaceLabel", "label": "team", "op": "=", "value": "blue"}]), true),
        (one("address", "=", "10.0.0.0/8"), true),
        (one("address", "!=", "fd00::/8"), false),
        (one("address", "=", "10.0.0.2"), false),
    ];
    for (criteria, expected) in cases {
        assert_eq!(fits(&criteria), expected, "{criteria}");
    }
}

#[test]
fn positives_of_one_key_are_either_negatives_and_keys_are_all() {
    let name = |op: &str, value: &str| json!({"key": "name", "op": op, "value": value});
    let label = |label: &str, value: &str| json!({"key": "label", "label": label, "op": "=", "value": value});
    let cases = [
        (json!([name("=", "other"), name("prefix", "web")]), true),
        (json!([name("prefix", "web"), name("!=", "web-1")]), false),
        (json!([name("!=", "a"), name("!=", "b")]), true),
        (json!([name("!=", "a"), name("!=", "web-1")]), false),
        (json!([name("prefix", "web"), label("app", "db")]), false),
        (json!([label("app", "db"), label("app", "web")]), true),
        // Two labels are two keys.
        (json!([label("app", "web"), label("tier", "x")]), false),
    ];
    for (criteria, expected) in cases {
        assert_eq!(fits(&criteria), expected, "{criteria}");
    }
}

#[test]
fn what_is_no_workload_is_in_groups_of_addresses_alone() {
    let mut groups = Groups::new(GroupMode::Discover);
    let network = json!({"key": "address", "op": "=", "value": "192.0.2.0/24"});
    let name = json!({"key": "name", "op": "!=", "value": "x"});
    groups.apply_group(&group("office", None, &json!([network]))).unwrap();
    groups.apply_group(&group("mixed", None, &json!([network, name]))).unwrap();
    let end = |address: &str| End {
        endpoint: Arc::new(Endpoint::External { name: None }),
        address: address.parse::<IpAddr>().unwrap(),
    };
    assert!(groups.has("office", &end("192.0.2.7")) && !groups.has("office", &end("192.0.3.7")));
    assert!(!groups.has("mixed", &end("192.0.2.7")) && !groups.has("none", &end("192.0.2.7")));
    assert_eq!(groups.mode(&end("192.0.2.7")), None);
}

#[test]
fn the_strictest_mode_of_its_groups_is_a_workloads() {
    let mut groups = Groups::new(GroupMode::Discover);
    groups.apply_pod(&pod("shop", "web-1", "web"), Moment(0));
    let mode = |groups: &Groups| groups.of(&"shop".into(), &"web-1".into()).unwrap().mode;
    let all = json!([{"key": "namespace", "op": "=", "value": "shop"}]);
    groups.apply_group(&group("plain", None, &all)).unwrap();
    assert_eq!(mode(&groups), GroupMode::Discover);
    groups.apply_group(&group("strict", Some("protect"), &all)).unwrap();
    groups.apply_group(&group("watched", Some("monitor"), &all)).unwrap();
    assert_eq!(mode(&groups), GroupMode::Protect);
    groups.delete_group("strict");
    assert_eq!(mode(&groups), GroupMode::Monitor);
}

#[test]
fn an_empty_learned_group_goes_after_its_time() {
    let mut groups = Groups::new(GroupMode::Discover);
    groups.apply_pod(&pod("shop", "web-1", "web"), Moment(0));
    groups.apply_pod(&pod("shop", "web-2", "web"), Moment(0));
    let learned = |groups: &Groups| groups.all_learned().first().map(|(_, _, members)| *members);
    assert_eq!(learned(&groups), Some(2));
    groups.delete_pod("shop-web-1", Moment(1000));
    groups.delete_pod("shop-web-2", Moment(2000));
    let hour = Duration::from_secs(3600);
    groups.age(Moment(3_601_000), hour);
    assert_eq!(learned(&groups), Some(0));
    groups.apply_pod(&pod("shop", "web-3", "web"), Moment(3_601_000));
    groups.age(Moment(9_000_000), hour);
    assert_eq!(learned(&groups), Some(1));
    groups.delete_pod("shop-web-3", Moment(9_000_000));
    groups.age(Moment(9_000_000 + 3_600_000), hour);
    assert_eq!(learned(&groups), None);
}

#[derive(Clone, Debug)]
enum Change {
    Pod(u8, u8),
    PodGone(u8),
    Namespace(u8, u8),
    Service(u8, u8),
    ServiceGone(u8),
    Group(u8, usize),
    GroupGone(u8),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (0_u8..4, 0_u8..3).prop_map(|(pod, app)| Change::Pod(pod, app)),
        (0_u8..4).prop_map(Change::PodGone),
        (0_u8..2, 0_u8..3).prop_map(|(namespace, team)| Change::Namespace(namespace, team)),
        (0_u8..2, 0_u8..3).prop_map(|(service, app)| Change::Service(service, app)),
        (0_u8..2).prop_map(Change::ServiceGone),
        (0_u8..3, 0_usize..4).prop_map(|(group, criteria)| Change::Group(group, criteria)),
        (0_u8..3).prop_map(Change::GroupGone),
    ]
}

proptest! {
    #[test]
    fn what_changed_step_by_step_is_what_all_of_it_gives_at_once(
        changes in prop::collection::vec(change(), 1..40),
    ) {
        let app = |n: u8| format!("app-{n}");
        let place = |pod: u8| (format!("ns-{}", pod % 2), format!("pod-{pod}"));
        let criteria = [
            json!([{"key": "label", "label": "app", "op": "=", "value": "app-1"}]),
            json!([{"key": "namespaceLabel", "label": "team", "op": "!=", "value": "app-1"}]),
            json!([{"key": "service", "op": "contains", "value": "service"}]),
            json!([{"key": "name", "op": "regex", "value": "[02]$"}]),
        ];
        let mut groups = Groups::new(GroupMode::Discover);
        let (mut pods, mut teams, mut services, mut made) =
            (vec![None; 4], vec![None; 2], vec![None; 2], vec![None; 3]);
        let at = Moment(0);
        for change in changes {
            match change {
                Change::Pod(n, a) => {
                    let (namespace, name) = place(n);
                    let facts = pod(&namespace, &name, &app(a));
                    groups.apply_pod(&facts, at);
                    pods[usize::from(n)] = Some(facts);
                }
                Change::PodGone(n) => {
                    let (namespace, name) = place(n);
                    groups.delete_pod(&format!("{namespace}-{name}"), at);
                    pods[usize::from(n)] = None;
                }
                Change::Namespace(n, team) => {
                    let value = labels(&[("team", &app(team))]);
                    groups.apply_namespace(&format!("ns-{n}").into(), &value);
                    teams[usize::from(n)] = Some(value);
                }
                Change::Service(n, a) => {
                    let facts = service(&format!("ns-{n}"), "service", &app(a));
                    groups.apply_service(&facts);
                    services[usize::from(n)] = Some(facts);
                }
                Change::ServiceGone(n) => {
                    groups.delete_service(&format!("ns-{n}"), "service");
                    services[usize::from(n)] = None;
                }
                Change::Group(n, which) => {
                    let mode = ["discover", "monitor", "protect"][usize::from(n)];
                    let group = group(&format!("g-{n}"), Some(mode), &criteria[which]);
                    groups.apply_group(&group).unwrap();
                    made[usize::from(n)] = Some(group);
                }
                Change::GroupGone(n) => {
                    groups.delete_group(&format!("g-{n}"));
                    made[usize::from(n)] = None;
                }
            }
        }
        let mut afresh = Groups::new(GroupMode::Discover);
        for (n, value) in teams.iter().enumerate() {
            if let Some(value) = value {
                afresh.apply_namespace(&format!("ns-{n}").into(), value);
            }
        }
        services.iter().flatten().for_each(|service| _ = afresh.apply_service(service));
        made.iter().flatten().for_each(|group| afresh.apply_group(group).unwrap());
        pods.iter().flatten().for_each(|pod| _ = afresh.apply_pod(pod, at));
        for pod in pods.iter().flatten() {
            let of = |groups: &Groups| groups.of(&pod.namespace, &pod.name).cloned();
            prop_assert_eq!(of(&groups), of(&afresh));
        }
        let alive = |groups: &Groups| {
            let mut learned = groups.all_learned();
            learned.retain(|(_, _, members)| *members > 0);
            learned
        };
        prop_assert_eq!(alive(&groups), alive(&afresh));
    }
}
