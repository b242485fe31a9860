//! The one writer: it makes everything that waits into one frame of the journal.
//!
//! Contract:
//! - A request is answered, and a change published, when it is written: it survives whatever becomes of the
//!   process. A block that comes or goes is on disk by then. Assignments are within [`PAUSE`] and a flush,
//!   behind the answer: a machine that fails before takes the pods with it. Releases wait for whatever is
//!   flushed next.
//! - Who is to be given addresses may be told which, as they are written.
//! - When the frame cannot be written, memory is as it was, but for releases: those hold, and the
//!   journal is written anew from memory before anything is assigned again. So it is when a flush has failed, at
//!   once.
//! - An assignment that finds no address is parked until a block or an address comes, for as long as
//!   its caller waits.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use imbl::{OrdMap, OrdSet};
use jiff::Timestamp;
use stallproof::group_commit::{GroupWriter, WeakGroupCommit};
use stallproof::ledger::Outcome;
use stallproof::{Deadline, GroupCommit, Ledger, Snapshot};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::{AssignError, AssignRequest, Assignment, BlockError, COME_BACK, TRY_AGAIN};
use crate::address_table::{
    AddressTable, AdoptedBlock, Demand, FixedAddress, PoolAvailability, Record, ReleasedKey,
};
use crate::journal::{Flush, Flushed, Journal};
use crate::local_block::AddressPair;
use crate::{Attachment, AttachmentKey};

/// The most requests that wait, and that one frame takes: several times the pods of a node.
pub(super) const QUEUE: usize = 1024;
/// The most requests that wait for a block. More than a node has pods would not be served by any.
const PARKED: usize = 1024;
/// The writer has one flush under way.
pub(super) const FLUSHES: usize = 1;
/// From one flush to the next: a hundred pods that come one after the other cost the disk what a few do.
const PAUSE: Duration = Duration::from_millis(100);
/// A disk that takes so long is named.
const LATE: Duration = Duration::from_secs(4);

pub(super) enum Message {
    Assign(Box<Waiting>),
    Release {
        key: AttachmentKey,
        answer: oneshot::Sender<Option<Arc<Attachment>>>,
    },
    /// The attachment is deleted; its addresses are held until they are released.
    Detach {
        key: AttachmentKey,
        answer: oneshot::Sender<Option<Arc<Attachment>>>,
    },
    Change {
        change: BlockChange,
        answer: oneshot::Sender<Result<bool, BlockError>>,
    },
    Availability(OrdMap<Arc<str>, PoolAvailability>),
    /// Why addresses that were chosen cannot be had.
    Unobtainable(OrdMap<IpAddr, Arc<str>>),
    /// The addresses that pods of another plugin have.
    Foreign(OrdSet<IpAddr>),
    /// Why the pools cannot be known.
    PoolsUnavailable(Option<Arc<str>>),
    /// A caller that waited for a block has left.
    Left,
    Flushed(Flushed),
}

/// Takes a new assignment.
pub(super) type Told = Box<dyn FnOnce(&Arc<Attachment>) + Send>;

pub(super) struct Waiting {
    pub(super) request: AssignRequest,
    pub(super) deadline: Deadline,
    /// Is told of a new assignment before it is written.
    pub(super) chosen: Told,
    /// Is told of it when it is, before whoever asked for it.
    pub(super) recorded: Told,
    pub(super) answer: oneshot::Sender<Result<Assignment, AssignError>>,
}

pub(super) enum BlockChange {
    Adopt(AdoptedBlock),
    Cordon { block: String, why: String },
    DropIfEmpty { block: String },
}

pub(super) struct Writer {
    journal: Journal,
    table: Snapshot<AddressTable>,
    parked: Vec<Waiting>,
    /// Flushes the journal.
    flusher: GroupCommit<Flush>,
    /// A flush is under way.
    is_flushing: bool,
    /// There are assignments that no flush will bring to the disk yet.
    is_unflushed: bool,
    /// Whether the last write failed: it is logged when that begins and when it is over.
    broken: bool,
}

/// What one group changes, before it is written.
struct Draft {
    table: AddressTable,
    records: Vec<Record>,
    /// The records must be on disk before anyone is answered.
    sync: bool,
    /// The records must be on disk soon.
    flush: bool,
    answers: Vec<Answer>,
    released: Vec<AttachmentKey>,
    detached: Vec<AttachmentKey>,
}

/// The answer to a caller, given when the group is written, or cannot be: then it is told why.
type Answer = Box<dyn FnOnce(Option<&Arc<str>>) + Send>;

