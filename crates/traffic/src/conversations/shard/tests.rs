mod applications;
mod exactly_once;
mod many_agents;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::{Limits, Shard, shards};
use crate::conversations::{
    Applied, Conversation, DeniedRecord, Directory, Endpoint, Judge, Judgement, Labels, Moment,
    PodFacts, Protocol, Readers, Record, Report, Router, Service, Totals, Verdict,
};
use crate::conversations::{End, ExternalFacts};

const SEED: [u64; 2] = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];

/// `10.0.NODE.NUMBER`, on `node-NODE`, in namespace `ns-NODE`.
fn pod_address(node: u8, number: u8) -> IpAddr {
    IpAddr::from([10, 0, node, number])
}

fn directory() -> Directory {
    let mut directory = Directory::new();
    directory.set_ranges(&["10.0.0.0/8".parse().unwrap()]);
    for node in 0..3 {
        for number in 0..3 {
            let pod = PodFacts {
                uid: format!("{node}-{number}").into(),
                namespace: format!("ns-{node}").into(),
                name: format!("pod-{number}").into(),
                owner: Some(format!("Deployment/app-{number}").into()),
                node: format!("node-{node}").into(),
                addresses: vec![pod_address(node, number)],
                images: Vec::new(),
                labels: Labels::new(),
                from: Moment(0),
                until: None,
            };
            directory.apply_pod(&pod, Moment(0));
        }
    }
    let networks = vec!["192.0.2.0/24".parse().unwrap()];
    directory.set_externals(&[ExternalFacts { name: "office".into(), networks }]);
    directory
}

fn record(client: IpAddr, server: IpAddr, port: u16, bytes: u64, last: u64) -> Record {
    Record {
        client,
        server,
        port,
        protocol: Protocol::TCP,
        application: None,
        totals: Totals { bytes, packets: bytes / 10, sessions: 1 },
        first: Moment(1000),
        last: Moment::from_seconds(last as u32),
    }
}

/// A controller's part: a router, shards, and where they are read.
struct Controller {
    router: Router,
    shards: Vec<Shard>,
    readers: Readers,
    directory: Directory,
    limits: Limits,
    dead: Vec<&'static str>,
}

impl Controller {
    fn new(count: usize, limits: Limits) -> Self {
        let router = Router::new(SEED, count);
        let (shards, readers) = shards(router, limits);
        Self { router, shards, readers, directory: directory(), limits, dead: Vec::new() }
    }

    fn report(
        &mut self,
        agent: &str,
        incarnation: u64,
        records: Vec<Record>,
        now: Moment,
    ) -> Applied {
        let report =
            Report { agent: agent.into(), incarnation, sequence: 1, records, ..Report::default() };
        self.apply(&report, now)
    }

    fn apply(&mut self, report: &Report, now: Moment) -> Applied {
        let routed = self.router.route(report, &self.directory, |node| !self.dead.contains(&node));
        let mut all = Applied::default();
        for (shard, batch) in self.shards.iter_mut().zip(&routed.parts) {
            let applied = shard.apply(batch, now);
            all.refused += applied.refused;
            all.outdated = all.outdated.or(applied.outdated);
            all.discovered.extend(applied.discovered);
            all.violations.extend(applied.violations);
        }
        all
    }

    /// Lives through these seconds.
    fn live(&mut self, from: u32, to: u32) {
        for second in (from..=to).step_by(30) {
            self.shards.iter_mut().for_each(|shard| drop(shard.age(at(second), 10)));
        }
    }

    fn conversations(&mut self) -> Vec<Conversation> {
        self.shards.iter_mut().for_each(Shard::publish);
        let view = self.readers.view();
        let all = view.conversations(|_| true, Moment(0));
        all.filter_map(|seen| seen.to_conversation()).collect()
    }

    /// What was folded of pairs that are kept, and when it was last seen.
    fn folded(&mut self) -> Vec<(Totals, Moment)> {
        self.shards.iter_mut().for_each(Shard::publish);
        let view = self.readers.view();
        let all = view.conversations(|_| true, Moment(0));
        all.filter(|it| it.service().is_none()).map(|it| (it.totals(), it.last())).collect()
    }

