//! The one writer: a thread that makes everything that waits into one frame of the journal.
//!
//! Contract:
//! - Requests queue up to a bound while a frame is being written; the next takes them all, so that a
//!   hundred ADDs at once cost the disk what two do.
//! - An answer is given, and a change published, when it is on disk, except for releases: alone they
//!   are written and not synced.
//! - When the frame cannot be written, memory is as it was, but for releases: those hold, and the
//!   journal is written anew from memory before anything is assigned again.
//! - An assignment that finds no address is parked until a block or an address comes, for as long as
//!   its caller waits.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use imbl::OrdMap;
use jiff::Timestamp;
use stallproof::{Deadline, Snapshot};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::{AssignError, Assigned, BlockError, COME_BACK, TRY_AGAIN, Wanted};
use crate::index::{Adopted, Demand, Index, Record, Standing};
use crate::journal::Journal;
use crate::{Attachment, Key};

/// The most requests that wait, and that one frame takes: several times the pods of a node.
pub(super) const QUEUE: usize = 1024;
/// The most that wait for a block. More than a node has pods would not be served by any.
const PARKED: usize = 1024;

pub(super) enum Message {
    Assign(Box<Assign>),
    Release {
        key: Key,
        answer: oneshot::Sender<Option<Arc<Attachment>>>,
    },
    Adopt {
        adopted: Adopted,
        answer: oneshot::Sender<Result<(), BlockError>>,
    },
    Bar {
        block: String,
        why: String,
        answer: oneshot::Sender<Result<(), BlockError>>,
    },
    Surrender {
        block: String,
        answer: oneshot::Sender<Result<bool, BlockError>>,
    },
    Standings(OrdMap<Arc<str>, Standing>),
    /// Why nobody can say how the pools are.
    Obstacle(Option<Arc<str>>),
    /// Somebody who waited for a block has left.
    Left,
    Close,
}

pub(super) struct Assign {
    pub(super) wanted: Wanted,
    pub(super) deadline: Deadline,
    pub(super) answer: oneshot::Sender<Result<Assigned, AssignError>>,
}

pub(super) struct Writer {
    journal: Journal,
    index: Snapshot<Index>,
    parked: Vec<Assign>,
    /// Whether the last write failed: it is said when that begins and when it is over.
    broken: bool,
}

/// What one group does, before it is done.
struct Draft {
    index: Index,
    records: Vec<Record>,
    /// Whether the records must be on disk before anyone is answered.
    sync: bool,
    answers: Vec<Answer>,
    released: Vec<Key>,
}

/// To be given when the group is on disk, or cannot be.
enum Answer {
    Assigned(oneshot::Sender<Result<Assigned, AssignError>>, Result<Assigned, AssignError>),
    Released(oneshot::Sender<Option<Arc<Attachment>>>, Option<Arc<Attachment>>),
    Changed(oneshot::Sender<Result<(), BlockError>>, Result<(), BlockError>),
    Surrendered(oneshot::Sender<Result<bool, BlockError>>, Result<bool, BlockError>),
}

impl Writer {
    pub(super) fn new(journal: Journal, index: Snapshot<Index>) -> Self {
        Self { journal, index, parked: Vec::new(), broken: false }
    }

