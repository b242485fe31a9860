mod named;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use objects::kinds::GroupMode;
use proptest::prelude::*;

use super::*;
use traffic::ingest::{AgentGroup, AgentPolicy, AgentRule};

const PLACE: &str = "boot";
const START: Moment = Moment(1_700_000_000_000);

fn begin(saved: Option<&[u8]>, limits: Limits, now: Moment) -> Sensor {
    Sensor::begin("node1".into(), PLACE, saved, limits, now)
}

fn fresh() -> Sensor {
    begin(None, Limits::default(), START)
}

fn later(seconds: u64) -> Moment {
    Moment(START.0 + seconds * 1000)
}

fn ip(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
}

fn flow(number: u32, port: u16, bytes: u64) -> Flow {
    let id = FlowId {
        number,
        zone: 0,
        protocol: Protocol::UDP,
        client: ip(1),
        client_port: 40_000,
        server: ip(2),
        port,
        begun: Some(later(1)),
    };
    Flow { id, bytes, packets: bytes / 100, ended: false }
}

fn ended(flow: Flow) -> Flow {
    Flow { ended: true, ..flow }
}

fn totals(bytes: u64, sessions: u64) -> Totals {
    Totals { bytes, packets: bytes / 100, sessions }
}

/// Counts what it is told, and says what it was.
fn tell(sensor: &mut Sensor, durable: u64, now: Moment) -> Vec<(u16, Totals)> {
    let report = sensor.report(true, now).unwrap();
    sensor.counted(report.sequence, durable, now);
    let mut told: Vec<_> =
        report.records.iter().map(|record| (record.port, record.totals)).collect();
    told.sort_by_key(|(port, totals)| (*port, totals.bytes));
    told
}

#[test]
fn connections_of_one_conversation_are_one_total() {
    let mut sensor = fresh();
    sensor.observe(&flow(1, 53, 100), later(2));
    sensor.observe(&flow(2, 53, 200), later(2));
    sensor.observe(&flow(3, 80, 400), later(2));
    assert_eq!(tell(&mut sensor, 0, later(3)), [(53, totals(300, 2)), (80, totals(400, 1))]);
    sensor.observe(&flow(1, 53, 100), later(4));
    sensor.observe(&flow(2, 53, 500), later(4));
    sensor.observe(&ended(flow(2, 53, 600)), later(4));
    assert_eq!(tell(&mut sensor, 0, later(5)), [(53, totals(700, 2))]);
    // The same number and ends again, later: another connection.
    let mut again = ended(flow(2, 53, 100));
    again.id.begun = Some(later(6));
    sensor.observe(&again, later(6));
    assert_eq!(tell(&mut sensor, 0, later(7)), [(53, totals(800, 3))]);
    assert_eq!(tell(&mut sensor, 0, later(8)), []);
}

#[test]
fn what_was_carried_before_the_start_is_not_counted() {
    let mut sensor = fresh();
    let mut old = flow(1, 53, 1000);
    old.id.begun = Some(START.before(Duration::from_secs(9)));
    let mut unknown = flow(2, 80, 1000);
    unknown.id.begun = None;
    sensor.observe(&old, later(2));
    sensor.observe(&unknown, later(2));
    sensor.listed();
    assert_eq!(tell(&mut sensor, 0, later(3)), []);
    sensor.observe(&Flow { bytes: 1500, packets: 15, ..old }, later(4));
    sensor.observe(&Flow { bytes: 1100, packets: 11, ..unknown }, later(4));
    unknown.id.number = 3;
    sensor.observe(&unknown, later(4));
    assert_eq!(tell(&mut sensor, 0, later(5)), [(53, totals(500, 0)), (80, totals(1100, 1))]);
}

#[test]
fn counters_that_somebody_set_to_zero_go_on() {
    let mut sensor = fresh();
    for bytes in [1000, 300, 500] {
        sensor.observe(&flow(1, 53, bytes), later(2));
    }
    assert_eq!(tell(&mut sensor, 0, later(3)), [(53, totals(1500, 1))]);
}

#[test]
fn a_connection_is_forgotten_when_two_listings_do_not_have_it() {
    let mut sensor = fresh();
    sensor.observe(&flow(1, 53, 100), later(2));
    sensor.listed();
    sensor.listed();
    assert_eq!(sensor.counters().flows, 1, "the kernel may have missed it");
    sensor.listed();
    assert_eq!(sensor.counters().flows, 0);
}