    fn totals(&mut self) -> Totals {
        self.shards.iter_mut().for_each(Shard::publish);
        self.readers.view().totals()
    }
}

const NOW: Moment = Moment(1_000_000);
const HOUR: u32 = 60 * 60;

fn at(second: u32) -> Moment {
    Moment::from_seconds(second)
}

#[test]
fn a_report_becomes_conversations_between_ends() {
    let mut controller = Controller::new(4, Limits::default());
    let outside = "192.0.2.9".parse().unwrap();
    let records = vec![
        record(pod_address(1, 1), pod_address(0, 0), 80, 500, 90),
        record(outside, pod_address(0, 1), 443, 70, 91),
        record(pod_address(0, 2), "198.51.100.1".parse().unwrap(), 53, 7, 92),
    ];
    controller.report("node-0", 1, records, NOW);
    let found = controller.conversations();
    let mut found: Vec<_> = found
        .iter()
        .map(|it| {
            let (client, server) = (&it.client.endpoint, &it.server.endpoint);
            (client.to_string(), server.to_string(), it.port, it.totals.bytes)
        })
        .collect();
    found.sort();
    let expected = [
        ("external office", "ns-0/pod-1", 443, 70),
        ("ns-0/pod-2", "external", 53, 7),
        ("ns-1/pod-1", "ns-0/pod-0", 80, 500),
    ];
    let expected = expected
        .map(|(client, server, port, bytes)| (client.to_owned(), server.to_owned(), port, bytes));
    assert_eq!(found, expected);
    let external = |end: &End| matches!(*end.endpoint, Endpoint::External { .. });
    let view = controller.readers.view();
    assert_eq!(view.conversations(external, Moment(0)).count(), 2);
    assert_eq!(view.conversations(external, Moment::from_seconds(92)).count(), 1);
}

#[test]
fn what_both_ends_see_is_counted_once() {
    let mut controller = Controller::new(2, Limits::default());
    let seen = || vec![record(pod_address(1, 1), pod_address(0, 0), 80, 500, 90)];
    controller.report("node-0", 1, seen(), NOW);
    controller.report("node-1", 1, seen(), NOW);
    assert_eq!(controller.totals().bytes, 500);
}

#[test]
fn who_stands_in_counts_from_where_it_takes_over() {
    let mut controller = Controller::new(1, Limits::default());
    let seen = |bytes, last| vec![record(pod_address(1, 1), pod_address(0, 0), 80, bytes, last)];
    controller.report("node-0", 1, seen(500, 90), NOW);
    controller.dead = vec!["node-0"];
    // Late, and of a time that the server's agent has counted.
    controller.report("node-1", 1, seen(400, 80), NOW);
    // Has seen all of it, too.
    controller.report("node-1", 1, seen(600, 100), NOW);
    assert_eq!(controller.totals().bytes, 500);
    controller.report("node-1", 1, seen(650, 110), NOW);
    assert_eq!(controller.totals().bytes, 550);
    // The server's is back, after its network was broken.
    controller.dead.clear();
    controller.report("node-0", 1, seen(700, 120), NOW);
    assert_eq!(controller.totals().bytes, 550);
    controller.report("node-0", 1, seen(710, 130), NOW);
    controller.report("node-1", 1, seen(710, 130), NOW);
    assert_eq!(controller.totals().bytes, 560);
}

#[test]
fn an_address_that_is_known_late_or_used_again_counts_nothing_twice() {
    let mut controller = Controller::new(1, Limits::default());
    let newcomer = pod_address(0, 9);
    let outside = "198.51.100.1".parse().unwrap();
    let seen = |bytes, last| vec![record(outside, newcomer, 80, bytes, last)];
    controller.report("node-0", 1, seen(100, 10), NOW);
    let mut pod = PodFacts {
        uid: "late".into(),
        namespace: "ns-0".into(),
        name: "late".into(),
        owner: None,
        node: "node-0".into(),
        addresses: vec![newcomer],
        images: Vec::new(),
        labels: Labels::new(),
        from: Moment(0),
        until: None,
    };
    controller.directory.apply_pod(&pod, NOW);
    controller.report("node-0", 1, seen(150, 20), NOW);
    controller.directory.delete_pod("late", Moment::from_seconds(25));
    pod =
        PodFacts { uid: "next".into(), name: "next".into(), from: Moment::from_seconds(25), ..pod };
    controller.directory.apply_pod(&pod, NOW);
    controller.report("node-0", 1, seen(175, 30), NOW);
    let found = controller.conversations();
    let bytes = |name: &str| {
        let of = |it: &&Conversation| it.server.endpoint.to_string() == name;
        found.iter().filter(of).map(|it| it.totals.bytes).sum::<u64>()
    };
    assert_eq!([bytes("unmanaged"), bytes("ns-0/late"), bytes("ns-0/next")], [100, 50, 25]);
}

