//! What group commit buys: durable writes a second of the embedded store, against the same redb with
//! a commit for every write; and reads, against redb's own read transactions.
//!
//! `cargo bench -p objects --bench store -- [SECONDS] [DIR]`

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bench::Table;
use futures::future::join_all;
use objects::kinds::{User, UserSpec};
use objects::{Expected, Id, Objects};
use redb::{Database, ReadableDatabase, TableDefinition};
use stallproof::{Deadline, Tasks};

const TABLE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");

fn main() -> ExitCode {
    // cargo adds `--bench`.
    let mut args = env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let seconds = args.next().map_or(3, |seconds| seconds.parse().unwrap());
    let dir = args.next().map_or_else(env::temp_dir, PathBuf::from);
    let dir = tempfile::tempdir_in(dir).unwrap();
    let time = Duration::from_secs(seconds);

    let json = serde_json::to_vec(&user("u0", 0)).unwrap();
    let mut table = Table::new("store");
    let rival = Rival::new(&dir.path().join("rival.redb"));
    let two_phase = rival.writes(&json, time, true);
    let one_phase = rival.writes(&json, time, false);
    let rival_reads = rival.reads(time);

    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let tasks = Tasks::new("bench");
        let objects = Objects::embedded(&dir.path().join("store"), &tasks).unwrap();
        for writers in [1, 64, 256] {
            let rate = writes(&objects, writers, time).await;
            let rivals = [
                ("redb, a commit each in two phases", two_phase),
                ("redb, a commit each in one phase", one_phase),
            ];
            let what = format!("{writers} writers, {} bytes an object", json.len());
            table.row(&what, " writes/s", rate, &rivals);
        }
        let idle = reads(&objects, time).await;
        table.row("reads", "/s", idle, &[("redb's read transactions", rival_reads)]);
        let (busy, _) = tokio::join!(reads(&objects, time), writes(&objects, 64, time));
        table.row("reads beside 64 writers", "/s", busy, &[("without writers", idle)]);
        tasks.shutdown(Duration::from_secs(10)).await;
    });
    table.finish()
}

async fn writes(objects: &Objects, writers: usize, time: Duration) -> f64 {
    let started = Instant::now();
    let writer = |writer: usize| async move {
        let mut count = 0_u32;
        while started.elapsed() < time {
            let wanted = user(&format!("u{writer}"), count);
            objects.apply(&wanted, Expected::Any, soon()).await.unwrap();
            count += 1;
        }
        count
    };
    let counts = join_all((0..writers).map(writer)).await;
    f64::from(counts.iter().sum::<u32>()) / started.elapsed().as_secs_f64()
}

async fn reads(objects: &Objects, time: Duration) -> f64 {
    let started = Instant::now();
    let id = Id::cluster("u0");
    let mut count = 0_u32;
    while started.elapsed() < time {
        for _ in 0..100 {
            assert!(objects.get::<User>(&id, soon()).await.unwrap().is_some());
        }
        count += 100;
        tokio::task::yield_now().await;
    }
    f64::from(count) / started.elapsed().as_secs_f64()
}

struct Rival(Database);

impl Rival {
    fn new(file: &Path) -> Self {
        Self(Database::create(file).unwrap())
    }

    fn writes(&self, json: &[u8], time: Duration, two_phase: bool) -> f64 {
        let started = Instant::now();
        let mut count = 0_u32;
        while started.elapsed() < time {
            let mut transaction = self.0.begin_write().unwrap();
            transaction.set_two_phase_commit(two_phase);
            let key = format!("u{}", count % 64);
            transaction.open_table(TABLE).unwrap().insert(key.as_str(), json).unwrap();
            transaction.commit().unwrap();
            count += 1;
        }
        f64::from(count) / started.elapsed().as_secs_f64()
    }

    /// As the store answers them: parsed.
    fn reads(&self, time: Duration) -> f64 {
        let started = Instant::now();
        let mut count = 0_u32;
        while started.elapsed() < time {
            for _ in 0..100 {
                let table = self.0.begin_read().unwrap().open_table(TABLE).unwrap();
                let found = table.get("u0").unwrap().unwrap();
                let user: User = serde_json::from_slice(found.value()).unwrap();
                assert!(user.metadata.name.is_some());
            }
            count += 100;
        }
        f64::from(count) / started.elapsed().as_secs_f64()
    }
}

fn user(name: &str, number: u32) -> User {
    let roles = vec![format!("role-{number}")];
    User::new(name, UserSpec { password_hash: None, roles, disabled: false })
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}
