//! What is known again after a controller was killed.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::history::HistoryFiles;

#[tokio::test]
async fn what_was_durable_is_known_after_a_kill_and_the_rest_is_sent_again() {
    let dir = tempfile::tempdir().unwrap();
    let guard = dir.path().join("guard");
    let controller = Controller::start(&guard, 2).await;
    let epoch = controller.ingest.epoch();
    controller.offer(&report(1, vec![record(1, 2, 80, 100)])).await.unwrap();
    assert!(controller.save().await);
    let after = controller.offer(&report(2, vec![record(1, 2, 80, 150)])).await;
    assert_eq!(after, Ok(Counted { through: 2, durable: 1 }));
    drop(controller);
    assert_eq!(guard.metadata().unwrap().permissions().mode() & 0o777, 0o700);

    let controller = Controller::start(&guard, 3).await;
    assert_eq!(controller.ingest.epoch(), epoch, "nothing durable was lost");
    controller.until_bytes(100).await;
    // What was acknowledged and not durable, and what came since.
    let again = controller.offer(&report(3, vec![record(1, 2, 80, 170)])).await;
    assert_eq!(again, Ok(Counted { through: 3, durable: 1 }));
    controller.until_bytes(170).await;
    assert!(controller.save().await);
    let twice = controller.offer(&report(3, vec![record(1, 2, 80, 170)])).await;
    assert_eq!(twice, Ok(Counted { through: 3, durable: 3 }));
    controller.until_bytes(170).await;
}

#[tokio::test]
async fn a_checkpoint_that_cannot_be_used_is_kept_aside_and_the_epoch_is_new() {
    let dir = tempfile::tempdir().unwrap();
    let controller = Controller::start(dir.path(), 2).await;
    let epoch = controller.ingest.epoch();
    controller.offer(&report(1, vec![record(1, 2, 80, 100)])).await.unwrap();
    assert!(controller.save().await);
    drop(controller);
    let path = dir.path().join("conversations");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes).unwrap();

    let controller = Controller::start(dir.path(), 2).await;
    assert_ne!(controller.ingest.epoch(), epoch);
    let names = dir.path().read_dir().unwrap();
    let names: Vec<_> =
        names.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.iter().any(|name| name.starts_with("conversations.refused-")), "{names:?}");
    // Agents send everything to an epoch that they do not know.
    let counted = controller.offer(&report(2, vec![record(1, 2, 80, 120)])).await;
    assert_eq!(counted, Ok(Counted { through: 2, durable: 0 }));
    controller.until_bytes(120).await;
}

#[tokio::test]
async fn ingest_is_active_for_a_term_and_the_next_one_knows_what_the_last_did() {
    let dir = tempfile::tempdir().unwrap();
    let active = ActiveIngest::default();
    let all = Tasks::new("process");
    let settings = Settings { shards: 2, ..Settings::new(dir.path().join("guard")) };
    let mut epoch = None;
    for term in 1..=3_u64 {
        let tasks = all.child("leading");
        let mut changes = active.changes();
        let hold = active.clone().hold(settings.clone(), Ledger::default(), tasks.clone(), |_| {});
        let held = tasks.spawn("guard", hold);
        soon().bound(changes.changed()).await.unwrap();
        let ingest = active.ingest().expect("taken");
        assert_eq!(*epoch.get_or_insert(ingest.epoch()), ingest.epoch());
        let seen = report(term, vec![record(1, 2, 80, 100 * term)]);
        let counted = offer(&ingest, &seen, soon(), &Ledger::default()).await.unwrap();
        assert_eq!(counted.through, term);
        assert!(counted.durable <= term && counted.durable + 1 >= term, "{counted:?}");
        tasks.stop("the term is over");
        soon().bound(held).await.unwrap().unwrap();
        assert!(active.ingest().is_none());
        // Whoever still has the old one is sent away.
        let late =
            offer(&ingest, &report(9, vec![record(1, 2, 80, 1)]), soon(), &Ledger::default()).await;
        assert!(matches!(late, Err(NotCounted::Busy { .. })), "{late:?}");
    }
    let controller = Controller::start(&settings.dir, 2).await;
    controller.until_bytes(300).await;
}

#[tokio::test]
async fn a_shard_that_panics_ends_the_term_and_the_next_goes_on_from_the_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let active = ActiveIngest::default();
    let settings = Settings { shards: 2, ..Settings::new(dir.path().join("guard")) };
    let all = Tasks::new("process");
    let tasks = all.child("guard");
    let mut changes = active.changes();
    let hold = active.clone().hold(settings.clone(), Ledger::default(), tasks.clone(), |_| {});
    let held = all.spawn("term", hold);
    soon().bound(changes.changed()).await.unwrap();
    let ingest = active.ingest().unwrap();
    offer(&ingest, &report(1, vec![record(1, 2, 80, 100)]), soon(), &Ledger::default())
        .await
        .unwrap();
    let patience = soon();
    while !ingest.save(soon(), &tasks).await {
        assert!(!patience.has_passed(), "the first one of the term is being written");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    crate::faults::break_shard(0);
    soon().bound(held).await.expect("its term ends").unwrap();
    assert!(active.ingest().is_none() && !all.stopping().is_stopped(), "and nothing else does");

    let controller = Controller::start(&settings.dir, 2).await;
    assert_eq!(controller.ingest.epoch(), ingest.epoch());
    controller.until_bytes(100).await;
}

#[tokio::test]
async fn history_has_what_each_term_counted_once() {
    let dir = tempfile::tempdir().unwrap();
    let active = ActiveIngest::default();
    let all = Tasks::new("process");
    let mut settings = Settings { shards: 2, ..Settings::new(dir.path().join("guard")) };
    settings.history.every = Duration::from_millis(50);
    let files = HistoryFiles::new(settings.history.clone());
    let recorded = || {
        let (mut lines, mut bytes) = (0, 0);
        let everything = (Moment(0), Moment(u64::MAX));
        let read = files.read(everything, None, |frame| {
            lines += frame.lines.len();
            bytes += frame.lines.iter().map(|line| line.totals.bytes).sum::<u64>();
            true
        });
        read.map(|_| (lines, bytes)).unwrap()
    };
    for term in 1..=3_u64 {
        let tasks = all.child("leading");
        let mut changes = active.changes();
        let hold = active.clone().hold(settings.clone(), Ledger::default(), tasks.clone(), |_| {});
        let held = tasks.spawn("guard", hold);
        soon().bound(changes.changed()).await.unwrap();
        let ingest = active.ingest().expect("taken");
        let seen = report(term, vec![record(1, 2, 80, 100 * term)]);
        offer(&ingest, &seen, soon(), &Ledger::default()).await.unwrap();
        let patience = soon();
        while recorded().1 < 100 * term {
            assert!(!patience.has_passed(), "{:?} in term {term}", recorded());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tasks.stop("the term is over");
        soon().bound(held).await.unwrap().unwrap();
        tasks.shutdown(Duration::from_secs(30)).await;
        assert_eq!(recorded(), (usize::try_from(term).unwrap(), 100 * term), "once each");
    }
}
