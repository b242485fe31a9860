use proptest::prelude::*;
use stallproof::Map;

use traffic::ingest::AgentPolicy;

use super::*;

fn network() -> impl Strategy<Value = IpNet> {
    prop_oneof![
        (any::<[u8; 4]>(), 0u8..=32).prop_map(|(a, p)| IpNet::new(a.into(), p).unwrap()),
        (any::<[u8; 16]>(), 0u8..=128).prop_map(|(a, p)| IpNet::new(a.into(), p).unwrap()),
    ]
}

fn mode() -> impl Strategy<Value = GroupMode> {
    prop_oneof![Just(GroupMode::Discover), Just(GroupMode::Monitor), Just(GroupMode::Protect)]
}

prop_compose! {
    fn a_rule()(
        name in "[a-e]", learned: bool, priority: i32, allows: bool,
        ports in proptest::collection::vec(any::<(u8, u16, u16)>(), 0..3),
        applications in proptest::collection::vec("[a-z]{1,8}", 0..3),
    ) -> AgentRule {
        let ports = ports.into_iter().map(|(protocol, first, last)| {
            Ports { protocol: Protocol(protocol), first, last }
        });
        AgentRule {
            name: name.into(), learned, priority, from: "any".into(), to: "x/Deployment/y".into(),
            ports: ports.collect(), applications, allows,
        }
    }
}

prop_compose! {
    fn a_group()(
        networks in proptest::collection::vec(network(), 0..4),
        except in proptest::collection::vec(network(), 0..2),
        mode in proptest::option::of(mode()),
    ) -> AgentGroup {
        AgentGroup { networks, except, mode }
    }
}

prop_compose! {
    fn a_state()(
        version: u64, mode in mode(),
        rules in proptest::collection::vec(a_rule(), 0..5),
        groups in proptest::collection::hash_map("[a-e]", a_group(), 0..5),
    ) -> AgentPolicy {
        let rules = rules.into_iter().map(|rule| (rule.name.clone(), Arc::new(rule)));
        let groups = groups.into_iter().map(|(name, group)| (name.into(), Arc::new(group)));
        AgentPolicy { version, mode, rules: rules.collect(), groups: groups.collect() }
    }
}

proptest! {
    #[test]
    fn changes_over_the_wire_bring_an_agent_to_every_state(
        states in proptest::collection::vec(a_state(), 1..6),
    ) {
        let mut agent = AgentPolicy {
            version: 0, rules: Map::new(), groups: Map::new(), mode: GroupMode::Discover,
        };
        // It had something that nobody knows of.
        agent.rules.insert("z".into(), Arc::new(AgentRule {
            name: "z".into(), learned: false, priority: 0, from: "any".into(), to: "any".into(),
            ports: vec![], applications: vec![], allows: false,
        }));
        let mut before = None;
        for now in &states {
            let sent = proto::RuleChange::from(RuleChange::between(before, now));
            let came = RuleChange::try_from(sent).unwrap();
            prop_assert_eq!(came.whole, before.is_none());
            came.apply(&mut agent);
            prop_assert_eq!(&agent, now);
            before = Some(now);
        }
    }
}

#[test]
fn what_did_not_change_is_not_sent() {
    let rule = |name: &str| {
        Arc::new(AgentRule {
            name: name.into(),
            learned: false,
            priority: 0,
            from: "any".into(),
            to: "any".into(),
            ports: vec![],
            applications: vec![],
            allows: true,
        })
    };
    let rules: Map<_, _> = ["a", "b"].map(|name| (name.into(), rule(name))).into_iter().collect();
    let before = AgentPolicy { version: 1, rules, groups: Map::new(), mode: GroupMode::Discover };
    let mut now = AgentPolicy { version: 2, ..before.clone() };
    now.rules.insert("c".into(), rule("c"));
    now.rules.remove("a");
    let change = RuleChange::between(Some(&before), &now);
    assert_eq!(change.rules, [rule("c")]);
    assert_eq!(change.removed_rules, ["a".into()]);
}
