//! What an audited write waits for its intent to be on disk, against the plain way: each writer
//! appends its line and syncs, one after the other.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use access::audit::{Audit, Entry, Size};
use access::{AuthMethod, Identity, Verb};
use bench::Table;
use stallproof::{Deadline, Tasks, TrackedMutex};

const ROUNDS: usize = 20;

fn main() -> ExitCode {
    let mut table = Table::new("audit");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for writers in [1, 16, 256] {
        let batched = runtime.block_on(batched(writers));
        let plain = runtime.block_on(plain(writers));
        let what = format!("{writers} intents on disk, at once");
        let rivals = [("a sync each", plain.as_nanos() as f64)];
        table.row(&what, "ns", batched.as_nanos() as f64, &rivals);
    }
    table.finish()
}

fn entry() -> Entry {
    Entry {
        who: Identity { user: "ada".into(), via: AuthMethod::Local },
        from: None,
        verb: Verb::Update,
        cluster: "prod".to_owned(),
        namespace: Some("web".to_owned()),
        resource: "deployments.apps".to_owned(),
        name: Some("frontend".to_owned()),
        request_id: None,
        dry_run: false,
        details: serde_json::Map::new(),
    }
}

/// The mean time until all of `writers` have their intent on disk.
async fn batched(writers: usize) -> Duration {
    let data = tempfile::tempdir().unwrap();
    let tasks = Tasks::new("bench");
    let audit = Audit::start(data.path(), Size::default(), &tasks);
    audit.begin(entry(), Deadline::after(Duration::from_secs(60))).await.unwrap().finish("ok");
    let began = Instant::now();
    for _ in 0..ROUNDS {
        let round: Vec<_> = (0..writers)
            .map(|_| {
                let audit = audit.clone();
                tasks.spawn("write", async move {
                    let deadline = Deadline::after(Duration::from_secs(60));
                    audit.begin(entry(), deadline).await.unwrap().finish("ok");
                })
            })
            .collect();
        for write in round {
            write.await.unwrap();
        }
    }
    let took = began.elapsed() / ROUNDS as u32;
    tasks.shutdown(Duration::from_secs(10)).await;
    took
}

async fn plain(writers: usize) -> Duration {
    let data = tempfile::tempdir().unwrap();
    let tasks = Tasks::new("bench");
    let file = OpenOptions::new().create(true).append(true).open(data.path().join("audit"));
    let file: Arc<TrackedMutex<File>> = Arc::new(TrackedMutex::new("bench", file.unwrap()));
    let line = [b'x'; 300];
    let began = Instant::now();
    for _ in 0..ROUNDS {
        let mut round = Vec::new();
        for _ in 0..writers {
            let file = Arc::clone(&file);
            let deadline = Deadline::after(Duration::from_secs(60));
            let write = move || {
                let mut file = file.lock();
                file.write_all(&line).unwrap();
                file.sync_data().unwrap();
            };
            round.push(tasks.spawn_blocking("write", deadline, write).await.unwrap());
        }
        for write in round {
            write.await.unwrap();
        }
    }
    began.elapsed() / ROUNDS as u32
}