#[test]
fn the_oldest_of_a_pair_are_folded_into_its_other() {
    let limits = Limits { rows_per_pair: 4, ..Limits::default() };
    let mut controller = Controller::new(1, limits);
    for port in 1..=10 {
        let seen = record(pod_address(1, 1), pod_address(0, 0), port, 100, u64::from(port));
        controller.report("node-0", 1, vec![seen], NOW);
    }
    let found = controller.conversations();
    let mut ports: Vec<_> = found.iter().map(|it| it.port).collect();
    ports.sort_unstable();
    assert_eq!(ports, [7, 8, 9, 10]);
    let [(folded, last)] = controller.folded()[..] else { panic!("one row for all") };
    assert_eq!((folded.bytes, last), (600, Moment::from_seconds(6)));
    // One that was folded grows: what was counted stays where it is.
    let seen = record(pod_address(1, 1), pod_address(0, 0), 1, 130, 20);
    controller.report("node-0", 1, vec![seen], NOW);
    let again = controller.conversations();
    let first = again.iter().find(|it| it.port == 1);
    assert_eq!(first.unwrap().totals.bytes, 30);
    assert_eq!(controller.totals().bytes, 1030);
}

#[test]
fn old_pairs_are_folded_into_the_rest_of_their_realms() {
    let limits = Limits { rows: 10, rows_per_pair: 2, ..Limits::default() };
    let mut controller = Controller::new(1, limits);
    for host in 0..200_u8 {
        let client = IpAddr::from([198, 51, 100, host]);
        let seen = record(client, pod_address(0, 0), 80, 10, u64::from(host));
        controller.report("node-0", 1, vec![seen], NOW);
    }
    assert_eq!(controller.shards[0].rows(), 10);
    let view = {
        controller.shards[0].publish();
        controller.readers.view()
    };
    let rest = view.folded();
    assert_eq!(rest.len(), 1);
    let ((client, server), rest) = &rest[0];
    assert_eq!(
        (&**client, &**server, rest.totals.bytes, rest.pairs),
        ("external", "ns-0", 1900, 190)
    );
    assert_eq!(view.totals().bytes, 2000);
    assert_eq!(view.counters().folded_pairs, 190);
    // The last of all is still there by itself.
    let newest = view.conversations(|_| true, Moment::from_seconds(199)).count();
    assert_eq!(newest, 1);
}

#[test]
fn ageing_folds_what_is_old_a_little_at_a_time() {
    let limits = Limits { age: Duration::from_secs(100), ..Limits::default() };
    let mut controller = Controller::new(1, limits);
    let seen = |port, last| record(pod_address(1, 1), pod_address(0, 0), port, 10, last);
    let idle = record(pod_address(2, 1), pod_address(0, 0), 80, 10, 10);
    controller.report("node-0", 1, vec![seen(80, 10), seen(81, 150), idle], at(180));
    assert_eq!((controller.shards[0].pairs(), controller.shards[0].rows()), (2, 3));
    controller.shards[0].age(at(200), 1);
    assert_eq!(controller.shards[0].pairs(), 2, "one place was looked at");
    controller.shards[0].age(at(200), 1);
    assert_eq!((controller.shards[0].pairs(), controller.shards[0].rows()), (1, 2));
    assert_eq!(controller.totals().bytes, 30);
    controller.live(200, 300);
    assert_eq!((controller.shards[0].pairs(), controller.shards[0].rows()), (0, 0));
    assert_eq!(controller.totals().bytes, 30);
}

