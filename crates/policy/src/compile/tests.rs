#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod generate;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use objects::kinds::Protocol;
use proptest::prelude::*;

use super::{Change, Compiler};
use crate::Publisher;
use crate::evaluate::{Connection, DecidedBy, End, decide};
use crate::program::{Delta, Direction, MOST_LOOKUPS, Note, Packet, Program};
use generate::{NODES, changes};

/// Addresses of pods, of nodes, of services, unmanaged ones and some outside.
fn addresses() -> Vec<IpAddr> {
    let pods = (1..=9).flat_map(|i| [format!("10.0.0.{i}"), format!("fd00::{i}")]);
    let others = ["192.168.0.1", "192.168.0.2", "fd01::1", "10.96.0.1", "203.0.113.7", "8.8.8.8"];
    let more = ["10.0.0.200", "2001:db8::1"];
    let all = pods.chain(others.map(str::to_owned)).chain(more.map(str::to_owned));
    all.map(|text| text.parse().unwrap()).collect()
}

const PORTS: [(Protocol, u16); 7] = [
    (Protocol::TCP, 80),
    (Protocol::TCP, 81),
    (Protocol::TCP, 8080),
    (Protocol::TCP, 443),
    (Protocol::UDP, 53),
    (Protocol::SCTP, 80),
    (Protocol::ICMP, 0),
];

fn programs(compiler: &Compiler) -> BTreeMap<&'static str, Program> {
    NODES.into_iter().map(|node| (node, compiler.program(node, 1))).collect()
}

/// Every difference between what the programs say and what the documents do.
fn disagreements(compiler: &Compiler) -> Vec<String> {
    let (cluster, policies) = (compiler.cluster(), compiler.policies());
    let programs = programs(compiler);
    let mut wrong = Vec::new();
    let addresses = addresses();
    let pairs = addresses.iter().flat_map(|a| addresses.iter().map(move |b| (*a, *b)));
    for (source, destination) in pairs.filter(|(a, b)| a.is_ipv4() == b.is_ipv4()) {
        let (from, to) = (End::of_address(cluster, source), End::of_address(cluster, destination));
        for (protocol, port) in PORTS {
            let connection = Connection { from: from.clone(), to: to.clone(), protocol, port };
            let expected = decide(cluster, policies, &connection);
            for (direction, subject, decided) in [
                (Direction::Egress, &from, &expected.egress),
                (Direction::Ingress, &to, &expected.ingress),
            ] {
                let Some(pod) = &subject.pod else {
                    assert_eq!(decided.by, DecidedBy::NotSelectable);
                    continue;
                };
                let Some(program) = programs.get(&*pod.node) else { continue };
                let from_own_node = from.node.as_ref() == Some(&pod.node);
                let to_own_node = to.node.as_ref() == Some(&pod.node);
                let packet =
                    Packet { source, destination, protocol, port, from_own_node, to_own_node };
                let judged = program.judge(&packet);
                let judged = match direction {
                    Direction::Egress => judged.egress,
                    Direction::Ingress => judged.ingress,
                };
                let sources =
                    judged.by.as_ref().map(|by| Arc::clone(&by.sources)).unwrap_or_default();
                // A merged rule may stand for another rule of the same tier and verdict that matches too.
                let named = match &decided.by {
                    DecidedBy::Rule { tier, .. } => judged.by.is_some_and(|by| by.tier == *tier),
                    DecidedBy::Isolation { policies } => {
                        policies.iter().all(|source| sources.contains(source))
                    }
                    DecidedBy::OwnNode if direction == Direction::Egress => judged
                        .by
                        .is_some_and(|by| by.tier == crate::program::TierKind::NetworkPolicy),
                    _ => sources.is_empty(),
                };
                let reports: Vec<_> = judged.reported.iter().map(|by| by.tier).collect();
                let expected_reports: Vec<_> = decided
                    .tiers
                    .iter()
                    .filter(|it| matches!(it.decided, Some((crate::program::Verdict::Report, _))))
                    .map(|it| it.tier)
                    .collect();
                if judged.denied == decided.allowed || !named || reports != expected_reports {
                    wrong.push(format!(
                        "{source} -> {destination} {protocol}/{port} {direction:?}: the program says \
                         denied {} by {sources:?} reports {reports:?}, the documents {decided:?}",
                        judged.denied
                    ));
                }
            }
        }
    }
    wrong
}

