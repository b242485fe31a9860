use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;

use super::*;

/// Writes numbers down, group by group. A group with a 13 panics.
struct Numbers {
    written: Arc<Mutex<Vec<String>>>,
    /// What each group waits for.
    turn: Receiver<()>,
}

impl GroupWriter for Numbers {
    type Request = (u32, Option<oneshot::Sender<u32>>);

    fn write(&mut self, group: Vec<Self::Request>) {
        self.turn.recv().unwrap();
        let numbers: Vec<_> = group.iter().map(|(number, _)| *number).collect();
        assert!(!numbers.contains(&13), "13 brings bad luck");
        self.written.lock().push(format!("{numbers:?}"));
        for (number, answer) in group {
            answer.map(|answer| answer.send(number));
        }
    }

    fn panicked(&mut self, why: &str) {
        self.written.lock().push(why.to_owned());
    }

    fn close(self) {
        self.written.lock().push("closed".to_owned());
    }
}

type Started = (
    GroupCommit<<Numbers as GroupWriter>::Request>,
    Arc<Mutex<Vec<String>>>,
    std::sync::mpsc::SyncSender<()>,
);

fn start(bound: usize, tasks: &Tasks) -> Started {
    let written = Arc::<Mutex<Vec<String>>>::default();
    let (turns, turn) = sync_channel(64);
    let numbers = Numbers { written: Arc::clone(&written), turn };
    (GroupCommit::start("numbers", bound, numbers, tasks).unwrap(), written, turns)
}

/// Waits until the thread has taken the first request: others are then of the next group.
async fn taken(queue: &GroupCommit<<Numbers as GroupWriter>::Request>) {
    while queue.0.capacity() < queue.0.max_capacity() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn what_waits_is_one_group_and_one_too_many_is_refused() {
    let tasks = Tasks::new("test");
    let (queue, written, turns) = start(3, &tasks);
    queue.try_send((1, None)).unwrap();
    taken(&queue).await;
    let (answer, answered) = oneshot::channel();
    queue.try_send((2, None)).unwrap();
    queue.try_send((3, None)).unwrap();
    queue.try_send((4, Some(answer))).unwrap();
    assert_eq!(queue.try_send((5, None)), Err(QueueError::Full));
    turns.send(()).unwrap();
    turns.send(()).unwrap();
    assert_eq!(answered.await, Ok(4));
    assert_eq!(*written.lock(), ["[1]", "[2, 3, 4]"]);
}

#[tokio::test]
async fn a_panic_costs_its_own_group() {
    let tasks = Tasks::new("test");
    let (queue, written, turns) = start(8, &tasks);
    let (answer, lost) = oneshot::channel();
    queue.try_send((13, Some(answer))).unwrap();
    turns.send(()).unwrap();
    assert!(lost.await.is_err());
    let (answer, answered) = oneshot::channel();
    queue.send((14, Some(answer))).await.unwrap();
    turns.send(()).unwrap();
    assert_eq!(answered.await, Ok(14));
    let written = written.lock();
    assert!(written[0].contains("13 brings bad luck"), "{written:?}");
    assert_eq!(written[1..], ["[14]"]);
}

#[tokio::test]
async fn a_stop_writes_what_was_queued_and_the_shutdown_waits_for_it() {
    let tasks = Tasks::new("test");
    let (queue, written, turns) = start(8, &tasks);
    queue.try_send((1, None)).unwrap();
    taken(&queue).await;
    queue.try_send((2, None)).unwrap();
    for _ in 0..2 {
        turns.send(()).unwrap();
    }
    assert!(tasks.shutdown(Duration::from_secs(30)).await.is_empty());
    assert_eq!(*written.lock(), ["[1]", "[2]", "closed"]);
    assert!(queue.is_closed());
    assert_eq!(queue.try_send((3, None)), Err(QueueError::Closed));
    assert_eq!(queue.send((3, None)).await, Err(QueueError::Closed));
}

#[tokio::test]
async fn the_thread_ends_with_the_last_handle() {
    let tasks = Tasks::new("test");
    let (queue, written, _turns) = start(8, &tasks);
    drop(queue.clone());
    assert!(!queue.is_closed());
    drop(queue);
    while written.lock().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(*written.lock(), ["closed"]);
}
