//! Conversations that first bytes name.

use super::*;

/// What a report says: port, application, bytes and sessions of each record.
fn applications(sensor: &mut Sensor, now: Moment) -> Vec<(u16, Option<String>, u64, u64)> {
    let report = sensor.report(true, now).unwrap();
    sensor.counted(report.sequence, report.sequence, now);
    let mut told: Vec<_> = report
        .records
        .iter()
        .map(|it| {
            let application = it.application.as_deref().map(ToOwned::to_owned);
            (it.port, application, it.totals.bytes, it.totals.sessions)
        })
        .collect();
    told.sort();
    told
}

fn redis() -> Option<String> {
    Some("redis".to_owned())
}

#[test]
fn what_first_bytes_tell_is_told_with_the_conversation_and_bytes_that_nobody_knows_take_it_back() {
    let mut sensor = fresh();
    let key = flow(1, 80, 0).id.conversation();
    // It is heard before the connection is, or after it has ended: both are in time for the report.
    sensor.name(key, Some("redis"), later(1));
    sensor.observe(&flow(1, 80, 1000), later(2));
    let ended_before = ended(flow(2, 81, 300));
    sensor.observe(&ended_before, later(2));
    sensor.name(ended_before.id.conversation(), Some("tls"), later(2));
    let tls = Some("tls".to_owned());
    assert_eq!(applications(&mut sensor, later(3)), [(80, redis(), 1000, 1), (81, tls, 300, 1)]);
    // The total goes on as long as it is the same.
    sensor.observe(&flow(1, 80, 1500), later(4));
    assert_eq!(applications(&mut sensor, later(5)), [(80, redis(), 1500, 1)]);
    // What comes after bytes that nobody knows is not called redis.
    sensor.name(key, None, later(6));
    sensor.observe(&flow(1, 80, 1700), later(7));
    assert_eq!(applications(&mut sensor, later(8)), [(80, None, 200, 0)]);
    assert_eq!(sensor.counters().named, 1);
}

#[test]
fn a_total_that_was_told_without_a_name_is_not_told_again_under_one() {
    let mut sensor = fresh();
    sensor.observe(&flow(1, 80, 1000), later(2));
    assert_eq!(applications(&mut sensor, later(3)), [(80, None, 1000, 1)]);
    sensor.name(flow(1, 80, 0).id.conversation(), Some("redis"), later(4));
    assert_eq!(applications(&mut sensor, later(5)), []);
    sensor.observe(&flow(1, 80, 1600), later(6));
    assert_eq!(applications(&mut sensor, later(7)), [(80, redis(), 600, 0)]);
}

#[test]
fn names_are_saved() {
    let mut sensor = fresh();
    sensor.observe(&flow(1, 80, 1000), later(2));
    sensor.name(flow(1, 80, 0).id.conversation(), Some("redis"), later(2));
    assert_eq!(applications(&mut sensor, later(3)), [(80, redis(), 1000, 1)]);
    let mut next = begin(Some(&sensor.save(PLACE)), Limits::default(), later(4));
    next.observe(&flow(1, 80, 1400), later(5));
    assert_eq!(applications(&mut next, later(6)), [(80, redis(), 1400, 1)]);
}

#[test]
fn names_are_bounded_and_those_that_are_used_stay() {
    let mut sensor = begin(None, Limits { named: 32, ..Limits::default() }, START);
    let key = |port| flow(1, port, 0).id.conversation();
    sensor.name(key(80), Some("redis"), later(1));
    for port in 1000..1500 {
        let now = later(1 + u64::from(port) - 1000);
        sensor.name(key(port), Some("tls"), now);
        sensor.observe(&flow(1, 80, u64::from(port) * 100), now);
    }
    let counters = sensor.counters();
    assert!(counters.named <= 32, "{counters:?}");
    assert_eq!(counters.unnamed + counters.named as u64, 501);
    assert_eq!(applications(&mut sensor, later(600))[0].1, redis());
    // Nobody used them for a day.
    sensor.report(true, later(600 + 24 * 60 * 60));
    assert_eq!(sensor.counters().named, 0);
    // What is only said within this machine is not kept.
    let own = ConversationKey { client: [127, 0, 0, 1].into(), ..key(80) };
    sensor.name(own, Some("redis"), later(700));
    assert_eq!(sensor.counters().named, 0);
}
