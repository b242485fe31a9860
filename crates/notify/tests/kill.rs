//! `kill -9` at any instant: what the outbox accepted is there, in its order, once.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{Event, Outbox, OutboxLimits};
use objects::kinds::{EventKind, EventLevel};
use stallproof::{Deadline, Tasks};
use testkit::{acknowledge, killed};

const WRITERS: usize = 4;
const ALL: OutboxLimits = OutboxLimits { events: u64::MAX, bytes: u64::MAX };
/// An outbox is begun anew after so many lives: else a look takes longer and longer.
const LIVES: u64 = 10;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn outbox_dir(dir: &Path, life: u64) -> PathBuf {
    dir.join((life / LIVES).to_string())
}

/// Puts without end: what it says is accepted, and only then.
fn write(dir: &Path, life: u64) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let tasks = Tasks::new("child");
        let outbox = Outbox::open(&outbox_dir(dir, life), ALL, &tasks).unwrap();
        for writer in 0..WRITERS {
            let outbox = outbox.clone();
            tasks.spawn("writer", async move {
                for number in 0_u64.. {
                    let message = format!("{writer}/{life}/{number}");
                    let event = Event::new(EventKind::Audit, "write", EventLevel::Info, &message);
                    let to: Vec<Arc<str>> = vec!["receiver".into()];
                    let accepted = outbox.put(to, &event, soon()).await.unwrap();
                    assert!(accepted.refused.is_empty());
                    acknowledge(message);
                }
            });
        }
        std::future::pending::<()>().await;
    });
}

/// What another process finds to be delivered.
fn found(dir: &Path) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let tasks = Tasks::new("check");
        let outbox = Outbox::open(dir, ALL, &tasks).unwrap();
        let waiting = outbox.waiting("receiver", soon()).await.unwrap();
        drop(outbox);
        assert_eq!(tasks.shutdown(Duration::from_secs(30)).await, []);
        waiting.into_iter().map(|event| event.message).collect()
    })
}

#[test]
fn every_accepted_notification_survives_kill_9() {
    let mut accepted: BTreeSet<String> = BTreeSet::new();
    killed("every_accepted_notification_survives_kill_9", write, |dir, killed| {
        if killed.life % LIVES == 0 {
            accepted.clear();
        }
        accepted.extend(killed.acknowledged.iter().cloned());
        let messages = found(&outbox_dir(dir, killed.life));
        let found: BTreeSet<_> = messages.iter().collect();
        assert_eq!(found.len(), messages.len(), "nothing is there twice");
        for message in &accepted {
            assert!(found.contains(message), "{message} is lost, in life {}", killed.life);
        }
        // Of one writer, in the order in which it was accepted.
        for writer in 0..WRITERS {
            let own = messages.iter().filter_map(|it| it.strip_prefix(&format!("{writer}/")));
            let own = own.map(|rest| {
                let (life, number) = rest.split_once('/').unwrap();
                (life.parse::<u64>().unwrap(), number.parse::<u64>().unwrap())
            });
            assert!(own.is_sorted(), "{messages:?}");
        }
    });
}
