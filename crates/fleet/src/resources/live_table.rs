//! `LiveTables`: the tables that people look at, each watched once, whoever looks.
//!
//! ```text
//! API server ──pages, then changes──► TableWriter ──► Snapshot<TableView> ──► every subscriber
//! ```
//!
//! Contract:
//! - There is one watch for each [`TableKey`]: it begins with the first subscriber, and ends [`GRACE`]
//!   after the last one has gone. A key with an identity is shared by nobody with another one.
//! - Rows are published page by page as the API server sends them, and the list is never cut.
//! - Every change has a revision. A subscriber keeps the last one that it has seen, and reads what came
//!   after it: a row that changed ten times meanwhile is read once, so that a slow reader costs nobody
//!   anything, and reading costs what changed. Who comes back with the epoch and the revision goes on
//!   where they were, as long as the deletions since then are remembered.
//! - A cluster that goes away takes no rows with it: they stay, and the state says since when and why
//!   they may be old. Once it is back only what differs is a change.
//! - Memory is bounded, per table and for all tables. A table that does not fit ends with a sentence.
//! - Each table is a task of the fleet, and on the ledger as `shared-watch`.

mod source;
mod view;
mod writer;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use futures::StreamExt;
use objects::watching::{self, Change, WatchTiming};
use parking_lot::Mutex;
use stallproof::backoff::Curve;
use stallproof::snapshot::{Changes, View};
use stallproof::{Ledger, Snapshot, Stop, Tasks};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

pub use view::{Entry, LiveRow, Removal, TableState, TableView};

use crate::actor::Actor;
use crate::error::Error;
use crate::resources::list::ListQuery;
use crate::view::FleetView;
use source::TableSource;
use writer::{TableWriter, TooLarge};

/// How long a table that nobody looks at is kept: people go back and forth between pages.
const GRACE: Duration = Duration::from_secs(30);
/// The most tables: a person opens some tens, and each is a watch at an API server.
const MOST_TABLES: usize = 1024;
/// The most bytes of one table: some 150,000 pods.
const MOST_BYTES: usize = 128 << 20;
/// The most bytes of all tables together.
const MOST_BYTES_TOGETHER: usize = 512 << 20;
/// A cluster that is away is looked for in our own memory, so often is cheap.
const RETRY: Curve = Curve { first: Duration::from_millis(500), most: Duration::from_secs(5) };

/// What one shared watch is of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableKey {
    pub cluster: Arc<str>,
    /// The word that means one kind and no other: `deployments.v1.apps`.
    pub kind: String,
    /// None: all namespaces, of which each subscriber is shown some.
    pub namespace: Option<String>,
    /// Field selectors are the API server's to evaluate, so each has a watch of its own.
    pub fields: Option<String>,
    /// Whose requests it makes; `None` for the credentials of the fleet.
    pub identity: Option<Actor>,
    pub form: TableForm,
}

/// Which columns a table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TableForm {
    /// As the API server prints it.
    Printed,
    /// Of events: times as times, not as ages.
    Events,
}

/// The tables that somebody looks at.
#[derive(Default)]
pub(crate) struct LiveTables {
    /// Held to find, add and remove a table; nothing is waited for under it.
    tables: Mutex<HashMap<TableKey, Arc<SharedTable>>>,
    /// Of all tables. Written by their writers.
    bytes: Arc<AtomicUsize>,
}

struct SharedTable {
    published: Snapshot<TableView>,
    /// Counted up under the registry's lock, down by whoever leaves.
    subscribers: AtomicUsize,
    left: Notify,
}

/// One who looks at a table; dropping it is leaving.
pub struct TableSubscription(Arc<SharedTable>);

impl TableSubscription {
    /// The table as it is now.
    pub fn view(&self) -> View<TableView> {
        self.0.published.load()
    }

    /// Tells when it has changed.
    pub fn changes(&self) -> Changes<TableView> {
        self.0.published.subscribe()
    }
}

impl Drop for TableSubscription {
    fn drop(&mut self) {
        if self.0.subscribers.fetch_sub(1, Relaxed) == 1 {
            self.0.left.notify_one();
        }
    }
}

