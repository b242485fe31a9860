//! `Addresses`: which attachment of this node has which address.
//!
//! ```text
//! assign, release ──► GroupCommit ──► Writer: table ──► journal, one write a group ──► Flusher: fdatasync
//!                                              │ then
//! view ◄── Snapshot<AddressTable> ◄────────────┘ publish, answer
//! ```
//!
//! Contract:
//! - An assignment is in the journal's file when it returns, so that no end of the process loses it, and on disk
//!   soon after: a machine that fails in between takes the pod with it, and the address is free.
//! - A key that has addresses gets the same ones again.
//! - No address is given to two attachments, and none of a block that is not this node's.
//! - Nothing here asks the store: `claims` brings the blocks. An assignment that finds no address
//!   waits for a block that is being claimed, until its deadline and not longer than [`PATIENCE`]; where
//!   no block can be claimed now it is refused at once.
//! - An attachment that is detached is no more, and its addresses are nobody else's until they are
//!   released.
//! - A release is exact. The address is free at once, and rests for a while if there are others. Reconciling
//!   with the kernel finds a release that a crash has lost.
//! - When the disk fails, assignments are refused with its reason and releases go on; when the disk works
//!   again, so do assignments.
//! - Reading never waits.

#[cfg(feature = "simulation")]
pub mod simulation;
mod writer;

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use imbl::{OrdMap, OrdSet};
use objects::kinds::Networks;
use stallproof::group_commit::QueueError;
use stallproof::snapshot::{Changes, View};
use stallproof::{Deadline, GroupCommit, Ledger, Snapshot, Tasks};
use tokio::sync::oneshot;

pub use crate::address_table::{AddressTable, Demand, PoolAvailability};
pub use crate::journal::OpenError;
pub use crate::local_block::LocalBlock;

use crate::address_table::AdoptedBlock;
use crate::journal::Journal;
use crate::{Attachment, AttachmentKey, Fixed, NamespaceId, Pod};
use writer::{BlockChange, FLUSHES, Flusher, Message, QUEUE, Writer};

/// The longest that an assignment waits for a block: some claims of a slow store.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// When a caller that a full queue refused should come back: some groups of a slow disk.
const COME_BACK: Duration = Duration::from_millis(200);
/// When to try again where no block can be claimed now.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// A handle; clones share the one writer.
#[derive(Clone)]
pub struct Addresses {
    table: Snapshot<AddressTable>,
    queue: GroupCommit<Message>,
}

/// An attachment that is to get addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignRequest {
    pub key: AttachmentKey,
    pub network: String,
    pub pod: Option<Pod>,
    pub pool: String,
    pub namespace: NamespaceId,
    pub netns: String,
    pub host_interface: String,
    pub fixed: Fixed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assignment {
    New(Arc<Attachment>),
    /// The key had addresses already: the record is as it was, whatever else was asked for now.
    Existing(Arc<Attachment>),
}

impl Assignment {
    pub fn attachment(&self) -> &Arc<Attachment> {
        match self {
            Self::New(attachment) | Self::Existing(attachment) => attachment,
        }
    }
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
    /// A block is being claimed, or will be as soon as that is possible.
    #[error("this node has no free address of pool {pool} yet: {why}")]
    NoBlockYet { pool: String, why: Arc<str>, retry_after: Duration },
    /// The addresses that were chosen cannot be had here.
    #[error("{why}")]
    Fixed { why: String },
    #[error("the journal of addresses cannot be written: {why}; make room on its disk, or mend it")]
    Journal { why: Arc<str> },
    #[error("too many requests wait for the journal of addresses")]
    Busy { retry_after: Duration },
    /// The address may have been assigned all the same: the same key gets it again, and can release it.
    #[error("the journal of addresses does not answer within the deadline; look at its disk")]
    TooLate,
    #[error("the agent is stopping")]
    Closed,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseError {
    #[error("too many requests wait for the journal of addresses")]
    Busy { retry_after: Duration },
    #[error("the journal of addresses does not answer within the deadline; look at its disk")]
    TooLate,
    #[error("the agent is stopping")]
    Closed,
}

/// Why a block could not be adopted, cordoned or dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    #[error("{0}")]
    Refused(String),
    #[error("the journal of addresses cannot be written: {0}")]
    Journal(Arc<str>),
    #[error("the journal of addresses does not answer")]
    TooLate,
    #[error("the agent is stopping")]
    Closed,
}

