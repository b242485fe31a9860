#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use policy::program::{Chain, PolicyKind, Rule, Tier};

use super::*;

fn source(rule: &str) -> Source {
    Source { kind: PolicyKind::NetworkPolicy, policy: "shop/db".into(), rule: rule.into() }
}

fn program() -> (Arc<Program>, [CounterId; 2]) {
    let accept = Rule::new(Verdict::Accept, vec![], None, vec![source("ingress[0]")]);
    let deny = Rule::new(Verdict::DROP, vec![], None, vec![source("isolation")]);
    let tiers = vec![Tier { kind: TierKind::NetworkPolicy, rules: vec![accept, deny] }];
    let chain = Chain { direction: Direction::Ingress, tiers };
    let counters: Vec<_> = chain.counters().collect();
    let program = Program { chains: [(chain.id(), Arc::new(chain))].into(), ..Program::default() };
    (Arc::new(program), [counters[0], counters[1]])
}

fn total(counter: CounterId, packets: u64) -> RuleTotal {
    RuleTotal { counter, packets, bytes: 100 * packets }
}

#[test]
fn what_nodes_count_adds_up_and_what_comes_twice_counts_once() {
    let (program, [accept, deny]) = program();
    let (mut one, mut two) = (Totals::default(), Totals::default());
    for _ in 0..2 {
        one.take(&[total(accept, 3)], false);
    }
    two.take(&[total(accept, 4), total(deny, 1)], false);
    // A rule that no program has any more is nobody's.
    two.take(&[total(CounterId::of("gone"), 9)], false);
    let counts = of_nodes(&[(Arc::clone(&program), one.clone()), (Arc::clone(&program), two)]);
    let told: Vec<_> = counts
        .iter()
        .map(|it| (it.sources[0].rule.to_string(), it.packets, it.bytes, it.nodes))
        .collect();
    let expected = [("ingress[0]".to_owned(), 7, 700, 2), ("isolation".to_owned(), 1, 100, 2)];
    assert_eq!(told, expected);
    // An agent that begins anew has counted nothing before.
    one.take(&[total(deny, 2)], true);
    let counts = of_nodes(&[(program, one)]);
    assert_eq!(counts.iter().map(|it| it.packets).collect::<Vec<_>>(), [0, 2]);
}
