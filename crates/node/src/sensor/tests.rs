mod named;
mod world;

use std::net::Ipv4Addr;

use objects::kinds::GroupMode;

use super::room::KEPT;
use super::*;
use traffic::conversations::{Protocol, Record};
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
fn an_idle_total_begins_again_and_the_old_one_is_kept_for_a_day() {
    let limits = Limits { ended: 1, ..Limits::default() };
    let mut sensor = begin(None, limits, START);
    sensor.joined(1, START);
    sensor.observe(&flow(1, 53, 100), later(2));
    assert_eq!(tell(&mut sensor, 0, later(3)), [(53, totals(100, 1))]);
    sensor.observe(&flow(1, 53, 300), later(602));
    let report = sensor.report(false, later(603)).unwrap();
    assert_eq!(report.records[0].totals, totals(200, 0));
    assert_eq!(report.records[0].first, later(602));
    sensor.counted(report.sequence, 2, later(603));
    assert_eq!(sensor.counters().totals, 2);
    // A controller that has neither is told both, once.
    sensor.joined(7, later(604));
    let both = [(53, totals(100, 1)), (53, totals(200, 0))];
    assert_eq!(tell(&mut sensor, 3, later(605)), both);
    assert_eq!(tell(&mut sensor, 4, later(606)), []);
    for epoch in [1, 7, 1] {
        sensor.joined(epoch, later(607));
        assert_eq!(tell(&mut sensor, 0, later(608)), [], "each has them on disk");
    }
    // Of what has ended, so many are kept, and no longer than a day.
    assert_eq!(tell(&mut sensor, 99, later(1100)), []);
    assert_eq!(sensor.counters().totals, 2);
    assert_eq!(tell(&mut sensor, 99, later(1300)), []);
    assert_eq!(sensor.counters().totals, 1);
    let next_day = Moment(later(602).0 + KEPT.as_millis() as u64);
    assert_eq!(tell(&mut sensor, 99, next_day), []);
    assert_eq!(sensor.counters().totals, 0);
}

#[test]
fn what_was_seen_before_a_restart_of_the_machine_is_told_whoever_leads_after_it() {
    let mut sensor = fresh();
    sensor.joined(1, later(1));
    sensor.observe(&flow(1, 53, 100), later(2));
    tell(&mut sensor, 1, later(3));
    let older = sensor.save(PLACE);
    sensor.observe(&flow(1, 53, 300), later(4));
    sensor.observe(&flow(2, 80, 100), later(4));
    let saved = sensor.save(PLACE);
    for (saved, untold) in [
        (&saved, &[(53, totals(300, 1)), (80, totals(100, 1))][..]),
        // The file on disk is the one before: what it does not have is lost, and the controller's is right.
        (&older, &[]),
    ] {
        let mut next = Sensor::begin(
            "node1".into(),
            "another boot",
            Some(saved),
            Limits::default(),
            later(60),
        );
        assert_eq!(next.joining(later(60)), sensor.incarnation, "the same totals go on");
        next.listed();
        next.joined(1, later(60));
        // The number of connection 1 is another's now.
        let mut flow = flow(1, 53, 50);
        flow.id.begun = Some(later(61));
        next.observe(&flow, later(61));
        let report = next.report(true, later(62)).unwrap();
        assert!(report.sequence > sensor.sequence + 1, "a number that was not used before");
        next.counted(report.sequence, 0, later(62));
        let mut told: Vec<_> = report.records.iter().map(|it| (it.port, it.totals)).collect();
        told.sort_by_key(|(port, totals)| (*port, totals.bytes));
        let mut expected = untold.to_vec();
        expected.insert(0, (53, totals(50, 1)));
        assert_eq!(told, expected);
        // Another controller is told everything.
        next.joined(2, later(63));
        let all: u64 = tell(&mut next, 0, later(64)).iter().map(|(_, it)| it.bytes).sum();
        assert_eq!(all, if untold.is_empty() { 150 } else { 450 });
    }
}

#[test]
fn who_begins_again_tells_each_controller_what_it_does_not_have() {
    let mut sensor = fresh();
    sensor.joined(1, later(1));
    sensor.observe(&flow(1, 53, 100), later(2));
    tell(&mut sensor, 1, later(3));
    sensor.observe(&flow(1, 53, 300), later(4));
    // Somebody else has joined in this node's name.
    sensor.outdated(later(1000).0, later(5));
    assert!(sensor.incarnation > later(1000).0);
    sensor.joined(1, later(6));
    assert_eq!(tell(&mut sensor, 1, later(7)), [(53, totals(200, 0))], "it has the rest");
    sensor.joined(2, later(8));
    let both = [(53, totals(100, 1)), (53, totals(200, 0))];
    assert_eq!(tell(&mut sensor, 0, later(9)), both);
    let mut next = begin(Some(&sensor.save(PLACE)), Limits::default(), later(10));
    next.joined(1, later(11));
    assert_eq!(tell(&mut next, 1, later(12)), []);
    next.joined(3, later(13));
    assert_eq!(tell(&mut next, 0, later(14)), both);
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
    assert_eq!(at("another boot", &saved, later(9)), sensor.incarnation);
    let of_another =
        |now| Sensor::begin("node2".into(), PLACE, Some(&saved), limits, now).incarnation;
    assert_eq!(of_another(set_back), sensor.incarnation + 1);
    assert_eq!(of_another(later(9)), later(9).0);
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
