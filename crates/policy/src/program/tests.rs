use super::*;

#[test]
fn a_counter_outlives_what_its_rule_names() {
    let source =
        Source { kind: PolicyKind::NetworkPolicy, policy: "x/p".into(), rule: "ingress[0]".into() };
    let rule = |verdict, within| Rule::new(verdict, Vec::new(), within, vec![source.clone()]);
    let counter = |rule: &Rule| rule.counter(Direction::Ingress, TierKind::NetworkPolicy);
    let one = rule(Verdict::DROP, Some(SetId::of("one")));
    assert_eq!(counter(&one), counter(&rule(Verdict::Deny(Denial::Reject), None)));
    assert_ne!(counter(&one), counter(&rule(Verdict::Accept, None)));
    assert_ne!(counter(&one), one.counter(Direction::Egress, TierKind::NetworkPolicy));
}

#[test]
fn ids_are_the_same_everywhere() {
    // What is on a node's disk and on the wire is named by it: a change of this number is a change of both.
    assert_eq!(SetId::of("pods [app=web] of shop").to_string(), "da5284841b8a3129197451e662cea160");
}