#[test]
fn a_reader_keeps_what_it_saw() {
    let mut controller = Controller::new(1, Limits::default());
    let seen = |bytes| vec![record(pod_address(1, 1), pod_address(0, 0), 80, bytes, 90)];
    controller.report("node-0", 1, seen(500), NOW);
    controller.shards[0].publish();
    let before = controller.readers.view();
    controller.report("node-0", 1, seen(600), NOW);
    assert_eq!(controller.readers.view().totals().bytes, 500, "not published yet");
    assert_eq!(controller.totals().bytes, 600);
    assert_eq!(before.totals().bytes, 500);
    let generation = |shard: &Shard| shard.published.load().generation();
    let now = generation(&controller.shards[0]);
    controller.shards[0].publish();
    assert_eq!(generation(&controller.shards[0]), now, "nothing changed");
}

#[test]
fn what_there_is_no_room_for_is_refused_and_counted_when_it_comes_again() {
    let limits = Limits { totals_per_agent: 2, ..Limits::default() };
    let mut controller = Controller::new(1, limits);
    let seen = |port| record(pod_address(1, 1), pod_address(0, 0), port, 10, 90);
    let applied = controller.report("node-0", 1, vec![seen(1), seen(2), seen(3)], NOW);
    assert_eq!((applied.refused, controller.totals().bytes), (1, 20));
    let applied = controller.report("node-0", 1, vec![seen(1), seen(2), seen(3)], NOW);
    assert_eq!((applied.refused, controller.totals().bytes), (1, 20));
    controller.shards[0].forget_agent("node-0");
    let applied = controller.report("node-0", 2, vec![seen(3)], NOW);
    assert_eq!((applied.refused, controller.totals().bytes), (0, 30));
}

#[test]
fn an_agent_that_is_over_is_told_so() {
    let mut controller = Controller::new(1, Limits::default());
    let seen = |bytes| vec![record(pod_address(1, 1), pod_address(0, 0), 80, bytes, 90)];
    assert_eq!(controller.report("node-0", 2, seen(5), NOW).outdated, None);
    assert_eq!(controller.report("node-0", 1, seen(50), NOW).outdated, Some(2));
    assert_eq!(controller.totals().bytes, 5);
}

#[test]
fn a_clock_that_is_ahead_keeps_nothing_young() {
    let mut controller = Controller::new(1, Limits::default());
    let seen = record(pod_address(1, 1), pod_address(0, 0), 80, 5, 4_000_000_000);
    controller.report("node-0", 1, vec![seen], NOW);
    assert_eq!(controller.conversations()[0].last, NOW);
}

#[test]
fn a_clock_that_jumps_and_back_makes_nothing_old_and_nothing_counted_twice() {
    // Some days after 1970, so that it can go back; long enough that the clock is believed.
    let began = 100 * HOUR;
    for jumped in [began + 90 * HOUR, began - 90 * HOUR] {
        let mut controller = Controller::new(1, Limits::default());
        let seen = |bytes: u64, last: u32| {
            vec![record(pod_address(1, 1), pod_address(0, 0), 80, bytes, last.into())]
        };
        controller.live(began, began + 2 * HOUR);
        controller.report("node-0", 1, seen(10, began), at(began + 2 * HOUR));
        controller.live(jumped, jumped + 60);
        controller.report("node-0", 1, seen(20, jumped), at(jumped + 60));
        let back = began + 2 * HOUR + 60;
        controller.live(back, back + 2 * HOUR);
        controller.report("node-0", 1, seen(30, back), at(back + 2 * HOUR));
        let found = controller.conversations();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].totals.bytes, 30, "jumped to {jumped}");
        assert_eq!(controller.totals().bytes, 30);
    }
}

#[test]
fn a_clock_that_stays_where_it_jumped_to_is_believed_after_a_while() {
    let mut controller = Controller::new(1, Limits::default());
    let seen = record(pod_address(1, 1), pod_address(0, 0), 80, 10, 1000);
    controller.report("node-0", 1, vec![seen], NOW);
    let jumped = 90 * HOUR;
    controller.live(jumped, jumped + HOUR - 30);
    assert_eq!(controller.shards[0].rows(), 1);
    controller.live(jumped + HOUR, jumped + HOUR);
    assert_eq!(controller.shards[0].rows(), 0);
    assert_eq!(controller.totals().bytes, 10);
}