impl Addresses {
    /// Replays the journal in `dir` on this thread; makes the directory if it is not there. The journal
    /// is closed when `tasks` stops, or when the last clone is gone.
    pub fn open(dir: &Path, ledger: &Ledger, tasks: &Tasks) -> Result<Self, OpenError> {
        let (journal, table) = Journal::open(dir)?;
        Self::start(journal, table, ledger, tasks)
            .map_err(|source| OpenError::Io { file: dir.to_owned(), source })
    }

    fn start(
        journal: Journal,
        table: AddressTable,
        ledger: &Ledger,
        tasks: &Tasks,
    ) -> std::io::Result<Self> {
        let table = Snapshot::new(table);
        let (published, ledger) = (table.clone(), ledger.clone());
        let queue = GroupCommit::start_with("net-journal", QUEUE, tasks, |queue| {
            let flusher = Flusher::new(ledger, queue);
            let flusher = GroupCommit::start("net-journal-flush", FLUSHES, flusher, tasks)?;
            Ok(Writer::new(journal, published, flusher))
        })?;
        Ok(Self { table, queue })
    }

    /// Assigns addresses; no end of this process loses them once this returns. A key that has addresses gets
    /// those.
    pub async fn assign(
        &self,
        request: AssignRequest,
        deadline: Deadline,
    ) -> Result<Assignment, AssignError> {
        self.assign_telling(request, deadline, |_| (), |_| ()).await
    }

    /// The same, and tells of a new assignment as it comes about: `chosen` which addresses it will be, as they
    /// are written, since nobody else is given them unless this fails; `recorded` that they are. Both are called
    /// on the writer's thread and must not wait.
    pub async fn assign_telling(
        &self,
        request: AssignRequest,
        deadline: Deadline,
        chosen: impl FnOnce(&Arc<Attachment>) + Send + 'static,
        recorded: impl FnOnce(&Arc<Attachment>) + Send + 'static,
    ) -> Result<Assignment, AssignError> {
        let pool = request.pool.clone();
        let (answer, answered) = oneshot::channel();
        let (chosen, recorded) = (Box::new(chosen), Box::new(recorded));
        let waiting = writer::Waiting { request, deadline, chosen, recorded, answer };
        self.queue.try_send(Message::Assign(Box::new(waiting))).map_err(|error| match error {
            QueueError::Full => AssignError::Busy { retry_after: COME_BACK },
            QueueError::Closed => AssignError::Closed,
        })?;
        match deadline.within(PATIENCE).bound(answered).await {
            Ok(answer) => answer.unwrap_or(Err(AssignError::Closed)),
            Err(_) => {
                // This caller waits no more. If the queue is full, whatever comes next says so as well.
                let _ = self.queue.try_send(Message::Left);
                let table = self.table.load();
                let waits = table.demand.get(&*pool).is_some_and(|demand| demand.waiting > 0);
                if !waits {
                    return Err(AssignError::TooLate);
                }
                let why = table.pools_unavailable.clone().unwrap_or_else(|| {
                    "the store has not answered the claim of a block in time".into()
                });
                Err(AssignError::NoBlockYet { pool, why, retry_after: TRY_AGAIN })
            }
        }
    }

    /// Releases the addresses of `key`, and returns what it had.
    pub async fn release(
        &self,
        key: &AttachmentKey,
        deadline: Deadline,
    ) -> Result<Option<Arc<Attachment>>, ReleaseError> {
        self.give_up(key, deadline, |key, answer| Message::Release { key, answer }).await
    }