    /// Until it is told to close, or nobody is left who could ask.
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Message>) {
        let mut messages = Vec::with_capacity(QUEUE);
        while queue.blocking_recv_many(&mut messages, QUEUE) > 0 {
            let close = messages.iter().position(|message| matches!(message, Message::Close));
            // Whoever came after it is told by the loss of the answer's sender.
            messages.truncate(close.unwrap_or(messages.len()));
            let group = std::mem::replace(&mut messages, Vec::with_capacity(QUEUE));
            if catch_unwind(AssertUnwindSafe(|| self.group(group))).is_err() {
                tracing::error!(
                    "a group of assignments panicked; its callers are told that it failed"
                );
            }
            if close.is_some() {
                break;
            }
        }
        if let Err(error) = self.journal.sync() {
            tracing::warn!(%error, "the last releases may be lost; they are found by reconciling");
        }
    }

    fn group(&mut self, group: Vec<Message>) {
        let before = self.index.load();
        let mut draft = Draft {
            index: (*before).clone(),
            records: Vec::new(),
            sync: false,
            answers: Vec::with_capacity(group.len()),
            released: Vec::new(),
        };
        let mut came = Vec::new();
        for message in group {
            match message {
                Message::Assign(assign) => came.push(*assign),
                Message::Release { key, answer } => {
                    // Whoever releases a key does not wait for it: those requests were given up.
                    came.retain(|assign: &Assign| assign.wanted.key != key);
                    self.parked.retain(|assign| assign.wanted.key != key);
                    draft.release(key, answer);
                }
                Message::Adopt { adopted, answer } => draft.adopt(adopted, answer),
                Message::Bar { block, why, answer } => draft.bar(block, why, answer),
                Message::Surrender { block, answer } => draft.surrender(block, answer),
                Message::Standings(standings) => draft.index.standings = Some(standings),
                Message::Obstacle(obstacle) => draft.index.obstacle = obstacle,
                Message::Left | Message::Close => {}
            }
        }
        // Those who wait come first, and what was released or adopted is there for all.
        let mut parked = Vec::new();
        for assign in std::mem::take(&mut self.parked).into_iter().chain(came) {
            draft.assign(assign, &mut parked);
        }
        draft.count_waiting(&parked);
        self.parked = parked;

        let Draft { index, records, sync, answers, released } = draft;
        let written =
            if records.is_empty() { Ok(()) } else { self.journal.append(&records, &index, sync) };
        let index = match &written {
            Ok(()) => index,
            Err(_) => {
                let mut kept = (*before).clone();
                (kept.standings, kept.demand) = (index.standings, index.demand);
                kept.obstacle = index.obstacle;
                for key in &released {
                    kept.released(key);
                }
                kept
            }
        };
        self.report(written.as_ref().err());
        self.index.update(|current| {
            *current = index;
            true
        });
        let failed = written.err().map(|error| Arc::from(error.to_string()));
        answers.into_iter().for_each(|answer| answer.give(failed.as_ref()));
    }

    fn report(&mut self, error: Option<&io::Error>) {
        match error {
            Some(error) if !self.broken => {
                tracing::error!(%error, "the journal of addresses cannot be written; nothing is assigned until it can");
            }
            None if self.broken => tracing::info!("the journal of addresses is written again"),
            _ => {}
        }
        self.broken = error.is_some();
    }
}

impl Draft {
    fn assign(&mut self, assign: Assign, parked: &mut Vec<Assign>) {
        let Assign { wanted, deadline, answer } = assign;
        if answer.is_closed() {
            return;
        }
        let outcome = if deadline.has_passed() {
            Err(AssignError::TooLate)
        } else if let Some(there) = self.index.attachment(&wanted.key) {
            // Perhaps of this very group: it is answered with it.
            Ok(Assigned::Again(Arc::clone(there)))
        } else if self.index.standings.as_ref().is_some_and(|all| !all.contains_key(&*wanted.pool))
        {
            let pool = wanted.pool;
            Err(self.obstructed(&pool).unwrap_or(AssignError::NoPool { pool }))
        } else if let Some(addresses) = self.index.vacant(&wanted.pool) {
            self.give(wanted, addresses)
        } else {
            match self.lack(&wanted.pool) {
                Some(error) => Err(error),
                None if parked.len() < PARKED => {
                    return parked.push(Assign { wanted, deadline, answer });
                }
                None => Err(AssignError::Busy { retry_after: COME_BACK }),
            }
        };
        self.answers.push(Answer::Assigned(answer, outcome));
    }