impl LiveTables {
    /// Subscribes to a table, which is watched from now on if nobody looked at it.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
        key: TableKey,
        fleet: &Snapshot<FleetView>,
        ledger: &Ledger,
        tasks: &Tasks,
    ) -> Result<TableSubscription, Error> {
        let mut tables = self.tables.lock();
        if let Some(table) = tables.get(&key) {
            table.subscribers.fetch_add(1, Relaxed);
            return Ok(TableSubscription(Arc::clone(table)));
        }
        if tables.len() >= MOST_TABLES {
            return Err(Error::Busy {
                cluster: key.cluster.to_string(),
                why: format!("{MOST_TABLES} tables are being watched already; close some"),
                retry_after: GRACE,
            });
        }
        let table = Arc::new(SharedTable {
            published: Snapshot::new(TableView::new(fastrand::u64(..))),
            subscribers: AtomicUsize::new(1),
            left: Notify::new(),
        });
        tables.insert(key.clone(), Arc::clone(&table));
        drop(tables);
        ledger.expect("shared-watch", Duration::MAX);
        let name = format!("table {} of {}", key.kind, key.cluster);
        let work = self.clone().keep(
            key,
            Arc::clone(&table),
            fleet.clone(),
            (ledger.clone(), tasks.stopping()),
        );
        tasks.spawn(name, work);
        Ok(TableSubscription(table))
    }

    /// Removes the table unless somebody looks at it.
    fn remove_unused(&self, key: &TableKey, table: &SharedTable) -> bool {
        let mut tables = self.tables.lock();
        let unused = table.subscribers.load(Relaxed) == 0;
        if unused {
            tables.remove(key);
        }
        unused
    }

    /// Keeps a table up to date until nobody looks at it any more.
    async fn keep(
        self: Arc<Self>,
        key: TableKey,
        table: Arc<SharedTable>,
        fleet: Snapshot<FleetView>,
        (ledger, stop): (Ledger, Stop),
    ) {
        let op = ledger.begin("shared-watch", key.kind.clone(), key.cluster.to_string());
        op.step("watch");
        let writer = TableWriter::new(table.published.clone(), self.bytes.clone());
        let writer = Arc::new(Mutex::new(writer));
        let ended = op.in_span(self.watch(&key, &table, &fleet, &writer, &stop)).await;
        if let Err(TooLarge(why)) = ended {
            // The next who asks begins anew: it may be smaller by then.
            self.tables.lock().remove(&key);
            writer.lock().end(why);
        }
        op.finish(stallproof::ledger::Outcome::Done);
    }

    async fn watch(
        &self,
        key: &TableKey,
        table: &SharedTable,
        fleet: &Snapshot<FleetView>,
        writer: &Arc<Mutex<TableWriter>>,
        stop: &Stop,
    ) -> Result<(), TooLarge> {
        let query = ListQuery {
            kind: key.kind.clone(),
            namespace: key.namespace.clone(),
            fields: key.fields.clone(),
            ..ListQuery::default()
        };
        let timing = WatchTiming { retry: RETRY, ..WatchTiming::default() };
        let watch = || {
            let (fleet, cluster) = (fleet.clone(), Arc::clone(&key.cluster));
            let identity = key.identity.clone();
            let connect = move || {
                fleet.read(|fleet| match &identity {
                    Some(actor) => fleet.connection_as(&cluster, actor),
                    None => fleet.connection(&cluster),
                })
            };
            let source =
                TableSource::new(connect, query.clone(), key.form, timing, Arc::clone(writer));
            watching::watch(source, None, timing).boxed()
        };
        let mut changes = watch();
        let mut left_at: Option<Instant> = None;
        loop {
            let unused = table.subscribers.load(Relaxed) == 0;
            left_at = unused.then(|| left_at.unwrap_or_else(Instant::now));
            let leave_at = left_at.map_or_else(far_away, |left| left + GRACE);
            tokio::select! {
                () = stop.stopped() => return Ok(()),
                () = table.left.notified() => {}
                () = sleep_until(leave_at), if unused => {
                    if self.remove_unused(key, table) {
                        return Ok(());
                    }
                }
                change = changes.next() => {
                    let mut writer = writer.lock();
                    match change {
                        Some(Change::Listed(listed)) => {
                            listed?;
                            writer.listed();
                        }
                        Some(Change::Applied(row)) if !writer.fits_columns(&row) => {
                            // The kind has other columns now: all rows are printed anew.
                            changes = watch();
                        }
                        Some(Change::Applied(row)) => writer.apply([row])?,
                        Some(Change::Deleted(row)) => writer.delete(&row),
                        Some(Change::Resumed) => writer.resumed(),
                        Some(Change::Interrupted { .. }) | None => {}
                    }
                }
            }
        }
    }
}

fn far_away() -> Instant {
    Instant::now() + Duration::from_secs(24 * 60 * 60)
}

impl fmt::Debug for LiveTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveTables").field("tables", &self.tables.lock().len()).finish()
    }
}

impl fmt::Debug for TableSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TableSubscription").field(&self.view()).finish()
    }
}

#[cfg(test)]
mod tests;