impl GroupWriter for Writer {
    type Request = Message;

    fn write(&mut self, group: Vec<Message>) {
        let before = self.table.load();
        let mut draft = Draft {
            table: (*before).clone(),
            records: Vec::new(),
            sync: false,
            flush: false,
            answers: Vec::with_capacity(group.len()),
            released: Vec::new(),
            detached: Vec::new(),
        };
        let (mut came, mut flushed) = (Vec::new(), None);
        for message in group {
            match message {
                Message::Assign(waiting) => came.push(*waiting),
                Message::Release { key, answer } => {
                    // Whoever releases a key does not wait for it: those requests were given up.
                    came.retain(|waiting: &Waiting| waiting.request.key != key);
                    self.parked.retain(|waiting| waiting.request.key != key);
                    draft.release(key, answer);
                }
                Message::Detach { key, answer } => {
                    came.retain(|waiting: &Waiting| waiting.request.key != key);
                    self.parked.retain(|waiting| waiting.request.key != key);
                    draft.detach(key, answer);
                }
                Message::Change { change, answer } => draft.change(change, answer),
                Message::Availability(all) => draft.table.availability = Some(all),
                Message::Foreign(all) => draft.table.foreign = all,
                Message::Unobtainable(all) => draft.table.unobtainable = all,
                Message::PoolsUnavailable(why) => draft.table.pools_unavailable = why,
                Message::Left => {}
                Message::Flushed(one) => flushed = Some(one),
            }
        }
        // Requests that wait come first, and what was released or adopted is there for all.
        let mut parked = Vec::new();
        for waiting in std::mem::take(&mut self.parked).into_iter().chain(came) {
            draft.assign(waiting, &mut parked);
        }
        draft.count_waiting(&parked);
        self.parked = parked;

        let Draft { table, records, sync, flush, answers, released, detached } = draft;
        let flushed = flushed.map_or(Ok(()), |flushed| {
            self.is_flushing = false;
            self.journal.flushed(flushed)
        });
        let written = match flushed {
            Ok(()) if records.is_empty() => Ok(()),
            Ok(()) => self.journal.append(&records, &table, sync),
            Err(error) => {
                error!(%error, "the journal of addresses did not reach its disk; it is written anew");
                self.journal.rewrite(&table)
            }
        };
        self.is_unflushed |= flush && !sync;
        let table = match &written {
            Ok(()) => table,
            Err(_) => {
                let mut kept = (*before).clone();
                (kept.availability, kept.demand) = (table.availability, table.demand);
                kept.pools_unavailable = table.pools_unavailable;
                (kept.foreign, kept.wanted) = (table.foreign, table.wanted);
                kept.unobtainable = table.unobtainable;
                for key in &detached {
                    kept.leave(key);
                }
                for key in &released {
                    kept.released(key);
                }
                kept
            }
        };
        self.report(written.as_ref().err());
        self.table.update(|current| {
            *current = table;
            true
        });
        let failed = written.err().map(|error| Arc::from(error.to_string()));
        answers.into_iter().for_each(|answer| answer(failed.as_ref()));
        self.flush();
    }

    fn panicked(&mut self, why: &str) {
        error!(why, "a group of assignments panicked; its callers are told that it failed");
    }

    fn close(mut self) {
        if let Err(error) = self.journal.sync() {
            warn!(%error, "the last releases may be lost; reconciling finds them");
        }
    }
}

impl Writer {
    pub(super) fn new(
        journal: Journal,
        table: Snapshot<AddressTable>,
        flusher: GroupCommit<Flush>,
    ) -> Self {
        let (is_flushing, is_unflushed) = (false, false);
        Self {
            journal,
            table,
            parked: Vec::new(),
            flusher,
            is_flushing,
            is_unflushed,
            broken: false,
        }
    }

    /// Has what was assigned brought to the disk, if that is not under way already.
    fn flush(&mut self) {
        if self.is_flushing || !std::mem::take(&mut self.is_unflushed) {
            return;
        }
        // None: whatever wrote it anew has synced it.
        let Some(flush) = self.journal.flush() else { return };
        // An error: the flusher has ended, as this does, which syncs.
        self.is_flushing = self.flusher.try_send(flush).is_ok();
    }

    #[cfg(feature = "simulation")]
    pub(super) fn on_disk(&self) -> (u64, u64) {
        self.journal.on_disk()
    }

