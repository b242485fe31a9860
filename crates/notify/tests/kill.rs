//! `kill -9` at any instant: what the outbox accepted is there, in its order, and is delivered.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use std::{env, io, thread};

use notify::{Event, Outbox, OutboxLimits};
use objects::kinds::{EventKind, EventLevel};
use stallproof::{Deadline, Tasks};

/// Where the child writes; set in the child alone.
const CHILD: &str = "FAIRLEAD_TEST_KILL_DIR";
const KILLS: usize = 50;
const WRITERS: usize = 4;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

#[test]
fn every_accepted_notification_survives_kill_9() {
    if let Some(dir) = env::var_os(CHILD) {
        return child(Path::new(&dir));
    }
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut accepted: Vec<String> = Vec::new();
    for kill in 0..KILLS {
        accepted.extend(run_and_kill(dir.path()));
        let waiting = runtime.block_on(async {
            let tasks = Tasks::new("check");
            let outbox = Outbox::open(
                dir.path(),
                OutboxLimits { events: u64::MAX, bytes: u64::MAX },
                &tasks,
            );
            let waiting = outbox.unwrap().waiting("receiver", soon()).await.unwrap();
            tasks.shutdown(Duration::from_secs(30)).await;
            waiting
        });
        let messages: Vec<_> = waiting.into_iter().map(|event| event.message).collect();
        let found: BTreeSet<_> = messages.iter().collect();
        assert_eq!(found.len(), messages.len(), "nothing is there twice");
        for message in &accepted {
            assert!(found.contains(message), "after kill {kill}, {message} is lost");
        }
        // Of one writer, in the order in which it was accepted.
        for writer in 0..WRITERS {
            let numbers: Vec<(usize, u64)> = messages
                .iter()
                .filter_map(|message| message.strip_prefix(&format!("{writer}/")))
                .map(|rest| rest.split_once('/').unwrap())
                .map(|(life, number)| (life.parse().unwrap(), number.parse().unwrap()))
                .collect();
            let mut lives: Vec<_> = numbers.iter().map(|(life, _)| *life).collect();
            lives.dedup();
            for life in lives {
                let of: Vec<_> =
                    numbers.iter().filter(|(l, _)| *l == life).map(|(_, n)| *n).collect();
                assert!(of.is_sorted(), "{of:?}");
            }
        }
    }
    assert!(
        accepted.len() > KILLS,
        "{} in {KILLS} lives: the child hardly got to write",
        accepted.len()
    );
}

/// Puts without end: what it says is accepted, and only then.
fn child(dir: &Path) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let life = std::process::id();
    runtime.block_on(async {
        let tasks = Tasks::new("child");
        let limits = OutboxLimits { events: u64::MAX, bytes: u64::MAX };
        let outbox = Outbox::open(dir, limits, &tasks).unwrap();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let outbox = outbox.clone();
                tasks.spawn("writer", async move {
                    for number in 0_u64.. {
                        let message = format!("{writer}/{life}/{number}");
                        let event =
                            Event::new(EventKind::Audit, "write", EventLevel::Info, &message);
                        let to: Vec<Arc<str>> = vec!["receiver".into()];
                        let accepted = outbox.put(to, &event, soon()).await.unwrap();
                        assert!(accepted.refused.is_empty());
                        // One write: a line that is cut off was not said.
                        io::stdout().write_all(format!("accepted {message}\n").as_bytes()).unwrap();
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
    });
}

/// Lets a child live for a random while; answers what it said was accepted.
fn run_and_kill(dir: &Path) -> Vec<String> {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "every_accepted_notification_survives_kill_9", "--nocapture"])
        .env(CHILD, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    let life = Duration::from_micros(fastrand::u64(20_000..200_000));
    let killer = thread::spawn(move || {
        thread::sleep(life);
        child.kill().unwrap();
        child.wait().unwrap();
    });
    let mut accepted = Vec::new();
    let mut lines = said.split(b'\n');
    while let Some(Ok(line)) = lines.next() {
        let line = String::from_utf8(line).unwrap();
        accepted.extend(line.strip_prefix("accepted ").map(str::to_owned));
    }
    killer.join().unwrap();
    // The last may have been cut off.
    if let Some(last) = accepted.pop()
        && last.split('/').count() == 3
    {
        accepted.push(last);
    }
    accepted
}
