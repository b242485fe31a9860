//! Whatever an export says, what is imported allows nothing that NeuVector would not: a model of NeuVector's
//! groups and rules, as its sources have them, is held against ours.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use neuvector::{Imported, Settings, import};
use objects::kinds::{GroupCriteria, GroupSubject, Ports, Protocol, RuleAction};
use proptest::prelude::*;
use serde_json::{Value, json};

/// One end of a conversation.
#[derive(Clone, Debug)]
enum Party {
    Workload(Workload),
    External(IpAddr),
    Node,
}

#[derive(Clone, Debug)]
struct Workload {
    namespace: String,
    /// The Deployment that made it.
    service: String,
    pod: String,
    image: String,
    labels: BTreeMap<String, String>,
    namespace_labels: BTreeMap<String, String>,
    address: IpAddr,
}

/// NeuVector's `EqualMatch`.
fn equal(pattern: &str, value: &str) -> bool {
    if !pattern.contains(['?', '*']) {
        return pattern == value;
    }
    let text = pattern.replace('.', "\\.").replace('?', ".").replace('*', ".*");
    match regex::Regex::new(&format!("^{text}$")) {
        Ok(regex) => regex.is_match(value),
        Err(_) => pattern == value,
    }
}

/// NeuVector's `isCriterionMet`: whether it holds, and whether it is positive.
fn met(op: &str, wanted: &str, value: &str) -> (bool, bool) {
    let matches = || regex::Regex::new(wanted).is_ok_and(|regex| regex.is_match(value));
    match op {
        "=" if wanted == "any" => (true, true),
        "=" => (equal(wanted, value), true),
        "!=" => (!equal(wanted, value), false),
        "contains" => (value.contains(wanted), true),
        "prefix" => (value.starts_with(wanted), true),
        "regex" => (matches(), true),
        "!regex" => (!matches(), false),
        _ => (false, true),
    }
}

/// NeuVector's `IsWorkloadSelected`.
fn selected(criteria: &[Value], workload: &Workload) -> bool {
    let mut results: HashMap<String, (bool, bool)> = HashMap::new();
    for criterion in criteria {
        let text = |field: &str| criterion[field].as_str().unwrap();
        let (key, op, value) = (text("key"), text("op"), text("value"));
        let service = format!("{}.{}", workload.service, workload.namespace);
        let (fold, (holds, positive)) = match key {
            "image" => (key, met(op, value, &workload.image)),
            "node" => (key, met(op, value, "node-1")),
            "service" => (key, met(op, value, &service)),
            "domain" | "namespace" => (key, met(op, value, &workload.namespace)),
            "address" => return false,
            label => {
                let (fold, found) = match label.strip_prefix("ns:") {
                    Some(label) => ("ns-label", workload.namespace_labels.get(label)),
                    None => ("pod-label", workload.labels.get(label)),
                };
                (fold, found.map_or((false, true), |found| met(op, value, found)))
            }
        };
        let entry = results.entry(fold.to_owned());
        entry
            .and_modify(|(result, was_positive)| {
                *result =
                    if !positive && !*was_positive { *result && holds } else { *result || holds };
                *was_positive |= positive;
            })
            .or_insert((holds, positive));
    }
    !results.is_empty() && results.values().all(|(result, _)| *result)
}

fn in_range(value: &str, address: IpAddr) -> bool {
    match value.split_once('-') {
        Some((first, last)) => {
            (first.parse::<IpAddr>().unwrap()..=last.parse().unwrap()).contains(&address)
        }
        None => value.parse::<ipnet::IpNet>().map_or_else(
            |_| value.parse::<IpAddr>().is_ok_and(|it| it == address),
            |network| network.contains(&address),
        ),
    }
}

/// Whether NeuVector's group of this name stands for an end.
fn stands_for(name: &str, groups: &HashMap<String, Vec<Value>>, party: &Party) -> bool {
    match (name, party) {
        ("nodes", Party::Node)
        | ("containers", Party::Workload(_))
        | ("external", Party::External(_)) => true,
        ("nodes" | "containers" | "external", _) => false,
        (name, Party::Workload(workload)) => selected(&groups[name], workload),
        (name, Party::External(address)) => {
            let criteria = &groups[name];
            criteria.iter().all(|it| it["key"] == "address")
                && criteria.iter().any(|it| in_range(it["value"].as_str().unwrap(), *address))
        }
        (_, Party::Node) => false,
    }
}