#[test]
fn only_conversations_of_this_node_and_between_ends_that_are_somebody() {
    let mut sensor = fresh();
    sensor.set_scope(Some(vec!["10.0.0.2/32".parse().unwrap()]));
    sensor.observe(&flow(1, 53, 100), later(2));
    for (client, server) in [
        ("10.0.0.1", "10.0.0.3"),
        ("127.0.0.1", "10.0.0.2"),
        ("10.0.0.2", "224.0.0.251"),
        ("10.0.0.2", "255.255.255.255"),
        ("0.0.0.0", "10.0.0.2"),
        ("fe80::1", "10.0.0.2"),
    ] {
        let mut other = flow(2, 80, 100);
        (other.id.client, other.id.server) = (client.parse().unwrap(), server.parse().unwrap());
        sensor.observe(&other, later(2));
    }
    assert_eq!(tell(&mut sensor, 0, later(3)), [(53, totals(100, 1))]);
}

#[test]
fn one_that_was_picked_up_at_an_answer_is_turned_round() {
    let mut sensor = fresh();
    let mut answer = flow(1, 45_000, 100);
    answer.id.client_port = 443;
    sensor.observe(&answer, later(2));
    let report = sensor.report(false, later(3)).unwrap();
    let Record { client, server, port, .. } = report.records[0];
    assert_eq!((client, server, port), (ip(2), ip(1), 443));
}

#[test]
fn an_idle_total_begins_again_and_the_old_one_stays_until_it_is_on_disk() {
    let mut sensor = fresh();
    sensor.observe(&flow(1, 53, 100), later(2));
    assert_eq!(tell(&mut sensor, 0, later(3)), [(53, totals(100, 1))]);
    sensor.observe(&flow(1, 53, 300), later(602));
    let report = sensor.report(false, later(603)).unwrap();
    assert_eq!(report.records[0].totals, totals(200, 0));
    assert_eq!(report.records[0].first, later(602));
    sensor.counted(report.sequence, 0, later(603));
    assert_eq!(sensor.counters().totals, 2);
    // A controller that has lost both is told both.
    sensor.joined(7, later(604));
    let both = [(53, totals(100, 1)), (53, totals(200, 0))];
    assert_eq!(tell(&mut sensor, 3, later(605)), both);
    assert_eq!(tell(&mut sensor, 4, later(606)), []);
    assert_eq!(sensor.counters().totals, 1);
    assert_eq!(tell(&mut sensor, 5, later(1300)), []);
    assert_eq!(sensor.counters().totals, 0);
}

#[test]
fn a_report_is_the_same_until_it_is_counted() {
    let mut sensor = fresh();
    assert_eq!(sensor.report(false, later(1)), None);
    sensor.observe(&flow(1, 53, 100), later(2));
    let report = sensor.report(false, later(3)).unwrap();
    sensor.observe(&flow(1, 53, 200), later(4));
    assert_eq!(sensor.report(true, later(5)), None);
    assert_eq!(sensor.outstanding(), Some(&report));
    assert!(!sensor.counted(report.sequence + 1, 9, later(6)), "another one's answer");
    assert_eq!(sensor.outstanding(), Some(&report));
    sensor.counted(report.sequence, 0, later(6));
    assert_eq!(tell(&mut sensor, 0, later(7)), [(53, totals(200, 1))]);
}

#[test]
fn a_controller_is_told_what_it_has_lost_and_a_new_one_everything() {
    let mut sensor = fresh();
    sensor.joined(1, later(1));
    sensor.observe(&flow(1, 53, 100), later(2));
    tell(&mut sensor, 1, later(3));
    sensor.observe(&flow(2, 80, 100), later(4));
    tell(&mut sensor, 1, later(5));
    assert_eq!(tell(&mut sensor, 1, later(6)), []);
    sensor.joined(1, later(7));
    assert_eq!(tell(&mut sensor, 1, later(8)), [(80, totals(100, 1))]);
    sensor.joined(2, later(9));
    assert_eq!(tell(&mut sensor, 0, later(10)), [(53, totals(100, 1)), (80, totals(100, 1))]);
}

