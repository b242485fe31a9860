#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use policy::program::{PolicyKind, Program, Source, Tier, TierKind};

use super::chain::KernelChain;
use super::*;

fn rule(verdict: program::Verdict, ports: &[&str], within: Option<SetId>) -> program::Rule {
    let source = Source {
        kind: PolicyKind::NetworkPolicy,
        policy: "shop/db".into(),
        rule: "ingress[0]".into(),
    };
    let ports = ports.iter().map(|it| it.parse().unwrap()).collect();
    program::Rule::new(verdict, ports, within, vec![source])
}

fn compiled(direction: Direction, tiers: Vec<Vec<program::Rule>>) -> KernelChain {
    let kinds = [TierKind::Admin, TierKind::NetworkPolicy, TierKind::Baseline];
    let tiers = kinds.into_iter().zip(tiers).map(|(kind, rules)| Tier { kind, rules }).collect();
    let mut program = Program::default();
    let networks = program::Element::Range {
        first: "10.0.0.0".parse().unwrap(),
        last: "10.0.0.255".parse().unwrap(),
    };
    let elements = [networks].into_iter().collect();
    let set = program::Set { kind: SetKind::Networks, elements };
    program.sets.insert(SetId::of("v4 only"), set);
    program.sets.insert(SetId::of("pods"), program::Set::new(SetKind::Addresses));
    let chain = program::Chain { direction, tiers };
    let [four, _] = self::chains(chain.id(), &chain, &program, Default::default());
    four
}

/// The verdict that a rule ends in.
fn ends(rule: &Rule) -> Option<&Verdict> {
    match rule.expressions.last().unwrap() {
        Expression::Verdict(verdict) => Some(verdict),
        Expression::Log { .. } => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_denial_with_conditions_is_asked_once_and_only_denied_packets_are_logged() {
    let deny = rule(program::Verdict::DROP, &["tcp/80", "udp"], Some(SetId::of("pods")));
    let KernelChain { chains, .. } = compiled(Direction::Ingress, vec![vec![deny]]);
    let [(_, main), (denial, ends_in)] = &chains[..] else { panic!("{chains:#?}") };
    let logs =
        |rule: &&Rule| rule.expressions.iter().any(|it| matches!(it, Expression::Log { .. }));
    assert_eq!((main.iter().filter(logs).count(), ends_in.iter().filter(logs).count()), (0, 1));
    let to_denial = Verdict::Goto(denial.name.clone());
    // One for the port and one for the protocol, and the end.
    assert_eq!(main.iter().filter(|rule| ends(rule) == Some(&to_denial)).count(), 2);
    // The counter is where everything that is denied comes by.
    assert_eq!(main.iter().filter(|rule| rule.tag != 0).count(), 0);
    assert!(ends_in.last().unwrap().tag != 0);
}

#[test]
fn what_discover_decides_is_no_rule() {
    use policy::compile::{Change, Compiler};
    use policy::spec::Settings;
    let mut compiler = Compiler::new(Settings::default());
    let key = policy::cluster::Key::new("a", "web");
    let pod = policy::cluster::Pod {
        key: key.clone(),
        node: "n".into(),
        labels: Default::default(),
        addresses: vec!["10.0.0.1".parse().unwrap()],
        host_network: false,
        finished: false,
        ports: vec![],
        images: vec![],
        owner: "Pod/web".into(),
        created: 0,
    };
    compiler.apply(Change::Namespace("a".into(), Some(Default::default())));
    compiler.apply(Change::Pod(key, Some(pod.into())));
    let program = compiler.program("n", 1);
    assert!(program.chains.is_empty() && program.sets.is_empty(), "{program:?}");
    let class = program.classes.values().next().unwrap();
    assert_eq!((class.egress, class.ingress), (None, None));
}

#[test]
fn what_passes_a_tier_goes_to_the_next_and_what_an_egress_chain_accepts_goes_on() {
    let pass = rule(program::Verdict::Pass, &["tcp/80"], None);
    let accept = rule(program::Verdict::Accept, &[], None);
    let deny = rule(program::Verdict::DROP, &[], None);
    let KernelChain { chains, .. } = compiled(
        Direction::Egress,
        vec![vec![pass.clone(), deny.clone()], vec![accept], vec![pass, deny]],
    );
    // Behind the first tier there is a place to go to; of the other two the last passes to the end.
    let [(first, one), (second, two)] = &chains[..] else { panic!("{chains:#?}") };
    let next = Verdict::Goto(second.name.clone());
    let dropped = Verdict::Goto(DROP.to_owned());
    let verdicts = |rules: &[Rule]| rules.iter().filter_map(ends).cloned().collect::<Vec<_>>();
    // Before it is dropped it is asked whether it is exempt, and logged.
    let exempt = Verdict::Jump(EXEMPT.to_owned());
    assert_eq!(verdicts(one), [&next, &exempt, &dropped, &next].map(Verdict::clone));
    let over = &Verdict::Return;
    assert_eq!(verdicts(two), [over, over, &exempt, &dropped, over].map(Verdict::clone));
    assert!(second.name.starts_with(&first.name));
}

#[test]
fn a_family_that_no_network_has_is_not_asked_about() {
    let within = |name: &str| rule(program::Verdict::Accept, &[], Some(SetId::of(name)));
    let rules = |tiers| compiled(Direction::Ingress, tiers).chains.remove(0).1;
    assert_eq!(rules(vec![vec![within("v4 only")]]).len(), 1 + 1);
    assert_eq!(rules(vec![vec![within("pods")]]).len(), 1 + 1);
    // Without the network: IPv6 is not in it.
    let mut not = rule(program::Verdict::Accept, &[], None);
    not.without = vec![SetId::of("v4 only")];
    let all = rules(vec![vec![not]]);
    let asks =
        |rule: &Rule| rule.expressions.iter().any(|it| matches!(it, Expression::Lookup { .. }));
    assert_eq!(all.iter().map(asks).collect::<Vec<_>>(), [true, false]);
    // A set that is nowhere has nobody in it.
    assert_eq!(rules(vec![vec![within("nowhere")]]).len(), 1);
}

#[test]
fn ports_are_compared_or_looked_up_and_whole_protocols_need_no_port() {
    let of = |ports: &[&str]| {
        let accept = rule(program::Verdict::Accept, ports, None);
        compiled(Direction::Ingress, vec![vec![accept]])
    };
    assert_eq!(of(&["tcp/80"]).sets.len(), 0);
    assert_eq!(of(&["tcp/80-90"]).sets.len(), 0);
    let several = of(&["tcp/80", "udp/53", "icmp"]);
    let [(set, elements)] = &several.sets[..] else { panic!() };
    assert!(!set.ranges && elements.len() == 2, "{set:?}");
    // ICMP by itself, the others together, the end.
    assert_eq!(several.chains[0].1.len(), 3);
    assert!(of(&["tcp/80", "tcp/90-95"]).sets[0].0.ranges);
}

#[test]
fn equal_rules_have_equal_digests_and_others_have_others() {
    let digests = |ports: &[&str]| -> Vec<u64> {
        let accept = rule(program::Verdict::Accept, ports, Some(SetId::of("pods")));
        let compiled = compiled(Direction::Ingress, vec![vec![accept]]);
        compiled.chains[0].1.iter().map(|rule| rule.digest).collect()
    };
    assert_eq!(digests(&["tcp/80"]), digests(&["tcp/80"]));
    assert_ne!(digests(&["tcp/80"]), digests(&["tcp/81"]));
}
