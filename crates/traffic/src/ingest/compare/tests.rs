use objects::kinds::{GroupMode, GroupSpec, NetworkRuleSpec};
use serde_json::json;

use super::*;
use crate::conversations::{
    Directory, Labels, Limits, PodFacts, Protocol, Record, Report, Router, Totals, shards,
};

fn pod(name: &str, number: u8) -> PodFacts {
    PodFacts {
        uid: name.into(),
        namespace: "shop".into(),
        name: name.into(),
        owner: Some(format!("Deployment/{name}").into()),
        node: "node-1".into(),
        addresses: vec![[10, 0, 0, number].into()],
        images: Vec::new(),
        labels: Labels::new(),
        from: Moment(0),
        until: None,
    }
}

fn record(client: [u8; 4], server: [u8; 4], port: u16, bytes: u64) -> Record {
    Record {
        client: client.into(),
        server: server.into(),
        port,
        protocol: Protocol::TCP,
        application: None,
        totals: Totals { bytes, packets: 1, sessions: 1 },
        first: Moment(1000),
        last: Moment(2000),
    }
}

fn rule(name: &str, spec: serde_json::Value) -> NetworkRule {
    NetworkRule::new(name, serde_json::from_value::<NetworkRuleSpec>(spec).unwrap())
}

#[test]
fn what_would_differ_is_told_with_both_verdicts_and_nothing_else() {
    let mut directory = Directory::new();
    directory.set_ranges(&["10.0.0.0/8".parse().unwrap()]);
    let mut groups = Groups::new(GroupMode::Monitor);
    for pod in [pod("web", 1), pod("db", 2)] {
        directory.apply_pod(&pod, Moment(0));
        groups.apply_pod(&pod, Moment(0));
    }
    let router = Router::new([1, 2], 2);
    let (mut shards, readers) = shards(router, Limits::default());
    let records = vec![
        record([10, 0, 0, 1], [10, 0, 0, 2], 5432, 4000),
        record([10, 0, 0, 1], [10, 0, 0, 2], 6432, 10),
        record([192, 0, 2, 7], [10, 0, 0, 1], 443, 70),
        record([198, 51, 100, 1], [192, 0, 2, 7], 1, 1),
    ];
    let report = Report {
        agent: "node-1".into(),
        incarnation: 1,
        sequence: 1,
        records,
        ..Report::default()
    };
    let routed = router.route(&report, &directory, |_| true);
    for (shard, part) in shards.iter_mut().zip(&routed.parts) {
        shard.apply(part, Moment(3000));
        shard.publish();
    }
    let view = readers.view();
    let compare = |rules: &[NetworkRule], proposal: &Proposal| {
        let (now, proposed) = policies(&groups, rules, &[], proposal).unwrap();
        compared(&now, &proposed, view.conversations(|_| true, Moment(0)), 10)
    };
    let db = rule(
        "db",
        json!({"from": "shop/Deployment/web", "to": "shop/Deployment/db",
                               "action": "allow", "ports": ["tcp/5432"]}),
    );
    let spec: GroupSpec = serde_json::from_value(
        json!({"criteria": [{"key": "address", "op": "=", "value": "192.0.2.0/24"}]}),
    )
    .unwrap();
    let office = Group::new("office", spec);
    let entry =
        rule("entry", json!({"from": "office", "to": "shop/Deployment/web", "action": "allow"}));

    let proposal =
        Proposal { groups: vec![office], rules: vec![entry.clone()], ..Proposal::default() };
    let beside = compare(std::slice::from_ref(&db), &proposal);
    assert_eq!(beside.compared, 4);
    assert_eq!(beside.changes, BTreeMap::from([(("violates", "allowed"), 1)]));
    assert_eq!(beside.differences[0].conversation.port, 443);
    assert_eq!(beside.differences[0].proposed.rule.as_deref(), Some("entry"));

    let alone = compare(std::slice::from_ref(&db), &Proposal { alone: true, ..proposal.clone() });
    let changes = [(("allowed", "violates"), 1), (("violates", "allowed"), 1)];
    assert_eq!(alone.changes, BTreeMap::from(changes));
    let first = &alone.differences[0];
    assert_eq!((first.conversation.port, first.conversation.rule.as_deref()), (5432, Some("db")));

    // One with the same name takes the place of the other.
    let wider = rule("db", json!({"from": "any", "to": "any", "action": "allow"}));
    let replaced = compare(&[db], &Proposal { rules: vec![wider], ..Proposal::default() });
    assert_eq!(replaced.changes, BTreeMap::from([(("violates", "allowed"), 2)]));
    let wrong = Proposal {
        rules: vec![rule("x", json!({"from": "No Such", "to": "any", "action": "allow"}))],
        ..Proposal::default()
    };
    assert!(policies(&groups, &[], &[], &wrong).is_err());
}
