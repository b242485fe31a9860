//! `TableView`: one generation of a table that is watched, in the order of its changes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use imbl::OrdMap;
use jiff::Timestamp;
use serde::Serialize;

use crate::resources::list::{Column, Row};

/// A table at one moment. Cheap to clone.
#[derive(Clone)]
pub struct TableView {
    /// Tells this table from those that were watched before: revisions of others mean nothing here.
    pub epoch: u64,
    /// The revision of the newest change.
    pub revision: u64,
    pub columns: Arc<[Column]>,
    /// The number of rows.
    pub count: usize,
    /// Whether every row of the first list is there.
    pub synced: bool,
    pub state: TableState,
    /// Each row by the revision of its last change, and deletions by theirs.
    pub(super) entries: OrdMap<u64, Entry>,
    /// All deletions after this revision are in `entries`.
    pub(super) forgotten: u64,
}

/// How it stands with the watch behind a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableState {
    /// The first list is being read.
    Listing,
    /// Changes come as they happen.
    Live,
    /// What is shown may be old.
    Interrupted {
        since: Timestamp,
        why: Arc<str>,
        /// Whether the cluster answers, and refuses.
        refused: bool,
        next_try: Timestamp,
    },
    /// It is not watched any more; why.
    Ended(Arc<str>),
}

#[derive(Clone, Debug)]
pub enum Entry {
    Row(Arc<LiveRow>),
    Removed(Arc<Removal>),
}

/// A row as it is sent: written as JSON once, whoever reads it.
pub struct LiveRow {
    pub uid: Arc<str>,
    pub namespace: Option<Box<str>>,
    pub name: Box<str>,
    /// `{"uid","namespace"?,"name","created"?,"labels","cells","resourceVersion"?}`.
    pub json: Box<str>,
}

/// A row that is gone.
#[derive(Debug)]
pub struct Removal {
    pub uid: Arc<str>,
    pub namespace: Option<Box<str>>,
    pub name: Box<str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    uid: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<Timestamp>,
    labels: &'a BTreeMap<String, String>,
    cells: &'a [serde_json::Value],
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a str>,
}

/// The labels of a written row.
#[derive(serde::Deserialize)]
struct WrittenLabels {
    labels: BTreeMap<String, String>,
}

impl TableView {
    pub(super) fn new(epoch: u64) -> Self {
        Self {
            epoch,
            revision: 0,
            columns: Arc::new([]),
            count: 0,
            synced: false,
            state: TableState::Listing,
            entries: OrdMap::new(),
            forgotten: 0,
        }
    }

    /// What changed after `revision`, in the order of the changes: each row once, as it is now.
    pub fn since(&self, revision: u64) -> impl Iterator<Item = (u64, &Entry)> {
        self.entries.range(revision + 1..).map(|(revision, entry)| (*revision, entry))
    }

    /// Whether [`since`](Self::since) tells all that somebody missed who has seen that much.
    pub fn can_resume(&self, epoch: u64, revision: u64) -> bool {
        epoch == self.epoch && (self.forgotten..=self.revision).contains(&revision)
    }
}

impl LiveRow {
    pub(super) fn new(row: &Row) -> Self {
        let uid = uid(row);
        let written = Written {
            uid: &uid,
            namespace: row.namespace.as_deref(),
            name: &row.name,
            created: row.created,
            labels: &row.labels,
            cells: &row.cells,
            resource_version: row.resource_version.as_deref(),
        };
        let json = serde_json::to_string(&written).unwrap_or_default();
        Self {
            json: json.into(),
            namespace: row.namespace.as_deref().map(Into::into),
            name: row.name.as_str().into(),
            uid,
        }
    }

    /// Read from the written row: few ask, and a map beside each row would be most of its memory.
    pub fn labels(&self) -> BTreeMap<String, String> {
        serde_json::from_str::<WrittenLabels>(&self.json).map(|row| row.labels).unwrap_or_default()
    }

    /// About how many bytes it takes, with its place in the table.
    pub(super) fn bytes(&self) -> usize {
        const AROUND: usize = 320;
        self.json.len() + self.uid.len() + self.name.len() + AROUND
    }
}

/// Its uid; where a kind has none, its name, which is as good within one table.
pub(super) fn uid(row: &Row) -> Arc<str> {
    match &row.uid {
        Some(uid) => uid.as_str().into(),
        None => format!("{}/{}", row.namespace.as_deref().unwrap_or_default(), row.name).into(),
    }
}

impl fmt::Debug for TableView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { epoch, revision, count, synced, state, .. } = self;
        write!(f, "TableView {{ {epoch:x}:{revision}, {count} rows, synced {synced}, {state:?} }}")
    }
}

impl fmt::Debug for LiveRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.json)
    }
}