fn port_is_in(text: &str, protocol: Protocol, port: u16) -> bool {
    text == "any"
        || text.split(',').any(|word| match word {
            "icmp" => protocol == Protocol::ICMP,
            "udp/any" => protocol == Protocol::UDP,
            word => {
                let (of, range) = match word.split_once('/') {
                    Some(("udp", range)) => (Protocol::UDP, range),
                    Some((_, range)) => (Protocol::TCP, range),
                    None => (Protocol::TCP, word),
                };
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                of == protocol && (first.parse().unwrap()..=last.parse().unwrap()).contains(&port)
            }
        })
}

#[derive(Clone, Debug)]
struct Rule {
    from: String,
    to: String,
    action: &'static str,
    ports: String,
    priority: u32,
}

#[derive(Clone, Debug)]
struct Talk {
    client: Party,
    server: Party,
    protocol: Protocol,
    port: u16,
}

/// Whether NeuVector allows it by a rule, whatever the order within one priority.
fn theirs(rules: &[Rule], groups: &HashMap<String, Vec<Value>>, talk: &Talk) -> bool {
    let matching = rules.iter().filter(|rule| {
        stands_for(&rule.from, groups, &talk.client)
            && stands_for(&rule.to, groups, &talk.server)
            && port_is_in(&rule.ports, talk.protocol, talk.port)
    });
    let matching: Vec<_> = matching.collect();
    let Some(first) = matching.iter().map(|rule| rule.priority).max() else { return false };
    matching.iter().filter(|rule| rule.priority == first).all(|rule| rule.action == "allow")
}

/// Whether ours stands for an end.
fn fits(name: &str, imported: &Imported, party: &Party) -> bool {
    match (name, party) {
        ("any", _)
        | ("hosts", Party::Node)
        | ("workloads", Party::Workload(_))
        | ("external", Party::External(_)) => return true,
        ("hosts" | "workloads" | "external", _) => return false,
        _ => {}
    }
    let group =
        imported.groups.iter().find(|it| it.metadata.name.as_deref() == Some(name)).unwrap();
    let criteria = GroupCriteria::compile(&group.spec.criteria).unwrap();
    match party {
        Party::Node => false,
        Party::External(address) => criteria.fits_address(*address),
        Party::Workload(workload) => criteria.fits(&GroupSubject {
            namespace: &workload.namespace,
            name: &workload.pod,
            owner: Some(&format!("Deployment/{}", workload.service)),
            node: "node-1",
            images: std::slice::from_ref(&workload.image),
            labels: &workload.labels,
            addresses: &[workload.address],
            services: &[],
            namespace_labels: Some(&workload.namespace_labels),
        }),
    }
}

fn ours(imported: &Imported, talk: &Talk) -> bool {
    let mut rules: Vec<_> = imported.rules.iter().collect();
    rules.sort_by_key(|rule| (rule.spec.priority, rule.metadata.name.clone()));
    let decided = rules.into_iter().find(|rule| {
        let spec = &rule.spec;
        let has_port = spec.ports.is_empty()
            || spec
                .ports
                .iter()
                .any(|it| it.parse::<Ports>().unwrap().contains(talk.protocol, talk.port));
        has_port
            && fits(&spec.from, imported, &talk.client)
            && fits(&spec.to, imported, &talk.server)
    });
    decided.is_some_and(|rule| rule.spec.action == RuleAction::Allow)
}

fn criterion() -> impl Strategy<Value = Value> {
    let op = prop::sample::select(vec!["=", "!=", "contains", "prefix", "regex", "!regex"]);
    let word = prop::sample::select(vec!["a", "b", "ab", "a*", "?b", "any", "^a", "b$", "a.b*"]);
    let key = prop::sample::select(vec!["image", "domain", "app", "tier", "ns:team", "node"]);
    let plain =
        (key, op, word).prop_map(|(key, op, value)| json!({"key": key, "op": op, "value": value}));
    let service = prop::sample::select(vec!["web.a", "web.ab", "db.a", "web-x.a"])
        .prop_map(|value| json!({"key": "service", "op": "=", "value": value}));
    let address = prop::sample::select(vec![
        "10.0.0.0/8",
        "203.0.113.0/24",
        "203.0.113.7",
        "203.0.113.5-203.0.113.9",
        "0.0.0.0/0",
    ])
    .prop_map(|value| json!({"key": "address", "op": "=", "value": value}));
    prop_oneof![6 => plain, 1 => service, 1 => address]
}

