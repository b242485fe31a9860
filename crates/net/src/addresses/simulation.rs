//! Addresses of a simulated node: the journal is written by a task in place of a thread, and a crash leaves of
//! its file what was synced, and any part of the rest.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use stallproof::group_commit::GroupWriter;
use stallproof::{GroupCommit, Snapshot, Tasks};

use super::writer::{FLUSHES, Message, QUEUE, Writer};
use super::{Addresses, OpenError};
use crate::journal::Journal;

/// The addresses of one life of a node's agent.
#[derive(Debug)]
pub struct SimulatedAddresses {
    pub addresses: Addresses,
    writer: WriterHandle,
    file: PathBuf,
}

/// The writer; its task uses it, and whoever crashes the node looks at its file.
#[derive(Clone)]
struct WriterHandle(Arc<Mutex<Writer>>);

impl std::fmt::Debug for WriterHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WriterHandle")
    }
}

impl SimulatedAddresses {
    /// Opens the journal. `delay` says how long the disk takes for each group, and for each flush.
    pub fn open(
        dir: &Path,
        tasks: &Tasks,
        delay: impl Fn() -> Duration + Clone + Send + 'static,
    ) -> Result<Self, OpenError> {
        let (journal, table) = Journal::open(dir)?;
        let table = Snapshot::new(table);
        let (flusher, mut flushes) = GroupCommit::channel(FLUSHES);
        let writer = Writer::new(journal, table.clone(), flusher);
        let writer = WriterHandle(Arc::new(Mutex::new(writer)));
        let (queue, mut requests) = GroupCommit::channel(QUEUE);
        let (told, pause) = (queue.clone(), delay.clone());
        tasks.spawn("net-journal-flush", async move {
            while let Some(flush) = flushes.next().await {
                tokio::time::sleep(pause()).await;
                // An error: the writer has ended.
                let _ = told.send(Message::Flushed(flush.run())).await;
            }
        });
        let own = writer.clone();
        tasks.spawn("net-journal", async move {
            while let Some(first) = requests.next().await {
                tokio::time::sleep(delay()).await;
                let mut group = vec![first];
                while let Some(Some(next)) = requests.next().now_or_never() {
                    group.push(next);
                }
                own.0.lock().write(group);
            }
        });
        let file = dir.join("addresses.journal");
        Ok(Self { addresses: Addresses { table, queue }, writer, file })
    }

    /// What a crash leaves: `keep` is told how many bytes were synced and how many there are, and says how many
    /// are left and what comes after them. The process's tasks must have ended.
    pub fn crash(self, keep: impl FnOnce(u64, u64) -> (u64, Vec<u8>)) -> std::io::Result<()> {
        let (synced, bytes) = self.writer.0.lock().on_disk();
        let (left, after) = keep(synced, bytes);
        OpenOptions::new().write(true).open(&self.file)?.set_len(left)?;
        let mut content = fs::read(&self.file)?;
        content.extend(after);
        fs::write(&self.file, content)
    }
}
