//! `Addresses`: which attachment of this node has which address.
//!
//! ```text
//! assign, release ──► bounded queue ──► Writer (a thread): index ──► journal, one fdatasync a group
//!                                                   │ then
//! view ◄── Snapshot<Index> ◄────────────────────────┘ publish, answer
//! ```
//!
//! Contract:
//! - An assignment is on disk when it returns. For a key that has addresses it is those again.
//! - No address is given to two; none is given of a block that is not this node's.
//! - Nothing here asks the store: blocks are brought by `claims`. An assignment that finds no address
//!   waits for a block that is being claimed, until its deadline and not longer than [`PATIENCE`]; where
//!   none can be had now it is told so at once.
//! - A release is exact, and frees the address at once. One that a crash loses is found again by
//!   reconciling with the kernel.
//! - When the disk fails, assignments are refused with its reason and releases go on; when it is well
//!   again, so is this.
//! - Reading never waits.

mod writer;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, thread};

use imbl::OrdMap;
use objects::kinds::Networks;
use stallproof::snapshot::{Changes, View};
use stallproof::{Deadline, Snapshot, Tasks};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

pub use crate::block::Block;
pub use crate::index::{Demand, Index, Standing};
pub use crate::journal::OpenError;

use crate::index::Adopted;
use crate::journal::Journal;
use crate::{Attachment, Key, NamespaceId, Pod};
use writer::{Message, QUEUE, Writer};

/// The longest that an assignment waits for a block: some claims of a slow store.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// What a full queue tells its callers: some groups of a slow disk.
const COME_BACK: Duration = Duration::from_millis(200);
/// When to try again where no block can be had now.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// Clones share the one writer.
#[derive(Clone)]
pub struct Addresses {
    index: Snapshot<Index>,
    queue: mpsc::Sender<Message>,
}

/// An attachment to be, without its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub key: Key,
    pub network: String,
    pub pod: Option<Pod>,
    pub pool: String,
    pub namespace: NamespaceId,
    pub netns: String,
    pub host_interface: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assigned {
    New(Arc<Attachment>),
    /// The key had it already: the record is as it was, whatever else is wanted now.
    Again(Arc<Attachment>),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssignError {
    #[error(
        "there is no address pool {pool}: create AddressPool/{pool}, or correct the namespace's \
         annotation fairlead.dev/pool"
    )]
    NoPool { pool: String },
    #[error("address pool {pool} has no address for this node: {why}")]
    Exhausted { pool: String, why: Arc<str> },
    /// One is being claimed, or will be as soon as that is possible.
    #[error("this node has no free address of pool {pool} yet: {why}")]
    NoBlockYet { pool: String, why: Arc<str>, retry_after: Duration },
    #[error("the journal of addresses cannot be written: {why}; make room on its disk, or mend it")]
    Journal { why: Arc<str> },
    #[error("too many wait for the journal of addresses")]
    Busy { retry_after: Duration },
    /// It may have been assigned all the same: the same key gets it again, and can release it.
    #[error("the journal of addresses does not answer within the deadline; look at its disk")]
    TooLate,
    #[error("the daemon is stopping")]
    Closed,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseError {
    #[error("too many wait for the journal of addresses")]
    Busy { retry_after: Duration },
    #[error("the journal of addresses does not answer within the deadline; look at its disk")]
    TooLate,
    #[error("the daemon is stopping")]
    Closed,
}

/// Why a block could not be adopted, barred or dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BlockError {
    #[error("{0}")]
    Refused(String),
    #[error("the journal of addresses cannot be written: {0}")]
    Journal(Arc<str>),
    #[error("the journal of addresses does not answer")]
    TooLate,
    #[error("the daemon is stopping")]
    Closed,
}

impl Addresses {
    /// Replays the journal in `dir`, which is made if it is not there; on this thread. It is closed
    /// when `tasks` stops, or when the last clone is gone.
    pub fn open(dir: &Path, tasks: &Tasks) -> Result<Self, OpenError> {
        let (journal, index) = Journal::open(dir)?;
        let index = Snapshot::new(index);
        let (queue, requests) = mpsc::channel(QUEUE);
        let writer = Writer::new(journal, index.clone());
        let (ended, has_ended) = oneshot::channel::<()>();
        let run = move || {
            writer.run(requests);
            drop(ended);
        };
        // A thread of its own: what blocks elsewhere must not hold up a commit, nor this others.
        let thread = thread::Builder::new().name("net-journal".to_owned()).spawn(run);
        thread.map_err(|source| OpenError::Io { file: dir.to_owned(), source })?;

        let (stop, close) = (tasks.stopping(), queue.downgrade());
        tasks.spawn("net-journal", async move {
            let mut has_ended = has_ended;
            tokio::select! {
                // An error: the sender was dropped, which is the sign.
                _ = &mut has_ended => {}
                () = stop.stopped() => {
                    if let Some(queue) = close.upgrade() {
                        // An error: it has ended already.
                        let _ = queue.send(Message::Close).await;
                    }
                    let _ = has_ended.await;
                }
            }
        });
        Ok(Self { index, queue })
    }

