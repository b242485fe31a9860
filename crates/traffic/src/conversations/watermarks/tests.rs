use std::sync::Arc;
use std::time::Duration;

use super::{AWAY, Advance, WatermarkLimits, Watermarks, print};
use crate::conversations::codec::{Reader, Writer};
use crate::conversations::{Moment, Protocol, Record, Totals};

const ROOM: WatermarkLimits =
    WatermarkLimits { most: 100, most_per_agent: 10, idle: Duration::from_secs(60) };

fn totals(bytes: u64) -> Totals {
    Totals { bytes, packets: bytes / 10, sessions: 1 }
}

fn seconds(n: u64) -> Moment {
    Moment(n * 1000)
}

fn bring(
    marks: &mut Watermarks,
    incarnation: u64,
    now: Moment,
    print: u64,
    bytes: u64,
) -> Option<Advance> {
    let agent: Arc<str> = "a".into();
    let mut open = marks.open(&agent, incarnation, now, ROOM).ok()?;
    Some(open.advance(print << 8, totals(bytes)))
}

#[test]
fn a_total_brings_what_it_has_grown_by() {
    let mut marks = Watermarks::default();
    let now = seconds(1);
    assert_eq!(bring(&mut marks, 1, now, 7, 100), Some(Advance::Grown(totals(100))));
    assert_eq!(bring(&mut marks, 1, now, 7, 100), Some(Advance::Nothing));
    let growth = Totals { bytes: 50, packets: 5, sessions: 0 };
    assert_eq!(bring(&mut marks, 1, now, 7, 150), Some(Advance::Grown(growth)));
    assert_eq!(bring(&mut marks, 1, now, 7, 100), Some(Advance::Nothing));
    assert_eq!(marks.len(), 1);
}

#[test]
fn a_new_incarnation_begins_at_zero_and_the_old_one_is_over() {
    let mut marks = Watermarks::default();
    bring(&mut marks, 1, seconds(1), 7, 100);
    assert_eq!(bring(&mut marks, 2, seconds(2), 7, 30), Some(Advance::Grown(totals(30))));
    assert_eq!(bring(&mut marks, 1, seconds(3), 7, 120), None);
    assert_eq!(marks.open(&"a".into(), 1, seconds(3), ROOM).err(), Some(2));
    assert_eq!(marks.len(), 1);
}

#[test]
fn what_there_is_no_room_for_is_refused_and_what_is_known_goes_on() {
    let mut marks = Watermarks::default();
    for print in 0..10 {
        bring(&mut marks, 1, seconds(1), print, 1);
    }
    assert_eq!(bring(&mut marks, 1, seconds(1), 10, 1), Some(Advance::NoRoom));
    assert!(matches!(bring(&mut marks, 1, seconds(1), 9, 2), Some(Advance::Grown(_))));
    // Another agent has its own room.
    let mut open = marks.open(&"b".into(), 1, seconds(1), ROOM).unwrap();
    assert!(matches!(open.advance(1 << 8, totals(1)), Advance::Grown(_)));
}

#[test]
fn a_mark_goes_once_its_agent_was_heard_long_enough_without_it() {
    let mut marks = Watermarks::default();
    bring(&mut marks, 1, seconds(0), 7, 100);
    for t in (30..=300).step_by(30) {
        bring(&mut marks, 1, seconds(t), 8, t);
    }
    assert_eq!(marks.len(), 1);
    assert_eq!(bring(&mut marks, 1, seconds(300), 8, 300), Some(Advance::Nothing));
}

#[test]
fn silence_forgets_nothing() {
    let mut marks = Watermarks::default();
    bring(&mut marks, 1, seconds(0), 7, 100);
    bring(&mut marks, 1, seconds(1), 8, 1);
    for hour in 1..20 {
        assert_eq!(bring(&mut marks, 1, seconds(hour * 3600), 8, 1), Some(Advance::Nothing));
    }
    assert_eq!(bring(&mut marks, 1, seconds(20 * 3600), 7, 100), Some(Advance::Nothing));
    marks.forget_away(seconds(20 * 3600 + AWAY.as_secs()));
    assert_eq!(marks.len(), 0);
}

#[test]
fn everything_that_makes_a_total_another_makes_another_print() {
    let record = Record {
        client: "10.0.0.1".parse().unwrap(),
        server: "fd00::1".parse().unwrap(),
        port: 80,
        protocol: Protocol::TCP,
        application: Some("http".into()),
        totals: Totals::ZERO,
        first: seconds(10),
        last: seconds(20),
    };
    let seed = [1, 2];
    let others = [
        Record { client: "10.0.0.2".parse().unwrap(), ..record.clone() },
        Record { server: "fd01::1".parse().unwrap(), ..record.clone() },
        Record { server: record.client, client: record.server, ..record.clone() },
        Record { port: 81, ..record.clone() },
        Record { protocol: Protocol::UDP, ..record.clone() },
        Record { application: None, ..record.clone() },
        Record { application: Some("http\0".into()), ..record.clone() },
        Record { application: Some("http is a long name".into()), ..record.clone() },
        Record { first: seconds(11), ..record.clone() },
    ];
    let mut prints: Vec<_> = others.iter().map(|other| print(seed, other)).collect();
    prints.push(print(seed, &record));
    prints.push(print([1, 3], &record));
    prints.sort_unstable();
    prints.dedup();
    assert_eq!(prints.len(), others.len() + 2);
    // What changes as it grows does not.
    let grown = Record { totals: totals(5), last: seconds(30), ..record.clone() };
    assert_eq!(print(seed, &grown), print(seed, &record));
}

#[test]
fn marks_come_back_from_a_checkpoint() {
    let mut marks = Watermarks::default();
    for print in 0..5 {
        bring(&mut marks, 3, seconds(1), print, print * 100);
    }
    marks.open(&"idle".into(), 9, seconds(1), ROOM).unwrap();
    let mut out = Writer::default();
    marks.save(&mut out);
    let mut restored = Watermarks::default();
    for loaded in Watermarks::load(&mut Reader(&out.0)).unwrap() {
        restored.restore(&loaded, |_| true);
    }
    assert_eq!(restored.len(), 5);
    assert_eq!(bring(&mut restored, 3, seconds(2), 4, 400), Some(Advance::Nothing));
    assert_eq!(bring(&mut restored, 2, seconds(2), 4, 900), None);
    assert!(restored.open(&"idle".into(), 8, seconds(2), ROOM).is_err());
}
