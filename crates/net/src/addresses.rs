//! `Addresses`: which attachment of this node has which address.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use flow::snapshot::{Changes, View};
use flow::{Deadline, Map, Snapshot, Tasks};
use imbl::OrdMap;
use objects::kinds::Networks;

use crate::{Attachment, Key, NamespaceId, Pod};

/// Clones share the one writer.
#[derive(Clone)]
pub struct Addresses {
    index: Snapshot<Index>,
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

/// Every attachment and block of this node at one instant.
#[derive(Clone, Debug, Default)]
pub struct Index {
    attachments: Map<Key, Arc<Attachment>>,
    blocks: OrdMap<String, BlockUse>,
}

/// A block of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockUse {
    pub name: String,
    pub pool: String,
    pub networks: Networks,
    pub used: u32,
    pub free: u32,
    /// Why nothing more is assigned from it.
    pub barred: Option<Arc<str>>,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{}: cannot be opened", file.display())]
    Io {
        file: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "{}: damaged at byte {at}, with good records after it: addresses of pods that run may be in \
         the damaged part; drain the node, move the file away and start again", file.display()
    )]
    Damaged { file: PathBuf, at: u64 },
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum AssignError {
    #[error(
        "there is no address pool {pool}: make it, or correct the namespace's annotation fairlead.dev/pool"
    )]
    NoPool { pool: String },
    #[error("address pool {pool} has no address left: {why}")]
    Exhausted { pool: String, why: Arc<str> },
    /// One is being claimed.
    #[error(
        "this node has no free address of pool {pool} yet: {why}; come back in {retry_after:?}"
    )]
    NoBlockYet { pool: String, why: Arc<str>, retry_after: Duration },
    #[error("the journal of addresses cannot be written: {why}; make room on its disk, or mend it")]
    Journal { why: Arc<str> },
    #[error("the journal of addresses does not answer within the deadline")]
    TooLate,
    #[error("too many wait for the journal of addresses; come back in {retry_after:?}")]
    Busy { retry_after: Duration },
    #[error("the daemon stops")]
    Closed,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum ReleaseError {
    #[error("the journal of addresses does not answer within the deadline")]
    TooLate,
    #[error("too many wait for the journal of addresses; come back in {retry_after:?}")]
    Busy { retry_after: Duration },
    #[error("the daemon stops")]
    Closed,
}

impl Addresses {
    /// Replays the journal in `dir`, which is made if it is not there; on this thread. It is closed
    /// when `tasks` stops.
    pub fn open(dir: &Path, tasks: &Tasks) -> Result<Self, OpenError> {
        let _ = (dir, tasks);
        todo!()
    }

    /// Durable when it returns. For a key that has addresses: those.
    pub async fn assign(
        &self,
        wanted: Wanted,
        deadline: Deadline,
    ) -> Result<Assigned, AssignError> {
        let _ = (wanted, deadline);
        todo!()
    }

    /// What `key` had; nothing if it had nothing. A release that a crash loses is found again by
    /// reconciling.
    pub async fn release(
        &self,
        key: &Key,
        deadline: Deadline,
    ) -> Result<Option<Arc<Attachment>>, ReleaseError> {
        let _ = (key, deadline);
        todo!()
    }

    pub fn view(&self) -> View<Index> {
        self.index.load()
    }

    pub fn changes(&self) -> Changes<Index> {
        self.index.subscribe()
    }
}

impl Index {
    pub fn attachment(&self, key: &Key) -> Option<&Arc<Attachment>> {
        self.attachments.get(key)
    }

    pub fn attachments(&self) -> impl Iterator<Item = &Arc<Attachment>> {
        self.attachments.values()
    }

    /// In the order of their names.
    pub fn blocks(&self) -> impl Iterator<Item = &BlockUse> {
        self.blocks.values()
    }
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Addresses({} attachments)", self.view().attachments.len())
    }
}
