//! Ten agents tell of a hundred thousand conversations between two thousand workloads: what is kept, what is
//! left to another agent, and what the sums are.

use std::collections::HashSet;

use super::*;

const AGENTS: usize = 10;
const WORKLOADS: usize = 2000;
const OTHERS: usize = 50;
const EACH: usize = WORKLOADS / AGENTS;

fn address(workload: usize) -> IpAddr {
    IpAddr::from([10, 100, (workload >> 8) as u8, workload as u8])
}

/// Workloads talk to others of their neighbourhood, of which many are on the next nodes.
fn talk(workload: usize) -> impl Iterator<Item = Record> {
    (1..=OTHERS).map(move |other| {
        let server = address((workload + 7 * other) % WORKLOADS);
        record(address(workload), server, 8000 + other as u16 % 3, 1000 * other as u64, 100)
    })
}

fn node_of(workload: usize) -> usize {
    workload / EACH
}

fn known() -> Directory {
    let mut directory = Directory::new();
    directory.set_ranges(&["10.0.0.0/8".parse().unwrap()]);
    for workload in 0..WORKLOADS {
        let pod = PodFacts {
            uid: format!("{workload}").into(),
            namespace: format!("team-{}", node_of(workload) % 7).into(),
            name: format!("app-{workload}").into(),
            owner: None,
            node: format!("node-{}", node_of(workload)).into(),
            addresses: vec![address(workload)],
            images: Vec::new(),
            labels: Labels::new(),
            from: Moment(0),
            until: None,
        };
        directory.apply_pod(&pod, Moment(0));
    }
    directory
}

/// What every agent tells: of its own workloads as clients, and as servers if it sees both sides.
fn told(agent: usize, sees_servers: bool) -> Vec<Record> {
    let all = (0..WORKLOADS).flat_map(|client| talk(client).map(move |it| (client, it)));
    let own: HashSet<_> = (agent * EACH..(agent + 1) * EACH).map(address).collect();
    let wanted = |(client, record): &(usize, Record)| {
        node_of(*client) == agent || (sees_servers && own.contains(&record.server))
    };
    all.filter(wanted).map(|(_, record)| record).collect()
}

/// Conversations kept, records left to another agent, and everything that was counted.
fn count(directory: Directory, sees_servers: bool) -> (usize, usize, Totals) {
    let mut controller = Controller::new(2, Limits::default());
    controller.directory = directory;
    let mut left_out = 0;
    for agent in 0..AGENTS {
        let name = format!("node-{agent}");
        for (sequence, records) in (1..).zip(told(agent, sees_servers).chunks(2000)) {
            let records = records.to_vec();
            let report = Report {
                agent: name.as_str().into(),
                incarnation: 1,
                sequence,
                records,
                ..Report::default()
            };
            left_out += controller.router.route(&report, &controller.directory, |_| true).left_out;
            let applied = controller.apply(&report, at(200));
            assert_eq!((applied.refused, applied.outdated), (0, None));
        }
    }
    let kept = controller.conversations().len();
    (kept, left_out, controller.readers.view().totals())
}

fn sum(records: impl Iterator<Item = Record>) -> Totals {
    let mut sum = Totals::ZERO;
    records.for_each(|record| sum += record.totals);
    sum
}

#[test]
fn what_both_agents_of_a_conversation_tell_is_all_kept_and_counted_once() {
    let everything = sum((0..WORKLOADS).flat_map(talk));
    let (kept, left_out, totals) = count(known(), true);
    assert_eq!((kept, totals), (WORKLOADS * OTHERS, everything));
    // Clients' agents told of what servers' agents count: once each, where the two are not the same.
    let apart = (0..WORKLOADS)
        .flat_map(|client| {
            (1..=OTHERS).map(move |other| (client, (client + 7 * other) % WORKLOADS))
        })
        .filter(|(client, server)| node_of(*client) != node_of(*server));
    assert_eq!(left_out, apart.count());
}

#[test]
fn what_only_the_clients_agent_tells_is_left_to_the_servers_agent_while_that_one_is_there() {
    let near: Vec<_> = (0..WORKLOADS)
        .flat_map(|client| {
            talk(client).zip(1..).map(move |(record, other)| (client, other, record))
        })
        .filter(|(client, other, _)| node_of(*client) == node_of((client + 7 * other) % WORKLOADS))
        .map(|(_, _, record)| record)
        .collect();
    let (kept, left_out, totals) = count(known(), false);
    assert_eq!(kept, near.len(), "of those on one node, every one");
    assert_eq!(kept + left_out, WORKLOADS * OTHERS, "the others are counted as left out, not lost");
    assert_eq!(totals, sum(near.into_iter()));
}

#[test]
fn of_workloads_that_nobody_knows_every_conversation_is_kept() {
    let (kept, left_out, totals) = count(Directory::new(), false);
    assert_eq!((kept, left_out), (WORKLOADS * OTHERS, 0));
    assert_eq!(totals, sum((0..WORKLOADS).flat_map(talk)));
}
