//! `Checkpoints`: what an ingest has, on disk every [`EVERY`], and back again.
//!
//! Contract:
//! - Progress is taken first, then each shard's part, one shard after the other; bytes are written and
//!   synced on a thread where that may hang. Only then is anything called durable.
//! - One is written at a time, in this process, whatever hangs.
//! - One that cannot be used is kept aside and said; counting begins anew, in a new epoch.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use stallproof::ledger::Outcome;
use stallproof::{Deadline, Ledger, Tasks};
use tokio::sync::Semaphore;
use tracing::{error, info, warn};

use super::{Ingest, Inner, Settings, learner, shard_owner};
use crate::conversations::{
    Checkpoint, CheckpointError, Moment, Progress, Readers, Router, Shard, shards,
};
use crate::rules::Learned;
use crate::violations::Violations;

/// What an agent may have to send again after `kill -9` is as old as this.
const EVERY: Duration = Duration::from_secs(30);
/// For the shards to give what they have.
const GATHER: Duration = Duration::from_secs(20);
/// A disk that takes longer to read a file is named, and waited for.
const READ: Duration = Duration::from_secs(60 * 60);
/// More than anybody reads; some megabytes.
const VIOLATIONS: usize = 8192;

const KIND: &str = "checkpoint";
const KEY: &str = "conversations";
const TENANT: &str = "guard";

#[derive(Clone, Debug)]
pub(super) struct Checkpoints {
    path: PathBuf,
    /// Whoever writes has it.
    writing: Arc<Semaphore>,
}

/// What counting goes on from.
pub(super) struct Restored {
    pub(super) epoch: u64,
    pub(super) router: Router,
    pub(super) shards: Vec<Shard>,
    pub(super) readers: Readers,
    pub(super) progress: Vec<Progress>,
    pub(super) learned: Learned,
    pub(super) violations: Violations,
}

/// As long as the seed is the same, what was acknowledged is known. It cannot be told from it.
fn epoch(seed: [u64; 2]) -> u64 {
    let mut sum = Sha256::new();
    sum.update(b"epoch");
    seed.iter().for_each(|half| sum.update(half.to_le_bytes()));
    let sum = sum.finalize();
    u64::from_le_bytes(sum[..8].try_into().expect("a sum has 32 bytes"))
}

impl Checkpoints {
    pub(super) fn new(dir: &Path, writing: Arc<Semaphore>) -> Self {
        Self { path: dir.join("conversations"), writing }
    }

    /// Fails only if nothing can be begun at all.
    pub(super) async fn restore(
        &self,
        settings: &Settings,
        ledger: &Ledger,
        tasks: &Tasks,
    ) -> io::Result<Restored> {
        let op = ledger.begin(KIND, KEY, TENANT);
        op.step("read");
        let (path, settings) = (self.path.clone(), settings.clone());
        let read = move || read(&path, &settings);
        let reading = tasks.spawn_blocking("guard-checkpoint", Deadline::after(READ), read);
        let restored = match reading.await {
            Ok(reading) => reading.await.map_err(io::Error::other)?,
            Err(late) => Err(io::Error::other(late)),
        };
        op.finish(if restored.is_ok() { Outcome::Done } else { Outcome::Failed });
        restored
    }
}

fn read(path: &Path, settings: &Settings) -> io::Result<Restored> {
    if let Err(error) = fs::DirBuilder::new().recursive(true).mode(0o700).create(&settings.dir) {
        let dir = settings.dir.display();
        warn!(%dir, %error, "conversations are counted, but cannot be kept: no directory");
    }
    let found = Checkpoint::read(path)
        .and_then(|found| found.map(|found| taken_up(&found, settings)).transpose());
    match found {
        Ok(Some(restored)) => {
            info!(agents = restored.progress.len(), "the checkpoint of conversations was taken up");
            Ok(restored)
        }
        Ok(None) => empty(settings),
        Err(refused) => {
            let aside = path.with_extension(format!("refused-{}", Moment::now().0));
            let kept = fs::rename(path, &aside);
            let (aside, refused) = (aside.display(), stallproof::sentence(&refused));
            match kept {
                Ok(()) => error!(refused, kept = %aside, "the conversations begin anew"),
                Err(error) => error!(refused, %error, "the conversations begin anew"),
            }
            empty(settings)
        }
    }
}