fn workload() -> impl Strategy<Value = Workload> {
    let word = || prop::sample::select(vec!["a", "b", "ab", "ba", "a.b"]);
    let labels = || {
        prop::collection::btree_map(prop::sample::select(vec!["app", "tier", "team"]), word(), 0..3)
    };
    let service = prop::sample::select(vec!["web", "db", "web-x", "web-admin"]);
    let end = prop::sample::select(vec!["-7d4b9c-xk2vz", "-0", "-x2b4d", ""]);
    let owned = |map: BTreeMap<&'static str, &'static str>| {
        map.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect::<BTreeMap<_, _>>()
    };
    let address = prop::sample::select(vec!["10.1.2.3", "10.200.0.9", "10.9.9.9"]);
    (word(), service, end, word(), labels(), labels(), address).prop_map(
        move |(namespace, service, end, image, labels, namespace_labels, address)| Workload {
            namespace: namespace.to_owned(),
            service: service.to_owned(),
            pod: format!("{service}{end}"),
            image: image.to_owned(),
            labels: owned(labels),
            namespace_labels: owned(namespace_labels),
            address: address.parse().unwrap(),
        },
    )
}

fn party() -> impl Strategy<Value = Party> {
    let address = prop::sample::select(vec!["203.0.113.7", "203.0.113.200", "10.200.0.1"]);
    prop_oneof![
        6 => workload().prop_map(Party::Workload),
        2 => address.prop_map(|address| Party::External(address.parse().unwrap())),
        1 => Just(Party::Node),
    ]
}

fn rule() -> impl Strategy<Value = Rule> {
    let name = || prop::sample::select(vec!["g0", "g1", "g2", "nodes", "containers", "external"]);
    let ports = prop::sample::select(vec![
        "any",
        "tcp/80",
        "80,443",
        "udp/any",
        "icmp",
        "tcp/1-100,udp/53",
    ]);
    (name(), name(), prop::bool::ANY, ports, 0_u32..3).prop_map(
        |(from, to, allow, ports, priority)| Rule {
            from: from.to_owned(),
            to: to.to_owned(),
            action: if allow { "allow" } else { "deny" },
            ports: ports.to_owned(),
            priority,
        },
    )
}

fn documents(groups: &HashMap<String, Vec<Value>>, rules: &[Rule]) -> Vec<Value> {
    let mut documents: Vec<_> = groups
        .iter()
        .map(|(name, criteria)| {
            json!({"kind": "NvGroupDefinition", "metadata": {"name": name},
                   "spec": {"selector": {"name": name, "criteria": criteria}}})
        })
        .collect();
    for (i, rule) in rules.iter().enumerate() {
        documents.push(json!({"kind": "NvClusterSecurityRule", "metadata": {"name": format!("r{i}")}, "spec": {
            "target": {"selector": {"name": rule.to, "name_referral": true}},
            "ingress": [{"selector": {"name": rule.from, "name_referral": true}, "applications": ["any"],
                "ports": rule.ports, "action": rule.action, "name": format!("rule-{i}"), "priority": rule.priority}],
            "egress": [],
        }}));
    }
    documents
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn what_is_imported_allows_nothing_more(
        criteria in prop::collection::vec(prop::collection::vec(criterion(), 1..4), 3),
        rules in prop::collection::vec(rule(), 1..6),
        talks in prop::collection::vec((party(), party(), prop::bool::ANY, 0_usize..3), 8),
    ) {
        let groups: HashMap<_, _> =
            criteria.into_iter().enumerate().map(|(i, criteria)| (format!("g{i}"), criteria)).collect();
        let imported = import(&documents(&groups, &rules), &Settings::default()).unwrap();
        for (client, server, is_tcp, port) in talks {
            let protocol = if is_tcp { Protocol::TCP } else { Protocol::UDP };
            let talk = Talk { client, server, protocol, port: [80, 443, 53][port] };
            if ours(&imported, &talk) {
                prop_assert!(
                    theirs(&rules, &groups, &talk),
                    "{talk:?} is allowed here and not there: {:?} {:?}", imported.rules, imported.report
                );
            }
        }
    }
}

#[test]
fn something_is_allowed_by_both() {
    let groups =
        HashMap::from([("g0".to_owned(), vec![json!({"key": "app", "op": "=", "value": "a"})])]);
    let rules = [Rule {
        from: "external".to_owned(),
        to: "g0".to_owned(),
        action: "allow",
        ports: "80".to_owned(),
        priority: 0,
    }];
    let imported = import(&documents(&groups, &rules), &Settings::default()).unwrap();
    let server = Workload {
        namespace: "a".to_owned(),
        service: "web".to_owned(),
        pod: "web-0".to_owned(),
        image: "a".to_owned(),
        labels: [("app".to_owned(), "a".to_owned())].into(),
        namespace_labels: BTreeMap::new(),
        address: "10.0.0.1".parse().unwrap(),
    };
    let talk = Talk {
        client: Party::External("203.0.113.7".parse().unwrap()),
        server: Party::Workload(server),
        protocol: Protocol::TCP,
        port: 80,
    };
    assert!(ours(&imported, &talk) && theirs(&rules, &groups, &talk));
    assert!(!ours(&imported, &Talk { port: 81, ..talk }));
}