#[test]
fn who_was_away_for_too_long_begins_again() {
    let mut sensor = fresh();
    sensor.joined(1, later(1));
    sensor.observe(&flow(1, 53, 100), later(2));
    tell(&mut sensor, 0, later(3));
    sensor.observe(&flow(1, 53, 300), later(4));
    let before = sensor.incarnation;
    sensor.report(false, later(5)).unwrap();
    let back = Moment(later(5).0 + AWAY.as_millis() as u64);
    assert!(sensor.joining(back) > before);
    sensor.joined(1, back);
    assert_eq!(sensor.outstanding(), None);
    assert_eq!(sensor.counters().dropped.totals, 0, "it was told, though nobody may have heard");
    sensor.observe(&flow(1, 53, 400), back);
    let report = sensor.report(false, back).unwrap();
    assert_eq!((report.sequence, report.records[0].totals), (1, totals(100, 0)));
}

#[test]
fn every_start_that_cannot_go_on_is_a_greater_incarnation() {
    let sensor = fresh();
    let saved = sensor.save(PLACE);
    let limits = Limits::default();
    let at = |place: &str, saved: &[u8], now| {
        Sensor::begin("node1".into(), place, Some(saved), limits, now).incarnation
    };
    let set_back = START.before(AWAY);
    assert_eq!(at(PLACE, &saved, later(9)), sensor.incarnation);
    assert_eq!(at("another boot", &saved, set_back), sensor.incarnation + 1);
    assert_eq!(at("another boot", &saved, later(9)), later(9).0);
    for cut in 0..saved.len() {
        assert!(at(PLACE, &saved[..cut], later(9)) > sensor.incarnation);
    }
}

/// Nobody may speak to this port.
fn forbidden(port: u16) -> Arc<Rules> {
    let networks = vec!["0.0.0.0/0".parse().unwrap()];
    let everybody = AgentGroup { networks, ..AgentGroup::default() };
    let rule = AgentRule {
        name: "forbidden".into(),
        learned: false,
        priority: 0,
        from: "any".into(),
        to: "any".into(),
        ports: vec![format!("udp/{port}").parse().unwrap()],
        applications: Vec::new(),
        allows: false,
    };
    let shipped = AgentPolicy {
        version: 1,
        rules: [("forbidden".into(), Arc::new(rule))].into_iter().collect(),
        groups: [("any".into(), Arc::new(everybody))].into_iter().collect(),
        mode: GroupMode::Discover,
    };
    Arc::new(Rules::new(&shipped))
}

#[test]
fn what_is_against_the_rules_is_dropped_last() {
    let limits = Limits { totals: 32, ..Limits::default() };
    let mut sensor = begin(None, limits, START);
    sensor.set_rules(forbidden(9));
    for port in 100..140 {
        sensor.observe(&ended(flow(1, port, 100)), later(2));
    }
    assert_eq!((sensor.counters().totals, sensor.counters().lost), (32, totals(800, 8)));
    sensor.observe(&ended(flow(1, 9, 100)), later(4));
    assert_eq!((sensor.counters().totals, sensor.counters().lost), (31, totals(1000, 10)));
    assert!(tell(&mut sensor, 1, later(5)).contains(&(9, totals(100, 1))));
    // What is on disk makes room for anybody, and is lost to nobody.
    sensor.observe(&ended(flow(1, 200, 100)), later(6));
    sensor.observe(&ended(flow(1, 201, 100)), later(6));
    assert_eq!((sensor.counters().totals, sensor.counters().lost), (31, totals(1000, 10)));
}

#[test]
fn a_large_table_is_told_in_parts_the_alarming_first() {
    let limits = Limits { records: 4, ..Limits::default() };
    let mut sensor = begin(None, limits, START);
    sensor.set_rules(forbidden(109));
    for port in 100..110 {
        sensor.observe(&ended(flow(1, port, 100)), later(2));
    }
    let (mut told, mut more) = (Vec::new(), true);
    while more {
        let report = sensor.report(false, later(3)).unwrap();
        let ports: Vec<_> = report.records.iter().map(|record| record.port).collect();
        assert!(!told.is_empty() || ports.contains(&109));
        told.extend(ports);
        more = sensor.counted(report.sequence, 0, later(3));
    }
    told.sort_unstable();
    assert_eq!(told, (100..110).collect::<Vec<_>>());
}