#[test]
fn marks_are_forgotten_by_time_that_was_lived_whatever_the_clock_says() {
    let mut controller = Controller::new(1, Limits::default());
    let seen = record(pod_address(1, 1), pod_address(0, 0), 80, 10, 1000);
    let ahead = 90 * HOUR;
    controller.report("node-0", 1, vec![seen], at(ahead));
    // It was ahead, and is put right.
    controller.live(HOUR, 24 * HOUR);
    assert_eq!(controller.shards[0].totals(), 1);
    controller.live(24 * HOUR, 25 * HOUR);
    assert_eq!(controller.shards[0].totals(), 0);
}

#[test]
fn an_agent_whose_clock_is_days_behind_has_its_conversations_kept() {
    let mut controller = Controller::new(1, Limits::default());
    let now = 100 * HOUR;
    controller.live(now - 2 * HOUR, now);
    let seen = record(pod_address(1, 1), pod_address(0, 0), 80, 10, u64::from(now - 90 * HOUR));
    controller.report("node-0", 1, vec![seen], at(now));
    controller.live(now, now + HOUR);
    assert_eq!(controller.conversations().len(), 1);
    // Without another word it grows old like any other.
    controller.live(now + HOUR, now + 13 * HOUR);
    assert_eq!(controller.conversations().len(), 0);
}

#[derive(Debug)]
struct By(Verdict);

impl Judge for By {
    fn judge(&self, _: &End, _: &End, _: Service<'_>) -> Judgement {
        Judgement { verdict: self.0, rule: Some(Arc::from("r")) }
    }
}

#[test]
fn what_is_against_the_rules_is_noticed_as_it_comes_and_when_the_rules_change() {
    let mut controller = Controller::new(1, Limits::default());
    controller.shards[0].govern(Arc::new(By(Verdict::Discovered)));
    let seen = |sessions| {
        let mut seen = record(pod_address(1, 1), pod_address(0, 0), 80, 500, 90);
        seen.totals.sessions = sessions;
        vec![seen]
    };
    assert_eq!(controller.report("node-0", 1, seen(1), NOW).discovered.len(), 1);
    assert_eq!(controller.report("node-0", 1, seen(2), NOW).discovered.len(), 0);
    controller.shards[0].govern(Arc::new(By(Verdict::ViolatesUnenforced)));
    let aged = controller.shards[0].age(NOW, 10);
    assert_eq!(aged.violations.len(), 1);
    assert_eq!(controller.shards[0].age(NOW, 10).violations.len(), 0);
    let more = controller.report("node-0", 1, seen(5), NOW).violations;
    assert_eq!(more[0].totals.sessions, 3);
    assert_eq!(
        (more[0].verdict, more[0].rule.as_deref()),
        (Verdict::ViolatesUnenforced, Some("r"))
    );
    assert_eq!(controller.conversations()[0].verdict, Verdict::ViolatesUnenforced);
}

#[test]
fn what_a_node_stopped_is_a_violation_once_and_no_conversation() {
    let mut controller = Controller::new(2, Limits::default());
    let denied = |packets| DeniedRecord {
        client: pod_address(1, 1),
        server: pod_address(0, 0),
        port: 80,
        protocol: Protocol::TCP,
        rule: "NetworkPolicy shop/db isolation".into(),
        packets,
        first: NOW,
        last: NOW,
    };
    let report = |agent: &str, packets| Report {
        agent: agent.into(),
        incarnation: 1,
        sequence: 1,
        denied: vec![denied(packets)],
        ..Report::default()
    };
    let first = controller.apply(&report("node-0", 3), NOW).violations;
    assert_eq!((first[0].verdict, first[0].totals.packets), (Verdict::Stopped, 3));
    assert_eq!(first[0].rule.as_deref(), Some("NetworkPolicy shop/db isolation"));
    // The same total again brings nothing, a greater one what came on top.
    assert_eq!(controller.apply(&report("node-0", 3), NOW).violations.len(), 0);
    assert_eq!(controller.apply(&report("node-0", 5), NOW).violations[0].totals.packets, 2);
    // The node of neither end has nothing to say about it.
    assert_eq!(controller.apply(&report("node-9", 3), NOW).violations.len(), 0);
    assert_eq!(controller.conversations().len(), 0);
}