    async fn give_up(
        &self,
        key: &AttachmentKey,
        deadline: Deadline,
        message: impl FnOnce(AttachmentKey, oneshot::Sender<Option<Arc<Attachment>>>) -> Message,
    ) -> Result<Option<Arc<Attachment>>, ReleaseError> {
        let (answer, answered) = oneshot::channel();
        let request = message(key.clone(), answer);
        self.queue.try_send(request).map_err(|error| match error {
            QueueError::Full => ReleaseError::Busy { retry_after: COME_BACK },
            QueueError::Closed => ReleaseError::Closed,
        })?;
        let answer = deadline.bound(answered).await.map_err(|_| ReleaseError::TooLate)?;
        answer.map_err(|_| ReleaseError::Closed)
    }

    /// Deletes the attachment of `key` and holds its addresses until they are released; returns what it
    /// had.
    pub async fn detach(
        &self,
        key: &AttachmentKey,
        deadline: Deadline,
    ) -> Result<Option<Arc<Attachment>>, ReleaseError> {
        self.give_up(key, deadline, |key, answer| Message::Detach { key, answer }).await
    }

    pub fn view(&self) -> View<AddressTable> {
        self.table.load()
    }

    /// Follows the table's generations from now on.
    pub fn changes(&self) -> Changes<AddressTable> {
        self.table.subscribe()
    }

    /// Assigns from this block of this node from now on, also if it was cordoned.
    pub async fn adopt(
        &self,
        block: &str,
        pool: &str,
        networks: Networks,
        deadline: Deadline,
    ) -> Result<(), BlockError> {
        let Networks { ipv4, ipv6 } = networks;
        let (block, pool) = (block.to_owned(), pool.to_owned());
        let adopted = AdoptedBlock { block, pool, ipv4, ipv6, next: 0 };
        self.change(BlockChange::Adopt(adopted), deadline).await.map(drop)
    }

    /// Assigns nothing more from the block.
    pub(crate) async fn cordon(
        &self,
        block: &str,
        why: &str,
        deadline: Deadline,
    ) -> Result<(), BlockError> {
        let (block, why) = (block.to_owned(), why.to_owned());
        self.change(BlockChange::Cordon { block, why }, deadline).await.map(drop)
    }

    /// Forgets the block if nothing of it is in use; says whether it did.
    pub(crate) async fn drop_if_empty(
        &self,
        block: &str,
        deadline: Deadline,
    ) -> Result<bool, BlockError> {
        self.change(BlockChange::DropIfEmpty { block: block.to_owned() }, deadline).await
    }

    /// Sets the availability of every pool there is.
    pub(crate) async fn set_availability(&self, all: OrdMap<Arc<str>, PoolAvailability>) {
        // An error: it is closed, and nobody waits.
        let _ = self.queue.send(Message::Availability(all)).await;
    }

    /// Sets why addresses that are waited for cannot be had by this node.
    pub(crate) async fn set_unobtainable(&self, all: OrdMap<IpAddr, Arc<str>>) {
        if self.table.read(|table| table.unobtainable == all) {
            return;
        }
        // An error: it is closed, and nobody waits.
        let _ = self.queue.send(Message::Unobtainable(all)).await;
    }

    /// Sets which addresses pods of another plugin have on this node.
    pub(crate) async fn set_foreign(&self, all: OrdSet<IpAddr>) {
        if self.table.read(|table| table.foreign == all) {
            return;
        }
        // An error: it is closed, and nobody waits.
        let _ = self.queue.send(Message::Foreign(all)).await;
    }

    /// Sets why the pools cannot be known at all; none when they can.
    pub(crate) async fn set_pools_unavailable(&self, why: Option<Arc<str>>) {
        // An error: it is closed, and nobody waits.
        let _ = self.queue.send(Message::PoolsUnavailable(why)).await;
    }

    async fn change(&self, change: BlockChange, deadline: Deadline) -> Result<bool, BlockError> {
        let (answer, answered) = oneshot::channel();
        let changed = async {
            let queued = self.queue.send(Message::Change { change, answer }).await;
            queued.map_err(|_| BlockError::Closed)?;
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