/// What the kernel, the network, the controller and the operator may do.
#[derive(Clone, Debug)]
enum Step {
    Open {
        port: u16,
        packets: u64,
    },
    Carry {
        which: usize,
        packets: u64,
    },
    /// `heard`: the event reaches the socket.
    End {
        which: usize,
        heard: bool,
    },
    List,
    Read,
    Report {
        arrives: bool,
        answered: bool,
    },
    Rejoin,
    Wait {
        seconds: u64,
    },
    Kill,
    LoseState,
    Checkpoint,
    ControllerDies,
    ControllerForgets,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let which = 0..64usize;
    let step = prop_oneof![
        6 => (0..4u16, 1..9u64).prop_map(|(port, packets)| Step::Open { port, packets }),
        6 => (which.clone(), 1..9u64).prop_map(|(which, packets)| Step::Carry { which, packets }),
        4 => which.clone().prop_map(|which| Step::End { which, heard: true }),
        5 => Just(Step::List),
        4 => Just(Step::Read),
        6 => (prop::bool::weighted(0.8), prop::bool::weighted(0.8))
            .prop_map(|(arrives, answered)| Step::Report { arrives, answered }),
        2 => Just(Step::Rejoin),
        4 => prop_oneof![1..30u64, Just(700)].prop_map(|seconds| Step::Wait { seconds }),
        2 => Just(Step::Checkpoint),
        1 => Just(Step::ControllerDies),
        1 => Just(Step::Kill),
    ];
    let bad = prop_oneof![
        (0..64usize).prop_map(|which| Step::End { which, heard: false }),
        Just(Step::LoseState),
        Just(Step::ControllerForgets),
    ];
    prop::bool::ANY.prop_flat_map(move |bad_too| {
        let weight = u32::from(bad_too);
        let step = step.clone().boxed();
        let step = prop_oneof![12 => step, weight => bad.clone().boxed()];
        prop::collection::vec(step, 1..120)
    })
}

#[derive(Clone, Debug, Default)]
struct Controller {
    incarnation: u64,
    /// Through here, without gaps: reports come one at a time.
    through: u64,
    /// By beginning; of incarnations that are over as well.
    counted: BTreeMap<(u64, ConversationKey, u32), Totals>,
}

impl Controller {
    fn count(&mut self, report: &Report) {
        assert!(report.incarnation >= self.incarnation);
        if report.incarnation > self.incarnation {
            (self.incarnation, self.through) = (report.incarnation, 0);
        }
        // One that came before is not looked at.
        if report.sequence <= self.through {
            return;
        }
        self.through = report.sequence;
        for record in &report.records {
            let Record { client, server, port, protocol, totals, first, .. } = record.clone();
            let key = ConversationKey { client, server, port, protocol };
            let known = self.counted.entry((report.incarnation, key, first.seconds())).or_default();
            *known += totals.growth(*known);
        }
    }

    fn sum(&self, key: &ConversationKey) -> Totals {
        let mut sum = Totals::ZERO;
        self.counted.iter().filter(|((_, of, _), _)| of == key).for_each(|(_, t)| sum += *t);
        sum
    }
}

struct World {
    sensor: Sensor,
    limits: Limits,
    now: Moment,
    live: Vec<Flow>,
    /// Ends that wait to be read.
    ends: Vec<Flow>,
    opened: u32,
    truth: BTreeMap<ConversationKey, Totals>,
    saved: Vec<u8>,
    /// Connections ended since it was saved: a kill loses what they brought.
    ended_since: bool,
    controller: Controller,
    checkpoint: Controller,
    epoch: u64,
    /// Something happened after which less may be counted than there was.
    lost: bool,
}

impl World {
    fn new(limits: Limits) -> Self {
        let mut sensor = begin(None, limits, START);
        sensor.joined(1, START);
        let saved = sensor.save(PLACE);
        Self {
            sensor,
            limits,
            now: START,
            live: Vec::new(),
            ends: Vec::new(),
            opened: 0,
            truth: BTreeMap::new(),
            saved,
            ended_since: false,
            controller: Controller::default(),
            checkpoint: Controller::default(),
            epoch: 1,
            lost: false,
        }
    }

    fn carried(&mut self, which: usize, packets: u64, sessions: u64) {
        let flow = &mut self.live[which];
        flow.packets += packets;
        flow.bytes += packets * 100;
        let totals = Totals { bytes: packets * 100, packets, sessions };
        *self.truth.entry(flow.id.conversation()).or_default() += totals;
    }

    fn read(&mut self) {
        for flow in std::mem::take(&mut self.ends) {
            self.sensor.observe(&flow, self.now);
        }
    }

    fn list(&mut self) {
        for flow in &self.live {
            self.sensor.observe(flow, self.now);
        }
        self.sensor.listed();
        self.read();
    }