    fn report(&mut self, error: Option<&io::Error>) {
        match error {
            Some(error) if !self.broken => {
                error!(%error, "the journal of addresses cannot be written; nothing is assigned until it can");
            }
            None if self.broken => info!("the journal of addresses is written again"),
            _ => {}
        }
        self.broken = error.is_some();
    }
}

/// Brings the journal to the disk, on a thread of its own: a disk that is slow or hangs holds up no assignment, and
/// is named.
pub(super) struct Flusher {
    ledger: Ledger,
    told: WeakGroupCommit<Message>,
}

impl Flusher {
    pub(super) fn new(ledger: Ledger, told: WeakGroupCommit<Message>) -> Self {
        ledger.expect("journal_flush", LATE);
        Self { ledger, told }
    }
}

impl GroupWriter for Flusher {
    type Request = Flush;

    fn write(&mut self, group: Vec<Flush>) {
        for flush in group {
            let op = self.ledger.begin("journal_flush", "addresses", "");
            let flushed = flush.run();
            let has_failed = flushed.has_failed();
            op.finish(if has_failed { Outcome::Failed } else { Outcome::Done });
            if !has_failed {
                std::thread::sleep(PAUSE);
            }
            // None, or an error: the writer has ended, and has synced.
            if let Some(queue) = self.told.upgrade() {
                let _ = queue.send_blocking(Message::Flushed(flushed));
            }
        }
    }

    fn panicked(&mut self, why: &str) {
        error!(why, "a flush of the journal of addresses panicked");
    }

    fn close(self) {}
}

impl Draft {
    fn assign(&mut self, waiting: Waiting, parked: &mut Vec<Waiting>) {
        let Waiting { request, deadline, chosen, recorded, answer } = waiting;
        if answer.is_closed() {
            return;
        }
        let known = |table: &AddressTable| {
            table.availability.as_ref().is_none_or(|all| all.contains_key(&*request.pool))
        };
        let result = if deadline.has_passed() {
            Err(AssignError::TooLate)
        } else if let Some(there) = self.table.attachment(&request.key) {
            // Perhaps of this very group: it is answered with it.
            Ok(Assignment::Existing(Arc::clone(there)))
        } else if !known(&self.table) {
            let pool = request.pool;
            Err(self.unavailable(&pool).unwrap_or(AssignError::NoPool { pool }))
        } else if !request.fixed.addresses.is_empty() {
            match self.table.fixed(&request.pool, &request.fixed.addresses) {
                FixedAddress::Free(pair) => self.give(request, pair),
                FixedAddress::Refused(why) => Err(AssignError::Fixed { why }),
                FixedAddress::Later if parked.len() < PARKED => {
                    let demand = self.table.demand.get(&*request.pool);
                    let waiting = demand.map_or(0, |demand| demand.waiting);
                    let demand = Demand { waiting, last: Instant::now() };
                    self.table.demand.insert(request.pool.as_str().into(), demand);
                    return parked.push(Waiting { request, deadline, chosen, recorded, answer });
                }
                FixedAddress::Later => Err(AssignError::Busy { retry_after: COME_BACK }),
            }
        } else if let Some(pair) = self.table.vacant(&request.pool, Instant::now()) {
            self.give(request, pair)
        } else {
            match self.lack(&request.pool) {
                Some(error) => Err(error),
                None if parked.len() < PARKED => {
                    return parked.push(Waiting { request, deadline, chosen, recorded, answer });
                }
                None => Err(AssignError::Busy { retry_after: COME_BACK }),
            }
        };
        if let Ok(Assignment::New(attachment)) = &result {
            chosen(attachment);
        }
        self.answers.push(Box::new(move |failed| {
            // Even an existing assignment may rest on what this group was about to write.
            let result = match failed {
                Some(why) if result.is_ok() => Err(AssignError::Journal { why: Arc::clone(why) }),
                _ => result,
            };
            if let Ok(Assignment::New(attachment)) = &result {
                recorded(attachment);
            }
            // An error: the caller has left.
            let _ = answer.send(result);
        }));
    }

    fn give(
        &mut self,
        request: AssignRequest,
        (ipv4, ipv6): AddressPair,
    ) -> Result<Assignment, AssignError> {
        let AssignRequest { key, network, pod, pool, namespace, netns, host_interface, fixed } =
            request;
        let attachment = Arc::new(Attachment {
            key,
            network,
            pod,
            pool,
            ipv4,
            ipv6,
            namespace,
            netns,
            host_interface,
            mac: fixed.mac,
            since: Timestamp::now(),
        });
        // Cannot fail, since a vacant address is nobody's. If it did, nobody would get the address.
        self.apply(Record::Assigned(Arc::clone(&attachment)))
            .map_err(|why| AssignError::Journal { why: why.into() })?;
        self.flush = true;
        Ok(Assignment::New(attachment))
    }

