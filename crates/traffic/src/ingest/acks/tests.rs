use std::time::Instant;

use super::Acks;
use crate::conversations::{AWAY, Progress, Report};
use crate::ingest::{Counted, NotCounted};

fn report(incarnation: u64, sequence: u64) -> Report {
    Report { agent: "a".into(), incarnation, sequence, records: Vec::new(), ..Report::default() }
}

fn counted(through: u64, durable: u64) -> Counted {
    Counted { through, durable }
}

#[test]
fn nothing_is_acknowledged_past_what_is_being_counted() {
    let acks = Acks::default();
    let first = acks.begin(&report(1, 1), Instant::now()).unwrap();
    let second = acks.begin(&report(1, 2), Instant::now()).unwrap();
    assert_eq!(second.counted(), counted(0, 0));
    assert_eq!(first.counted(), counted(2, 0));
}

#[test]
fn a_batch_that_was_refused_or_never_came_holds_up_no_later_one() {
    let acks = Acks::default();
    let refused = acks.begin(&report(1, 1), Instant::now()).unwrap();
    let later = acks.begin(&report(1, 4), Instant::now()).unwrap();
    assert_eq!(later.counted(), counted(0, 0));
    drop(refused);
    assert_eq!(acks.begin(&report(1, 5), Instant::now()).unwrap().counted(), counted(5, 0));
    // One that comes again, late, takes nothing back.
    let late = acks.begin(&report(1, 2), Instant::now()).unwrap();
    assert_eq!(acks.begin(&report(1, 6), Instant::now()).unwrap().counted(), counted(5, 0));
    assert_eq!(late.counted(), counted(6, 0));
}

#[test]
fn a_newer_incarnation_begins_at_zero_and_ends_the_older() {
    let acks = Acks::default();
    let old = acks.begin(&report(1, 7), Instant::now()).unwrap();
    assert_eq!(acks.begin(&report(2, 1), Instant::now()).unwrap().counted(), counted(1, 0));
    assert_eq!(old.counted(), counted(7, 0));
    assert_eq!(
        acks.begin(&report(1, 8), Instant::now()).unwrap_err(),
        NotCounted::Outdated { known: 2 }
    );
    assert_eq!(acks.begin(&report(2, 2), Instant::now()).unwrap().counted(), counted(2, 0));
}

#[test]
fn what_was_kept_is_durable_and_known_after_a_restart() {
    let acks = Acks::default();
    acks.begin(&report(1, 3), Instant::now()).unwrap().counted();
    let progress = acks.progress(Instant::now());
    assert_eq!(progress, [Progress { agent: "a".into(), incarnation: 1, through: 3 }]);
    acks.begin(&report(1, 4), Instant::now()).unwrap().counted();
    acks.kept(&progress);
    assert_eq!(acks.begin(&report(1, 5), Instant::now()).unwrap().counted(), counted(5, 3));
    let after = Acks::of(&progress, Instant::now());
    assert_eq!(after.begin(&report(1, 4), Instant::now()).unwrap().counted(), counted(4, 3));
    // Of another incarnation it says nothing.
    acks.begin(&report(2, 1), Instant::now()).unwrap().counted();
    acks.kept(&progress);
    assert_eq!(acks.begin(&report(2, 2), Instant::now()).unwrap().counted(), counted(2, 0));
}

#[test]
fn an_agent_that_stays_away_is_forgotten() {
    let acks = Acks::default();
    acks.begin(&report(1, 3), Instant::now()).unwrap().counted();
    let later = Instant::now() + AWAY;
    assert!(acks.progress(later).is_empty());
    acks.begin(&report(2, 1), Instant::now()).unwrap().counted();
    acks.forget("a");
    assert!(acks.progress(Instant::now()).is_empty());
}