    fn report(&mut self, arrives: bool, answered: bool) -> bool {
        if let Some(report) = self.sensor.report(false, self.now) {
            self.save();
            assert!(report.records.len() <= self.limits.records);
        }
        let Some(report) = self.sensor.outstanding().cloned() else { return false };
        if arrives {
            self.controller.count(&report);
            if answered {
                let durable = match self.checkpoint.incarnation == report.incarnation {
                    true => self.checkpoint.through,
                    false => 0,
                };
                self.sensor.counted(report.sequence, durable, self.now);
            }
        }
        true
    }

    fn save(&mut self) {
        self.saved = self.sensor.save(PLACE);
        self.ended_since = !self.ends.is_empty();
    }

    fn start(&mut self, saved: bool) {
        self.lost |= self.ended_since || !self.ends.is_empty() || !saved;
        self.ends.clear();
        let saved = saved.then_some(self.saved.as_slice());
        self.sensor = begin(saved, self.limits, self.now);
        self.save();
        self.join();
    }

    fn join(&mut self) {
        self.sensor.joining(self.now);
        self.sensor.joined(self.epoch, self.now);
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Open { port, packets } => {
                self.opened += 1;
                let mut flow = flow(self.opened, 1000 + port, 0);
                flow.id.begun = Some(self.now);
                self.live.push(flow);
                self.carried(self.live.len() - 1, packets, 1);
            }
            Step::Carry { which, packets } if !self.live.is_empty() => {
                self.carried(which % self.live.len(), packets, 0);
            }
            Step::End { which, heard } if !self.live.is_empty() => {
                let flow = self.live.swap_remove(which % self.live.len());
                self.ended_since = true;
                match heard {
                    true => self.ends.push(ended(flow)),
                    false => self.lost = true,
                }
            }
            Step::Carry { .. } | Step::End { .. } => {}
            Step::List => self.list(),
            Step::Read => self.read(),
            Step::Report { arrives, answered } => {
                self.report(arrives, answered);
            }
            Step::Rejoin => self.join(),
            Step::Wait { seconds } => self.now = Moment(self.now.0 + seconds * 1000),
            Step::Kill => self.start(true),
            Step::LoseState => {
                // No two starts are in one instant.
                self.now = Moment(self.now.0 + 1);
                self.start(false);
            }
            Step::Checkpoint => self.checkpoint = self.controller.clone(),
            Step::ControllerDies => {
                self.controller = self.checkpoint.clone();
                self.join();
            }
            Step::ControllerForgets => {
                (self.controller, self.checkpoint) = Default::default();
                self.epoch += 1;
                self.lost = true;
                self.join();
            }
        }
    }

    fn never_above_the_truth(&self) {
        for (key, truth) in &self.truth {
            let counted = self.controller.sum(key);
            let above = counted.growth(*truth);
            assert!(above.is_zero(), "{key:?}: {counted:?} of {truth:?}");
        }
    }

    fn settle(&mut self) {
        self.read();
        self.list();
        while self.report(true, true) {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn everything_is_counted_once_whatever_happens(steps in steps(), small in any::<bool>()) {
        let small = small.then_some(Limits { totals: 3, flows: 4, records: 2, ..Limits::default() });
        let limits = small.unwrap_or_default();
        let mut world = World::new(limits);
        for step in &steps {
            world.step(step);
            world.never_above_the_truth();
            let counters = world.sensor.counters();
            prop_assert!(counters.flows <= limits.flows && counters.totals <= limits.totals);
        }
        world.settle();
        world.never_above_the_truth();
        if world.lost {
            return Ok(());
        }
        // What cannot be followed any longer has not ended, and is counted when it has.
        for flow in std::mem::take(&mut world.live) {
            world.ends.push(ended(flow));
        }
        world.settle();
        let (mut counted, mut truth) = (Totals::ZERO, Totals::ZERO);
        world.truth.iter().for_each(|(key, totals)| {
            counted += world.controller.sum(key);
            truth += *totals;
        });
        counted += world.sensor.counters().lost;
        prop_assert_eq!(counted, truth);
    }

    #[test]
    fn no_saved_bytes_can_stop_it(bytes in prop::collection::vec(any::<u8>(), 0..256), magic in any::<bool>()) {
        let mut saved = if magic { b"FLS1".to_vec() } else { Vec::new() };
        saved.extend(bytes);
        begin(Some(&saved), Limits::default(), START);
    }
}
