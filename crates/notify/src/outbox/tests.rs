#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use objects::kinds::{EventKind, EventLevel};
use stallproof::{Deadline, Tasks};

use parking_lot::Mutex;
use stallproof::group_commit::GroupWriter;
use tokio::sync::oneshot;

use super::disk::Disk;
use super::{Outbox, OutboxLimits, Request, Shared, Writer};
use crate::event::Event;
use crate::metrics::Metrics;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn event(number: u32) -> Event {
    Event::new(EventKind::Violation, "denied", EventLevel::Warning, format!("number {number}"))
}

fn names<const N: usize>(names: [&str; N]) -> Vec<Arc<str>> {
    names.map(Arc::from).into()
}

async fn messages(outbox: &Outbox, receiver: &str) -> Vec<String> {
    let waiting = outbox.waiting(receiver, soon()).await.unwrap();
    waiting.into_iter().map(|event| event.message).collect()
}

#[tokio::test]
async fn each_receiver_has_its_own_queue_in_order() {
    let (dir, tasks) = (tempfile::tempdir().unwrap(), Tasks::new("test"));
    let outbox = Outbox::open(dir.path(), OutboxLimits::default(), &tasks).unwrap();
    outbox.put(names(["a", "b"]), &event(1), soon()).await.unwrap();
    outbox.put(names(["a"]), &event(2), soon()).await.unwrap();
    assert_eq!(messages(&outbox, "a").await, ["number 1", "number 2"]);
    assert_eq!(messages(&outbox, "b").await, ["number 1"]);
    let a: Arc<str> = "a".into();
    let read = outbox.read(&a, 0, 1, soon()).await.unwrap();
    assert_eq!(read.len(), 1);
    outbox.took(&a, read[0].0).await;
    outbox.put(names(["a"]), &event(3), soon()).await.unwrap();
    assert_eq!(messages(&outbox, "a").await, ["number 2", "number 3"]);
    assert_eq!((outbox.queue(&a).events(), outbox.queue(&"b".into()).events()), (2, 1));
}

#[tokio::test]
async fn a_full_queue_refuses_counts_and_keeps_what_it_has() {
    let (dir, tasks) = (tempfile::tempdir().unwrap(), Tasks::new("test"));
    let limits = OutboxLimits { events: 2, bytes: 1 << 20 };
    let outbox = Outbox::open(dir.path(), limits, &tasks).unwrap();
    for number in 1..=2 {
        outbox.put(names(["full"]), &event(number), soon()).await.unwrap();
    }
    let accepted = outbox.put(names(["full", "free"]), &event(3), soon()).await.unwrap();
    assert_eq!((accepted.by, accepted.refused), (names(["free"]), names(["full"])));
    let full = outbox.queue(&"full".into());
    assert_eq!(
        (full.events(), full.dropped(), full.take_missed(), full.take_missed()),
        (2, 1, 1, 0)
    );
    assert_eq!(messages(&outbox, "full").await, ["number 1", "number 2"]);
    let bytes = OutboxLimits { events: 100, bytes: 10 };
    let other = tempfile::tempdir().unwrap();
    let outbox = Outbox::open(other.path(), bytes, &tasks).unwrap();
    let accepted = outbox.put(names(["small"]), &event(1), soon()).await.unwrap();
    assert_eq!(accepted.refused, names(["small"]), "ten bytes hold no event");
}

#[tokio::test]
async fn a_restart_finds_what_was_accepted_and_not_what_was_taken_or_purged() {
    let dir = tempfile::tempdir().unwrap();
    let tasks = Tasks::new("first");
    let outbox = Outbox::open(dir.path(), OutboxLimits::default(), &tasks).unwrap();
    for number in 1..=3 {
        outbox.put(names(["a", "gone"]), &event(number), soon()).await.unwrap();
    }
    outbox.took(&"a".into(), 1).await;
    outbox.purge(&"gone".into()).await;
    drop(outbox);
    tasks.shutdown(Duration::from_secs(30)).await;
    let tasks = Tasks::new("second");
    let outbox = Outbox::open(dir.path(), OutboxLimits::default(), &tasks).unwrap();
    assert_eq!(messages(&outbox, "a").await, ["number 2", "number 3"]);
    assert_eq!(outbox.known(), names(["a"]));
    // Numbers go on after the last.
    outbox.put(names(["a"]), &event(4), soon()).await.unwrap();
    assert_eq!(messages(&outbox, "a").await, ["number 2", "number 3", "number 4"]);
}

#[tokio::test]
async fn a_damaged_file_is_kept_beside_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("outbox.redb"), vec![7_u8; 100_000]).unwrap();
    let tasks = Tasks::new("test");
    let outbox = Outbox::open(dir.path(), OutboxLimits::default(), &tasks).unwrap();
    outbox.put(names(["a"]), &event(1), soon()).await.unwrap();
    assert_eq!(messages(&outbox, "a").await, ["number 1"]);
    let files = std::fs::read_dir(dir.path()).unwrap();
    let kept =
        files.filter(|f| f.as_ref().unwrap().file_name().to_string_lossy().contains("refused"));
    assert_eq!(kept.count(), 1);
}

#[tokio::test]
async fn what_is_put_while_as_much_is_removed_wakes_the_delivery() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, counts) = Disk::open(dir.path()).unwrap();
    let shared = Arc::new(Shared {
        disk: Arc::new(disk),
        queues: Mutex::default(),
        limits: OutboxLimits::default(),
        metrics: Metrics::default(),
    });
    let mut writer = Writer { shared: Arc::clone(&shared), counts };
    let receiver: Arc<str> = "a".into();
    let put = || {
        let (done, _) = oneshot::channel();
        let json = serde_json::to_vec(&event(1)).unwrap();
        Request::Put { receivers: vec![Arc::clone(&receiver)], json, done }
    };
    writer.write(vec![put()]);
    let queue = Arc::clone(&shared.queues.lock()[&receiver]);
    queue.wake.notified().await;
    writer.write(vec![
        Request::Took { receiver: Arc::clone(&receiver), through: 1, done: oneshot::channel().0 },
        put(),
    ]);
    assert_eq!(queue.events(), 1);
    // A permit is there at once, or never.
    tokio::select! {
        biased;
        () = queue.wake.notified() => {}
        () = std::future::ready(()) => panic!("nobody is woken"),
    }
}