/// A compiler that is told what there is now, and nothing of how it came.
fn from_scratch(compiler: &Compiler) -> Compiler {
    let mut fresh = Compiler::new(compiler.policies().settings);
    let (cluster, policies) = (compiler.cluster(), compiler.policies());
    let mut all: Vec<Change> = Vec::new();
    // In another order than any history: pods first.
    all.extend(cluster.pods.iter().map(|(k, v)| Change::Pod(k.clone(), Some(v.clone()))));
    all.extend(policies.rules.iter().map(|(k, v)| Change::Rule(k.clone(), Some(v.clone()))));
    all.extend(policies.groups.iter().map(|(k, v)| Change::Group(k.clone(), Some(v.clone()))));
    let network = policies.network.iter();
    all.extend(network.map(|(k, v)| Change::NetworkPolicy(k.clone(), Some(v.clone()))));
    let of_cluster = policies.cluster.iter();
    all.extend(of_cluster.map(|(k, v)| Change::ClusterPolicy(k.clone(), Some(v.clone()))));
    all.extend(cluster.services.iter().map(|(k, v)| Change::Service(k.clone(), Some(v.clone()))));
    all.extend(cluster.nodes.iter().map(|(k, v)| Change::Node(k.clone(), Some(v.clone()))));
    let namespaces = cluster.namespaces.iter();
    all.extend(namespaces.map(|(k, v)| Change::Namespace(k.clone(), Some(v.clone()))));
    all.into_iter().for_each(|change| fresh.apply(change));
    fresh
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn programs_decide_as_the_documents_say(changes in changes(40)) {
        let mut compiler = Compiler::default();
        changes.into_iter().for_each(|change| compiler.apply(change));
        let wrong = disagreements(&compiler);
        prop_assert!(wrong.is_empty(), "{} differ, as {}", wrong.len(), wrong[0]);
    }

    #[test]
    fn after_any_changes_programs_are_those_from_scratch_and_deltas_lead_there(
        changes in changes(60),
        late in 0..60_usize,
    ) {
        let mut publisher = Publisher::new(Compiler::default(), 0);
        let mut agents: BTreeMap<&str, Program> = BTreeMap::new();
        for (turn, change) in changes.into_iter().enumerate() {
            // One node is followed from the beginning, and the others later.
            let followed = if turn < late { &NODES[..1] } else { &NODES[..] };
            for node in followed {
                agents.entry(node).or_insert_with(|| (*publisher.follow(node)).clone());
            }
            publisher.apply(change);
            let told: BTreeMap<_, _> = publisher.publish().into_iter().collect();
            for (node, agent) in &mut agents {
                let now = publisher.compiler().program(node, publisher.generation());
                prop_assert_eq!(now.check(), Ok(()));
                let before = Program { generation: now.generation, ..agent.clone() };
                prop_assert_eq!(told.contains_key(*node), before != now, "{} was told or not", node);
                if before == now {
                    continue;
                }
                let delta = Delta::between(agent, &now);
                prop_assert_eq!(agent.apply(&delta), Ok(()));
                prop_assert_eq!(&*agent, &now);
            }
        }
        let compiler = publisher.compiler();
        let fresh = from_scratch(compiler);
        prop_assert_eq!(programs(compiler), programs(&fresh));
        prop_assert_eq!(compiler.sizes(), fresh.sizes());
        prop_assert_eq!(compiler.atoms.len(), fresh.atoms.len());
    }

    #[test]
    fn long_chains_are_noted(changes in changes(60)) {
        let mut compiler = Compiler::default();
        changes.into_iter().for_each(|change| compiler.apply(change));
        for program in programs(&compiler).values() {
            let long: BTreeSet<_> = program
                .chains
                .iter()
                .filter(|(_, chain)| chain.lookups() > MOST_LOOKUPS)
                .map(|(id, _)| *id)
                .collect();
            let noted: BTreeSet<_> =
                program.notes.iter().map(|Note::Long { chain, .. }| *chain).collect();
            prop_assert_eq!(long, noted);
        }
    }
}

/// The checks above can fail: each planted fault is found.
#[test]
fn planted_faults_are_found() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let (mut verdicts, mut orders, mut elements) = (0, 0, 0);
    for _ in 0..40 {
        let mut compiler = Compiler::default();
        let changes = changes(40).new_tree(&mut runner).unwrap().current();
        changes.into_iter().for_each(|change| compiler.apply(change));
        assert_eq!(disagreements(&compiler), Vec::<String>::new());
        // The last rule of every chain is lost.
        let mut faulty = compiler.clone();
        for state in faulty.chains.values_mut() {
            let mut chain = (*state.chain).clone();
            _ = chain.tiers.last_mut().and_then(|tier| tier.rules.pop());
            state.chain = Arc::new(chain);
        }
        verdicts += usize::from(!disagreements(&faulty).is_empty());
        // The tiers are asked in the wrong order.
        let mut faulty = compiler.clone();
        for state in faulty.chains.values_mut() {
            let mut chain = (*state.chain).clone();
            chain.tiers.reverse();
            state.chain = Arc::new(chain);
        }
        orders += usize::from(!disagreements(&faulty).is_empty());
        // A set keeps an address that is not its own any more.
        let mut faulty = compiler.clone();
        for state in faulty.sets.values_mut() {
            let address = "10.0.0.3".parse().unwrap();
            state.set.elements.insert(crate::program::Element::Address(address));
        }
        elements += usize::from(!disagreements(&faulty).is_empty());
    }
    assert!(verdicts > 20, "{verdicts} of 40");
    assert!(orders > 5, "{orders} of 40");
    assert!(elements > 5, "{elements} of 40");
}
