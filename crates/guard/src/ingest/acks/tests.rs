use super::Acks;
use crate::conversations::{AWAY, Moment, Progress, Report};
use crate::ingest::{Counted, NotCounted};

const NOW: Moment = Moment(1_000_000);

fn report(incarnation: u64, sequence: u64) -> Report {
    Report { agent: "a".into(), incarnation, sequence, records: Vec::new() }
}

fn counted(through: u64, durable: u64) -> Counted {
    Counted { through, durable }
}

#[test]
fn nothing_is_acknowledged_past_what_is_being_counted() {
    let acks = Acks::default();
    let first = acks.begin(&report(1, 1), NOW).unwrap();
    let second = acks.begin(&report(1, 2), NOW).unwrap();
    assert_eq!(second.counted(), counted(0, 0));
    assert_eq!(first.counted(), counted(2, 0));
}

#[test]
fn a_batch_that_was_refused_or_never_came_holds_up_no_later_one() {
    let acks = Acks::default();
    let refused = acks.begin(&report(1, 1), NOW).unwrap();
    let later = acks.begin(&report(1, 4), NOW).unwrap();
    assert_eq!(later.counted(), counted(0, 0));
    drop(refused);
    assert_eq!(acks.begin(&report(1, 5), NOW).unwrap().counted(), counted(5, 0));
    // One that comes again, late, takes nothing back.
    let late = acks.begin(&report(1, 2), NOW).unwrap();
    assert_eq!(acks.begin(&report(1, 6), NOW).unwrap().counted(), counted(5, 0));
    assert_eq!(late.counted(), counted(6, 0));
}

#[test]
fn a_newer_incarnation_begins_at_zero_and_ends_the_older() {
    let acks = Acks::default();
    let old = acks.begin(&report(1, 7), NOW).unwrap();
    assert_eq!(acks.begin(&report(2, 1), NOW).unwrap().counted(), counted(1, 0));
    assert_eq!(old.counted(), counted(7, 0));
    assert_eq!(acks.begin(&report(1, 8), NOW).unwrap_err(), NotCounted::Outdated);
    assert_eq!(acks.begin(&report(2, 2), NOW).unwrap().counted(), counted(2, 0));
}

#[test]
fn what_was_kept_is_durable_and_known_after_a_restart() {
    let acks = Acks::default();
    acks.begin(&report(1, 3), NOW).unwrap().counted();
    let progress = acks.progress(NOW);
    assert_eq!(progress, [Progress { agent: "a".into(), incarnation: 1, through: 3 }]);
    acks.begin(&report(1, 4), NOW).unwrap().counted();
    acks.kept(&progress);
    assert_eq!(acks.begin(&report(1, 5), NOW).unwrap().counted(), counted(5, 3));
    let after = Acks::of(&progress, NOW);
    assert_eq!(after.begin(&report(1, 4), NOW).unwrap().counted(), counted(4, 3));
    // Of another incarnation it says nothing.
    acks.begin(&report(2, 1), NOW).unwrap().counted();
    acks.kept(&progress);
    assert_eq!(acks.begin(&report(2, 2), NOW).unwrap().counted(), counted(2, 0));
}

#[test]
fn an_agent_that_stays_away_is_forgotten() {
    let acks = Acks::default();
    acks.begin(&report(1, 3), NOW).unwrap().counted();
    let later = Moment(NOW.0 + u64::try_from(AWAY.as_millis()).unwrap());
    assert!(acks.progress(later).is_empty());
    acks.begin(&report(2, 1), NOW).unwrap().counted();
    acks.forget("a");
    assert!(acks.progress(NOW).is_empty());
}
