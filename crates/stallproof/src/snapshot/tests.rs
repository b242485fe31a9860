use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use futures::FutureExt;
use proptest::prelude::*;

use super::*;

#[test]
fn a_view_keeps_its_generation_while_others_publish() {
    let snapshot = Snapshot::new("old");
    let view = snapshot.load();
    assert!(snapshot.publish("new"));
    assert_eq!((*view, view.generation()), ("old", 0));
    let view = snapshot.load();
    assert_eq!((*view, view.generation()), ("new", 1));
    assert_eq!(snapshot.read(|value| value.len()), 3);
}

#[test]
fn what_did_not_change_is_not_published() {
    let snapshot = Snapshot::new(7);
    let mut changes = snapshot.subscribe();
    assert!(!snapshot.publish(7));
    assert!(!snapshot.update(|draft| {
        *draft = 8;
        false
    }));
    assert_eq!((*snapshot.load(), snapshot.load().generation()), (7, 0));
    assert!(changes.changed().now_or_never().is_none());
}

#[test]
fn readers_go_on_while_a_writer_is_stuck() {
    let snapshot = Snapshot::new(1);
    let (stuck, is_stuck) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let writer = thread::spawn({
        let snapshot = snapshot.clone();
        move || {
            snapshot.update(|draft| {
                *draft = 2;
                stuck.send(()).unwrap();
                released.recv().unwrap();
                true
            })
        }
    });
    is_stuck.recv().unwrap();
    assert_eq!(*snapshot.load(), 1);
    assert_eq!(snapshot.read(|value| *value), 1);
    assert_eq!(snapshot.subscribe().seen, 0);
    release.send(()).unwrap();
    assert!(writer.join().unwrap());
    assert_eq!(*snapshot.load(), 2);
}

#[test]
fn a_writer_that_panics_publishes_nothing_and_blocks_nobody() {
    let snapshot = Snapshot::new(1);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        snapshot.update(|draft| {
            *draft = 2;
            panic!("half way");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!((*snapshot.load(), snapshot.load().generation()), (1, 0));
    assert!(snapshot.publish(3));
}

#[tokio::test]
async fn changed_tells_the_newest_once() {
    let snapshot = Snapshot::new(0);
    let mut changes = snapshot.subscribe();
    snapshot.publish(1);
    snapshot.publish(2);
    let view = changes.changed().await;
    assert_eq!((*view, view.generation()), (2, 2));
    assert!(changes.changed().now_or_never().is_none());
}

#[tokio::test]
async fn a_wait_for_a_change_may_be_dropped() {
    let snapshot = Snapshot::new(0);
    let mut changes = snapshot.subscribe();
    assert!(changes.changed().now_or_never().is_none());
    snapshot.publish(1);
    assert_eq!(*changes.changed().await, 1);
}

#[tokio::test]
async fn a_publish_wakes_every_waiter() {
    let snapshot = Snapshot::new(0);
    let (mut one, mut two) = (snapshot.subscribe(), snapshot.subscribe());
    let (seen_one, seen_two, _) =
        tokio::join!(one.changed(), two.changed(), async { snapshot.publish(9) });
    assert_eq!((*seen_one, *seen_two), (9, 9));
}

#[test]
fn old_values_are_dropped_outside_the_lock() {
    struct Locked(Arc<AtomicBool>, Snapshot<Option<Arc<Locked>>>);
    impl Drop for Locked {
        fn drop(&mut self) {
            let free = self.1.0.writer.try_lock().is_some();
            self.0.store(free, Ordering::SeqCst);
        }
    }

    let free = Arc::new(AtomicBool::new(false));
    let snapshot = Snapshot::new(None);
    let value = Arc::new(Locked(Arc::clone(&free), snapshot.clone()));

    snapshot.update(|draft| {
        *draft = Some(value);
        true
    });
    snapshot.update(|draft| draft.take().is_some());
    assert!(free.swap(false, Ordering::SeqCst), "a replaced value");

    let value = Arc::new(Locked(Arc::clone(&free), snapshot.clone()));
    snapshot.update(|draft| {
        *draft = Some(value);
        false
    });
    assert!(free.load(Ordering::SeqCst), "a draft that was thrown away");
}

proptest! {
    #[test]
    fn the_generation_counts_the_changes(values in proptest::collection::vec(0_u8..3, 0..40)) {
        let snapshot = Snapshot::new(0);
        let (mut current, mut generation) = (0, 0);
        for value in values {
            let changes = value != current;
            prop_assert_eq!(snapshot.publish(value), changes);
            current = value;
            generation += u64::from(changes);
            let view = snapshot.load();
            prop_assert_eq!((*view, view.generation()), (current, generation));
        }
    }

    #[test]
    fn a_map_in_a_view_is_not_touched_by_later_updates(keys in proptest::collection::vec(0_u8..20, 1..40)) {
        let snapshot = Snapshot::new(Map::new());
        let mut views = vec![];
        for (at, key) in keys.iter().enumerate() {
            snapshot.update(|draft| draft.insert(*key, at) != Some(at));
            views.push(snapshot.load());
        }
        for (at, view) in views.iter().enumerate() {
            prop_assert_eq!(view.get(&keys[at]), Some(&at));
            prop_assert!(view.values().all(|stamp| *stamp <= at));
        }
    }
}