    /// Durable when it returns. For a key that has addresses: those.
    pub async fn assign(
        &self,
        wanted: Wanted,
        deadline: Deadline,
    ) -> Result<Assigned, AssignError> {
        let pool = wanted.pool.clone();
        let (answer, answered) = oneshot::channel();
        let request = writer::Assign { wanted, deadline, answer };
        self.queue.try_send(Message::Assign(Box::new(request))).map_err(|error| match error {
            TrySendError::Full(_) => AssignError::Busy { retry_after: COME_BACK },
            TrySendError::Closed(_) => AssignError::Closed,
        })?;
        match deadline.within(PATIENCE).bound(answered).await {
            Ok(answer) => answer.unwrap_or(Err(AssignError::Closed)),
            Err(_) => {
                // It waits no more. If the queue is full, whatever comes next tells as well.
                let _ = self.queue.try_send(Message::Left);
                let index = self.index.load();
                let waits = index.demand.get(&*pool).is_some_and(|demand| demand.waiting > 0);
                if !waits {
                    return Err(AssignError::TooLate);
                }
                let why = index.obstacle.clone().unwrap_or_else(|| {
                    "the store has not answered the claim of a block in time".into()
                });
                Err(AssignError::NoBlockYet { pool, why, retry_after: TRY_AGAIN })
            }
        }
    }

    /// What `key` had; nothing if it had nothing.
    pub async fn release(
        &self,
        key: &Key,
        deadline: Deadline,
    ) -> Result<Option<Arc<Attachment>>, ReleaseError> {
        let (answer, answered) = oneshot::channel();
        let request = Message::Release { key: key.clone(), answer };
        self.queue.try_send(request).map_err(|error| match error {
            TrySendError::Full(_) => ReleaseError::Busy { retry_after: COME_BACK },
            TrySendError::Closed(_) => ReleaseError::Closed,
        })?;
        let answer = deadline.bound(answered).await.map_err(|_| ReleaseError::TooLate)?;
        answer.map_err(|_| ReleaseError::Closed)
    }

    pub fn view(&self) -> View<Index> {
        self.index.load()
    }

    /// Generations of the index from now on.
    pub fn changes(&self) -> Changes<Index> {
        self.index.subscribe()
    }

    /// A block is this node's: from now on it is assigned from, also if it was barred.
    pub(crate) async fn adopt(
        &self,
        block: &str,
        pool: &str,
        networks: Networks,
        deadline: Deadline,
    ) -> Result<(), BlockError> {
        let Networks { ipv4, ipv6 } = networks;
        let (block, pool) = (block.to_owned(), pool.to_owned());
        let adopted = Adopted { block, pool, ipv4, ipv6, next: 0 };
        self.change(|answer| Message::Adopt { adopted, answer }, deadline).await
    }

    /// Nothing more is assigned from the block.
    pub(crate) async fn bar(
        &self,
        block: &str,
        why: &str,
        deadline: Deadline,
    ) -> Result<(), BlockError> {
        let (block, why) = (block.to_owned(), why.to_owned());
        self.change(|answer| Message::Bar { block, why, answer }, deadline).await
    }

    /// The block is no longer this node's, if nothing of it is in use; says whether it was dropped.
    pub(crate) async fn surrender(
        &self,
        block: &str,
        deadline: Deadline,
    ) -> Result<bool, BlockError> {
        let block = block.to_owned();
        self.change(|answer| Message::Surrender { block, answer }, deadline).await
    }

    /// How every pool there is stands.
    pub(crate) async fn tell(&self, standings: OrdMap<Arc<str>, Standing>) {
        // An error: it is closed, and nobody waits.
        let _ = self.queue.send(Message::Standings(standings)).await;
    }

    /// Why nobody can say how the pools are; none when somebody can.
    pub(crate) async fn obstruct(&self, obstacle: Option<Arc<str>>) {
        // An error: it is closed, and nobody waits.
        let _ = self.queue.send(Message::Obstacle(obstacle)).await;
    }

    async fn change<T>(
        &self,
        message: impl FnOnce(oneshot::Sender<Result<T, BlockError>>) -> Message,
        deadline: Deadline,
    ) -> Result<T, BlockError> {
        let (answer, answered) = oneshot::channel();
        let changed = async {
            self.queue.send(message(answer)).await.map_err(|_| BlockError::Closed)?;
            answered.await.unwrap_or(Err(BlockError::Closed))
        };
        deadline.bound(changed).await.unwrap_or(Err(BlockError::TooLate))
    }
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Addresses({} attachments)", self.view().attachments().count())
    }
}

#[cfg(test)]
pub(crate) mod tests;