fn taken_up(found: &Checkpoint, settings: &Settings) -> Result<Restored, CheckpointError> {
    let (router, shards, readers) = found.restore(settings.shards, settings.limits)?;
    Ok(Restored {
        epoch: epoch(found.seed),
        router,
        shards,
        readers,
        progress: found.progress.clone(),
        learned: Learned::load(&found.learned)?,
        violations: Violations::load(&found.violations, VIOLATIONS)?,
    })
}

fn empty(settings: &Settings) -> io::Result<Restored> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let number = u128::from_le_bytes(bytes);
    let seed = [number as u64, (number >> 64) as u64];
    let router = Router::new(seed, settings.shards);
    let (shards, readers) = shards(router, settings.limits);
    Ok(Restored {
        epoch: epoch(seed),
        router,
        shards,
        readers,
        progress: Vec::new(),
        learned: Learned::default(),
        violations: Violations::new(VIOLATIONS),
    })
}

impl Ingest {
    /// Until `tasks` stops.
    pub(super) async fn keep_checkpoints(&self, tasks: &Tasks) {
        let stop = tasks.stopping();
        // The first at once: until there is one, a kill means another epoch. None is given up halfway,
        // or the last one of the term would find the disk taken.
        loop {
            self.save(Deadline::after(GATHER), tasks).await;
            if stop.bound(tokio::time::sleep(EVERY)).await.is_none() {
                return;
            }
        }
    }

    /// One checkpoint. `gather` is for the shards; the disk may take its time. Says whether it is
    /// on disk.
    pub(super) async fn save(&self, gather: Deadline, tasks: &Tasks) -> bool {
        let Inner { ledger, metrics, checkpoints, acks, .. } = &*self.0;
        let began = Instant::now();
        let Ok(permit) = Arc::clone(&checkpoints.writing).try_acquire_owned() else {
            metrics.checkpoint("hung", 0, began.elapsed());
            warn!("the checkpoint before is still being written; the disk hangs");
            return false;
        };
        let op = ledger.begin(KIND, KEY, TENANT);
        let progress = acks.progress(began);
        let Some(checkpoint) = op.in_span(self.gather(progress.clone(), gather, &op)).await else {
            metrics.checkpoint("late", 0, began.elapsed());
            op.finish(Outcome::Expired);
            return false;
        };
        op.step("write");
        let path = checkpoints.path.clone();
        let write = move || {
            let _permit = permit;
            #[cfg(any(test, feature = "faults"))]
            crate::faults::pass(crate::faults::Part::Writer);
            checkpoint.write(&path)?;
            fs::metadata(&path).map(|file| file.len())
        };
        let writing = tasks.spawn_blocking("guard-checkpoint", gather, write).await;
        let written = match writing {
            Ok(writing) => writing.await.map_err(io::Error::other).flatten(),
            Err(late) => Err(io::Error::other(late)),
        };
        match &written {
            Ok(bytes) => {
                acks.kept(&progress);
                let bytes = usize::try_from(*bytes).unwrap_or(usize::MAX);
                metrics.checkpoint("written", bytes, began.elapsed());
                op.finish(Outcome::Done);
            }
            Err(error) => {
                metrics.checkpoint("failed", 0, began.elapsed());
                let path = checkpoints.path.display();
                op.span().in_scope(|| {
                    warn!(%path, %error, "the checkpoint of conversations cannot be written");
                });
                op.finish(Outcome::Failed);
            }
        }
        written.is_ok()
    }

    async fn gather(
        &self,
        progress: Vec<Progress>,
        deadline: Deadline,
        op: &stallproof::Op,
    ) -> Option<Checkpoint> {
        let Inner { router, shards, learner, .. } = &*self.0;
        let mut saved_shards = Vec::with_capacity(shards.len());
        op.step("gather");
        for handle in shards {
            op.waits_on(handle.name.to_string(), handle.current().map(|it| it.op));
            let Ok(saved) = deadline.bound(handle.ask(shard_owner::Message::Save)).await else {
                warn!(shard = %handle.name, "no checkpoint: a shard does not give what it has");
                return None;
            };
            saved_shards.push(saved?);
        }
        op.waits_on("the learner", learner.current().map(|it| it.op));
        let Ok(saved) = deadline.bound(learner.ask(learner::Message::Save)).await else {
            warn!("no checkpoint: the learner does not give what it has");
            return None;
        };
        let learner::Saved { learned, violations } = saved?;
        Some(Checkpoint::of(*router, progress, saved_shards, learned, violations))
    }
}
