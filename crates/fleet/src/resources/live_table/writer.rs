//! `TableWriter`: folds lists and changes into the table that is published.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use stallproof::Snapshot;

use super::view::{Entry, LiveRow, Removal, TableState, TableView, uid};
use super::{MOST_BYTES, MOST_BYTES_TOGETHER};
use crate::resources::list::{Column, Row};

/// How many deletions are remembered: who was away for more begins anew.
const REMEMBERED: usize = 10_000;

/// The table does not fit; the sentence says what to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge(pub(super) Arc<str>);

pub(super) struct TableWriter {
    published: Snapshot<TableView>,
    known: HashMap<Arc<str>, KnownRow>,
    /// The revisions of the deletions that are remembered, the oldest first.
    deletions: VecDeque<u64>,
    /// The rows that the list under way has named; none between lists.
    listing: Option<HashSet<Arc<str>>>,
    bytes: usize,
    /// Of all tables.
    together: Arc<AtomicUsize>,
    limits: (usize, usize),
}

struct KnownRow {
    revision: u64,
    version: Option<Box<str>>,
    bytes: usize,
}

impl TableWriter {
    pub(super) fn new(published: Snapshot<TableView>, together: Arc<AtomicUsize>) -> Self {
        Self {
            published,
            known: HashMap::new(),
            deletions: VecDeque::new(),
            listing: None,
            bytes: 0,
            together,
            limits: (MOST_BYTES, MOST_BYTES_TOGETHER),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// A list begins: what it does not name is gone when it has ended.
    pub(super) fn begin_list(&mut self) {
        self.listing = Some(HashSet::new());
    }

    /// Takes a page of a list.
    pub(super) fn page(&mut self, columns: Vec<Column>, rows: Vec<Row>) -> Result<(), TooLarge> {
        if !columns.is_empty() && *self.published.load().columns != *columns {
            // Rows as they were printed before do not fit these.
            self.known.values_mut().for_each(|known| known.version = None);
            self.published.update(|view| {
                view.columns = columns.into();
                true
            });
        }
        if let Some(listing) = &mut self.listing {
            listing.extend(rows.iter().map(uid));
        }
        self.apply(rows)
    }

    /// The list is complete.
    pub(super) fn listed(&mut self) {
        if let Some(named) = self.listing.take() {
            let gone = self.known.keys().filter(|uid| !named.contains(*uid)).cloned();
            let gone: Vec<_> = gone.collect();
            for uid in gone {
                self.remove(&uid);
            }
        }
        self.published.update(|view| {
            view.synced = true;
            view.state = TableState::Live;
            true
        });
    }

    /// Whether the row has as many cells as the table has columns.
    pub(super) fn fits_columns(&self, row: &Row) -> bool {
        self.published.read(|view| row.cells.len() == view.columns.len())
    }

    /// Takes rows that are new or changed.
    pub(super) fn apply(&mut self, rows: impl IntoIterator<Item = Row>) -> Result<(), TooLarge> {
        let rows = rows.into_iter().filter(|row| {
            let before = self.known.get(&uid(row)).and_then(|known| known.version.as_deref());
            before.is_none() || before != row.resource_version.as_deref()
        });
        let rows: Vec<_> = rows.map(|row| (LiveRow::new(&row), row.resource_version)).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let (known, mut grown, mut shrunk) = (&mut self.known, 0, 0);
        self.published.update(|view| {
            for (row, version) in rows {
                let (uid, bytes) = (Arc::clone(&row.uid), row.bytes());
                view.revision += 1;
                view.entries.insert(view.revision, Entry::Row(Arc::new(row)));
                let version = version.map(Into::into);
                let now = KnownRow { revision: view.revision, version, bytes };
                grown += bytes;
                match known.insert(uid, now) {
                    Some(before) => {
                        view.entries.remove(&before.revision);
                        shrunk += before.bytes;
                    }
                    None => view.count += 1,
                }
            }
            true
        });
        self.bytes = self.bytes + grown - shrunk;
        let together = self.together.fetch_add(grown, Relaxed) + grown;
        let together = together.min(self.together.fetch_sub(shrunk, Relaxed));
        let (most, most_together) = self.limits;
        let rows = self.known.len();
        if self.bytes > most {
            let mib = most >> 20;
            return Err(TooLarge(
                format!(
                    "these are more than {rows} rows, more than the {mib} MiB that one table may \
                     take; choose one namespace, or a field selector"
                )
                .into(),
            ));
        }
        if together > most_together {
            let mib = most_together >> 20;
            return Err(TooLarge(
                format!(
                    "the tables that are open take more than {mib} MiB together; close some, then \
                     open this one again"
                )
                .into(),
            ));
        }
        Ok(())
    }

    pub(super) fn delete(&mut self, row: &Row) {
        self.remove(&uid(row));
    }

    fn remove(&mut self, uid: &Arc<str>) {
        let Some(gone) = self.known.remove(uid) else { return };
        self.bytes -= gone.bytes;
        self.together.fetch_sub(gone.bytes, Relaxed);
        let deletions = &mut self.deletions;
        self.published.update(|view| {
            let Some(Entry::Row(row)) = view.entries.remove(&gone.revision) else { return false };
            view.count -= 1;
            view.revision += 1;
            let removal = Removal {
                uid: Arc::clone(&row.uid),
                namespace: row.namespace.clone(),
                name: row.name.clone(),
            };
            view.entries.insert(view.revision, Entry::Removed(Arc::new(removal)));
            deletions.push_back(view.revision);
            if deletions.len() > REMEMBERED
                && let Some(oldest) = deletions.pop_front()
            {
                view.entries.remove(&oldest);
                view.forgotten = oldest;
            }
            true
        });
    }

    pub(super) fn resumed(&mut self) {
        self.published.update(|view| {
            let live = view.synced && view.state != TableState::Live;
            if live {
                view.state = TableState::Live;
            }
            live
        });
    }

    /// The watch was interrupted, and is tried again after `wait`.
    pub(super) fn interrupted(&mut self, why: String, refused: bool, wait: Duration) {
        let now = Timestamp::now();
        let next_try =
            SignedDuration::try_from(wait).ok().and_then(|wait| now.checked_add(wait).ok());
        self.published.update(|view| {
            let since = match &view.state {
                TableState::Interrupted { since, .. } => *since,
                _ => now,
            };
            let next_try = next_try.unwrap_or(now);
            view.state = TableState::Interrupted { since, why: why.into(), refused, next_try };
            true
        });
    }

    /// Gives the rows up; whoever looks is told why.
    pub(super) fn end(&mut self, why: Arc<str>) {
        self.published.update(|view| {
            view.entries.clear();
            view.count = 0;
            view.state = TableState::Ended(why);
            true
        });
        self.known.clear();
        self.give_back();
    }

    fn give_back(&mut self) {
        self.together.fetch_sub(std::mem::take(&mut self.bytes), Relaxed);
    }

    #[cfg(test)]
    pub(super) fn limit(&mut self, bytes: usize) {
        self.limits.0 = bytes;
    }
}

impl Drop for TableWriter {
    fn drop(&mut self) {
        self.give_back();
    }
}
