//! A part that hangs holds up nobody but those who wait for it.

use std::time::Instant;

use stallproof::ledger::Filter;

use super::*;
use crate::faults;
use crate::ingest::{shard_owner, worker};

/// A record that goes to this shard, from the `n`th on.
fn of_shard(controller: &Controller, shard: usize, mut n: u16, bytes: u64) -> (u16, Record) {
    let router = controller.ingest.0.router;
    let inventory = controller.ingest.inventory();
    loop {
        let seen = record((n % 250) as u8, (n / 250) as u8, n, bytes);
        let one = report(1, vec![seen.clone()]);
        if !router.route(&one, &inventory.directory, |_| true).parts[shard].is_empty() {
            return (n + 1, seen);
        }
        n += 1;
    }
}

/// Waits until the shard is stuck in a piece of work.
async fn stuck(controller: &Controller, shard: usize) {
    let patience = soon();
    while controller.ingest.0.shards[shard].current().is_none() {
        assert!(!patience.has_passed());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_held_shard_is_named_and_holds_up_only_what_touches_it() {
    let dir = tempfile::tempdir().unwrap();
    let controller = Controller::start(dir.path(), 2).await;
    let ingest = &controller.ingest;
    let (_, mine) = of_shard(&controller, 0, 0, 100);
    let (_, other) = of_shard(&controller, 1, 0, 10);
    let held = faults::hold_shard(0);

    // Whoever touches it is answered at its deadline.
    let one = report(1, vec![mine.clone()]);
    let late = controller.offer_until(&one, Deadline::after(Duration::from_millis(50))).await;
    assert!(matches!(late, Err(NotCounted::Busy { .. })), "{late:?}");
    stuck(&controller, 0).await;

    // The other shard, its readers, and empty reports go on.
    let two = report(2, vec![other.clone()]);
    assert_eq!(controller.offer(&two).await, Ok(Counted { through: 2, durable: 0 }));
    assert!(controller.offer(&report(3, Vec::new())).await.is_ok());
    controller.until_bytes(10).await;
    assert!(
        ingest.view().graph(crate::conversations::Level::Namespace, Moment(0)).edges.len() == 1
    );

    // It is on the ledger with its number, and late soon.
    let named = controller.ledger.name_late(tokio::time::Instant::now() + worker::LATE);
    let shard = named.iter().find(|op| op.kind == "shard").expect("named");
    assert_eq!(shard.key, "0");
    assert!(worker::LATE <= Duration::from_secs(4), "a watchdog looks every second");
    // Who waits for it says so, and for whom.
    let waiting = controller.offer(&one);
    let looking = async {
        let filter = Filter { kind: Some("report".to_owned()), ..Filter::default() };
        let patience = soon();
        loop {
            let waits = controller.ledger.in_flight(&filter);
            if let Some(on) = waits.first().and_then(|op| op.waits_on.clone()) {
                break on;
            }
            assert!(!patience.has_passed());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::select! {
        _ = waiting => panic!("it is held"),
        on = looking => assert_eq!(on.what, "shard 0"),
    }

    // No checkpoint without it, and that is soon known too.
    let save = ingest.save(Deadline::after(Duration::from_millis(50)), &controller.tasks);
    assert!(!save.await);

    drop(held);
    let counted = controller.offer(&report(4, vec![mine, other])).await;
    assert_eq!(counted, Ok(Counted { through: 4, durable: 0 }));
    controller.until_bytes(110).await;
    assert!(controller.save().await);
}

#[tokio::test]
async fn what_waits_for_a_held_shard_is_bounded_and_the_rest_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let controller = Controller::start(dir.path(), 2).await;
    let ingest = &controller.ingest;
    let mut records = Vec::new();
    let mut n = 0;
    for _ in 0..1000 {
        let (next, seen) = of_shard(&controller, 0, n, 1);
        n = next;
        records.push(seen);
    }
    let bytes = records.len() as u64;
    let held = faults::hold_shard(0);
    let mut offered = 0_u64;
    let refused = loop {
        offered += 1;
        let asked = Instant::now();
        let one = report(offered, records.clone());
        // Nobody waits: the queue fills with what was given up.
        let busy = controller.offer_until(&one, Deadline::after(Duration::ZERO)).await;
        let Err(NotCounted::Busy { retry }) = busy else { panic!("{busy:?}") };
        let full = ingest.0.shards[0].reserve(shard_owner::weight(&part(ingest, &one))).is_none();
        if full {
            break (retry, asked);
        }
        assert!(offered < 10_000, "there is an end to it");
    };
    assert!(ingest.0.shards[0].waiting() <= shard_owner::WAITING);
    let again = controller.offer(&report(offered + 1, records.clone())).await;
    let Err(NotCounted::Busy { retry }) = again else { panic!("{again:?}") };
    assert!(retry >= Duration::from_secs(1) && refused.0 >= Duration::from_secs(1));
    // The other one was only told that the agent is there.
    let patience = soon();
    while ingest.0.shards[1].waiting() > 0 {
        assert!(!patience.has_passed(), "nothing is left with the others");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }

    drop(held);
    controller.until_bytes(bytes).await;
    // Everything was the same, and counted once.
    let counted = controller.offer(&report(offered + 2, records)).await;
    assert!(counted.is_ok(), "{counted:?}");
    controller.until_bytes(bytes).await;
}

fn part(ingest: &Ingest, report: &Report) -> crate::conversations::ShardReport {
    let inventory = ingest.inventory();
    ingest.0.router.route(report, &inventory.directory, |_| true).parts.remove(0)
}

#[tokio::test]
async fn a_disk_that_hangs_delays_what_is_durable_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let controller = Controller::start(dir.path(), 2).await;
    let held = faults::hold_writer();
    controller.offer(&report(1, vec![record(1, 2, 80, 5)])).await.unwrap();
    let saving = controller.save();
    let meanwhile = async {
        let patience = soon();
        let writing = || {
            let all = controller.ledger.in_flight(&Filter::default());
            all.iter().any(|op| op.kind == "checkpoint" && op.step == "write")
        };
        while !writing() {
            assert!(!patience.has_passed());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let counted = controller.offer(&report(2, vec![record(1, 2, 80, 9)])).await;
        assert_eq!(counted, Ok(Counted { through: 2, durable: 0 }));
        controller.until_bytes(9).await;
        assert!(!controller.save().await, "one at a time");
        drop(held);
    };
    let (saved, ()) = tokio::join!(saving, meanwhile);
    assert!(saved);
    let counted = controller.offer(&report(3, Vec::new())).await;
    assert_eq!(counted, Ok(Counted { through: 3, durable: 1 }));
}

#[tokio::test]
async fn a_learner_that_hangs_learns_later_what_it_missed() {
    let dir = tempfile::tempdir().unwrap();
    let controller = Controller::start(dir.path(), 2).await;
    let objects = Objects::embedded(&dir.path().join("objects"), &controller.tasks).unwrap();
    controller.ingest.follow_store(&objects, &controller.tasks);
    controller.ingest.set_workloads("node-0", &[workload("web", 1)]);
    let held = faults::hold_learner();
    let patience = soon();
    let missed = || controller.ingest.0.learner.missed_discovered();
    let mut sequence = 0;
    // Each is new, until there are more than it has room for.
    while missed() == 0 {
        sequence += 1;
        let seen = (0..2000_u64).map(|n| {
            let n = sequence * 2000 + n;
            Record {
                client: IpAddr::from([198, 51, (n >> 8) as u8, n as u8]),
                ..record(0, 1, (n >> 16) as u16 + 1, 1)
            }
        });
        controller.offer(&report(sequence, seen.collect())).await.unwrap();
        assert!(!patience.has_passed(), "{sequence}");
    }
    assert!(controller.ingest.learned().rules.is_empty());
    drop(held);
    while controller.ingest.learned().rules.is_empty() {
        assert!(!patience.has_passed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
