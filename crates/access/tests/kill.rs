//! `kill -9` at any instant: a write that was let through is in the audit, once, and no line spoils another.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use access::audit::{Entry, Filter, Phase, Record, Size};
use access::{Audit, AuthMethod, Identity, Verb};
use stallproof::{Deadline, Tasks};
use testkit::{acknowledge, killed};

const WRITERS: u64 = 4;
/// Files are small, so that many processes are killed while they rotate, and none is removed before it is read.
const SIZE: Size = Size { each: 32 << 10, files: 40 };
/// All of it is read after so many lives, and then begun anew: else a look takes longer and longer.
const LIVES: u64 = 10;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn entry(name: &str) -> Entry {
    Entry {
        who: Identity { user: "ada".into(), via: AuthMethod::Local },
        from: None,
        verb: Verb::Update,
        cluster: "prod".to_owned(),
        namespace: Some("web".to_owned()),
        resource: "deployments.apps".to_owned(),
        name: Some(name.to_owned()),
        request_id: None,
        dry_run: false,
        details: serde_json::Map::new(),
    }
}

fn data(dir: &Path, life: u64) -> std::path::PathBuf {
    dir.join((life / LIVES).to_string())
}

/// Begins writes and ends them without end; says which have begun.
fn write(dir: &Path, life: u64) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let tasks = Tasks::new("child");
        let audit = Audit::start(&data(dir, life), SIZE, &tasks);
        for writer in 0..WRITERS {
            let audit = audit.clone();
            tasks.spawn("writer", async move {
                for number in 0_u64.. {
                    let name = format!("{life}/{writer}/{number}");
                    let begun = audit.begin(entry(&name), soon()).await.unwrap();
                    acknowledge(&name);
                    begun.finish("ok");
                }
            });
        }
        std::future::pending::<()>().await;
    });
}

/// Every line, the oldest first.
fn lines(data: &Path) -> Vec<Record> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let tasks = Tasks::new("check");
        let audit = Audit::start(data, SIZE, &tasks);
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let part = audit.export(Filter::default(), after, soon()).await.unwrap();
            all.extend(part.lines);
            after = part.next;
            if after.is_none() {
                break;
            }
        }
        drop(audit);
        assert_eq!(tasks.shutdown(Duration::from_secs(30)).await, []);
        all
    })
}

#[test]
fn every_write_that_began_is_in_the_audit_after_kill_9() {
    let mut begun: BTreeSet<String> = BTreeSet::new();
    killed("every_write_that_began_is_in_the_audit_after_kill_9", write, |dir, killed| {
        if killed.life % LIVES == 0 {
            begun.clear();
        }
        begun.extend(killed.acknowledged.iter().cloned());
        let mut count: BTreeMap<(String, bool), u32> = BTreeMap::new();
        for line in lines(&data(dir, killed.life)) {
            let ended = line.phase == Phase::Ended;
            *count.entry((line.name.unwrap(), ended)).or_default() += 1;
        }
        for name in &begun {
            let there = count.get(&(name.clone(), false)).copied();
            assert_eq!(there, Some(1), "{name}, after life {}", killed.life);
        }
        for ((name, ended), there) in &count {
            assert_eq!(*there, 1, "{name} is there {there} times, after life {}", killed.life);
            // An outcome without an intent would be a write that nobody can follow.
            assert!(!ended || count.contains_key(&(name.clone(), false)), "{name} ended only");
        }
    });
}