    /// Says why there is no address, if waiting for one is of no use.
    fn lack(&mut self, name: &str) -> Option<AssignError> {
        let last = Instant::now();
        let waiting = self.table.demand.get(name).map_or(0, |demand| demand.waiting);
        let pool = name.to_owned();
        let lack = match self.table.availability_of(name) {
            // At the start, while the store has not answered.
            None => self.unavailable(name),
            Some(PoolAvailability::Open) => None,
            Some(PoolAvailability::Exhausted(why)) => {
                Some(AssignError::Exhausted { pool, why: Arc::clone(why) })
            }
            Some(PoolAvailability::Failing(why)) => {
                let why = Arc::clone(why);
                Some(AssignError::NoBlockYet { pool, why, retry_after: TRY_AGAIN })
            }
        };
        self.table.demand.insert(name.into(), Demand { waiting, last });
        lack
    }

    fn unavailable(&self, pool: &str) -> Option<AssignError> {
        let why = self.table.pools_unavailable.clone()?;
        Some(AssignError::NoBlockYet { pool: pool.to_owned(), why, retry_after: TRY_AGAIN })
    }

    fn count_waiting(&mut self, parked: &[Waiting]) {
        let wanted = parked.iter().flat_map(|waiting| {
            let pool: Arc<str> = waiting.request.pool.as_str().into();
            waiting.request.fixed.addresses.iter().map(move |it| (*it, Arc::clone(&pool)))
        });
        self.table.wanted = wanted.collect();
        let pools: Vec<_> = self.table.demand.keys().cloned().collect();
        for pool in pools {
            // One that waits for an address of its own is not helped by any other.
            let any = |waiting: &&Waiting| waiting.request.fixed.addresses.is_empty();
            let waiting = parked.iter().filter(|waiting| *waiting.request.pool == *pool);
            let waiting = waiting.filter(any).count();
            if let Some(demand) = self.table.demand.get_mut(&pool) {
                demand.waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
            }
        }
    }

    fn release(&mut self, key: AttachmentKey, answer: oneshot::Sender<Option<Arc<Attachment>>>) {
        let released = self.table.released(&key);
        if released.is_some() {
            self.records.push(Record::Released(key.clone().into()));
            self.released.push(key);
        }
        if let Some(attachment) = &released {
            self.table.rest(attachment, Instant::now());
        }
        self.answers.push(Box::new(move |_| {
            let _ = answer.send(released);
        }));
    }

    fn detach(&mut self, key: AttachmentKey, answer: oneshot::Sender<Option<Arc<Attachment>>>) {
        let detached = self.table.leave(&key);
        if detached.is_some() {
            let record = ReleasedKey { key: key.clone(), leaving: true };
            self.records.push(Record::Released(record));
            self.detached.push(key);
        }
        self.answers.push(Box::new(move |_| {
            let _ = answer.send(detached);
        }));
    }

    fn change(&mut self, change: BlockChange, answer: oneshot::Sender<Result<bool, BlockError>>) {
        let record = match change {
            BlockChange::Adopt(mut adopted) => {
                let there = self.table.block(&adopted.block);
                adopted.next = there.map_or(0, |block| block.next);
                Ok(Record::Adopted(adopted))
            }
            BlockChange::Cordon { block, why } => Ok(Record::Cordoned { block, why }),
            BlockChange::DropIfEmpty { block } => match self.table.block(&block) {
                Some(found) if found.used() + self.table.foreign_in(found) > 0 => Err(false),
                Some(_) => Ok(Record::Dropped { block }),
                None => Err(true),
            },
        };
        let done = match record {
            Ok(record) => {
                // A dropped block is on disk before anyone else may have it.
                self.sync = true;
                self.apply(record).map(|()| true).map_err(BlockError::Refused)
            }
            Err(dropped) => Ok(dropped),
        };
        self.answers.push(Box::new(move |failed| {
            let journal = |why: &Arc<str>| Err(BlockError::Journal(Arc::clone(why)));
            let _ = answer.send(failed.map_or(done, journal));
        }));
    }

    fn apply(&mut self, record: Record) -> Result<(), String> {
        self.table.apply(&record).map_err(|error| error.to_string())?;
        self.records.push(record);
        Ok(())
    }
}