    fn give(
        &mut self,
        wanted: Wanted,
        (ipv4, ipv6): (Option<std::net::Ipv4Addr>, Option<std::net::Ipv6Addr>),
    ) -> Result<Assigned, AssignError> {
        let Wanted { key, network, pod, pool, namespace, netns, host_interface } = wanted;
        let since = Timestamp::now();
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
            since,
        });
        let record = Record::Assigned(Arc::clone(&attachment));
        // Not to be: what is vacant is nobody's. It would be a fault of ours, and is nobody's address.
        self.apply(record).map_err(|why| AssignError::Journal { why: why.into() })?;
        self.sync = true;
        Ok(Assigned::New(attachment))
    }

    /// Why there is no address, if waiting for one is of no use.
    fn lack(&mut self, name: &str) -> Option<AssignError> {
        let last = Instant::now();
        let waiting = self.index.demand.get(name).map_or(0, |demand| demand.waiting);
        let pool = name.to_owned();
        let lack = match self.index.standing(name) {
            // At the start, while the store has not answered.
            None => self.obstructed(name),
            Some(Standing::Open) => None,
            Some(Standing::Exhausted(why)) => {
                Some(AssignError::Exhausted { pool, why: Arc::clone(why) })
            }
            Some(Standing::Failing(why)) => {
                let why = Arc::clone(why);
                Some(AssignError::NoBlockYet { pool, why, retry_after: TRY_AGAIN })
            }
        };
        self.index.demand.insert(name.into(), Demand { waiting, last });
        lack
    }

    /// What keeps everybody from saying how the pools are.
    fn obstructed(&self, pool: &str) -> Option<AssignError> {
        let why = self.index.obstacle.clone()?;
        Some(AssignError::NoBlockYet { pool: pool.to_owned(), why, retry_after: TRY_AGAIN })
    }

    fn count_waiting(&mut self, parked: &[Assign]) {
        let pools: Vec<_> = self.index.demand.keys().cloned().collect();
        for pool in pools {
            let waiting = parked.iter().filter(|assign| *assign.wanted.pool == *pool).count();
            if let Some(demand) = self.index.demand.get_mut(&pool) {
                demand.waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
            }
        }
    }

    fn release(&mut self, key: Key, answer: oneshot::Sender<Option<Arc<Attachment>>>) {
        let released = self.index.released(&key);
        if released.is_some() {
            self.records.push(Record::Released(key.clone()));
            self.released.push(key);
        }
        self.answers.push(Answer::Released(answer, released));
    }

    fn adopt(&mut self, mut adopted: Adopted, answer: oneshot::Sender<Result<(), BlockError>>) {
        let there = self.index.block(&adopted.block);
        adopted.next = there.map_or(0, |block| block.next);
        self.sync = true;
        let done = self.apply(Record::Adopted(adopted)).map_err(BlockError::Refused);
        self.answers.push(Answer::Changed(answer, done));
    }

    fn bar(&mut self, block: String, why: String, answer: oneshot::Sender<Result<(), BlockError>>) {
        self.sync = true;
        let done = self.apply(Record::Barred { block, why }).map_err(BlockError::Refused);
        self.answers.push(Answer::Changed(answer, done));
    }

    fn surrender(&mut self, block: String, answer: oneshot::Sender<Result<bool, BlockError>>) {
        let done = match self.index.block(&block) {
            Some(found) if found.used() > 0 => Ok(false),
            Some(_) => {
                // On disk before anyone else may have it.
                self.sync = true;
                self.apply(Record::Dropped { block }).map(|()| true).map_err(BlockError::Refused)
            }
            None => Ok(true),
        };
        self.answers.push(Answer::Surrendered(answer, done));
    }

    fn apply(&mut self, record: Record) -> Result<(), String> {
        self.index.apply(&record).map_err(|error| error.to_string())?;
        self.records.push(record);
        Ok(())
    }
}

impl Answer {
    /// Whoever has left does not want it.
    fn give(self, failed: Option<&Arc<str>>) {
        let journal = |why: &Arc<str>| BlockError::Journal(Arc::clone(why));
        match self {
            Self::Assigned(to, outcome) => {
                // Even `Again` may rest on what this group was about to write.
                let outcome = match (outcome, failed) {
                    (Ok(_), Some(why)) => Err(AssignError::Journal { why: Arc::clone(why) }),
                    (outcome, _) => outcome,
                };
                let _ = to.send(outcome);
            }
            Self::Released(to, released) => {
                let _ = to.send(released);
            }
            Self::Changed(to, done) => {
                let _ = to.send(failed.map_or(done, |why| Err(journal(why))));
            }
            Self::Surrendered(to, done) => {
                let _ = to.send(failed.map_or(done, |why| Err(journal(why))));
            }
        }
    }
}
