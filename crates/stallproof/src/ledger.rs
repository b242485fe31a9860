//! `Ledger`: every operation in flight: what it is, in which step since when, waiting on what.
//!
//! Contract:
//! - `begin` puts an operation on the ledger, `finish` (or drop) takes it off. Dropped without
//!   `finish` it counts as cancelled, because that is what dropping a future means; dropped by a
//!   panic it counts as failed.
//! - Always on. An operation costs one short lock at each end, and one of its own per step; nothing
//!   is shared by all threads but the histograms' counters. By `make bench`: 0.2 µs
//!   for begin and finish and 0.08 µs a step, where reading the clock alone takes 0.026.
//! - A listing never holds up the work: no lock is held for more than [`PAGE`] operations, and only
//!   to copy pointers; the oldest are found first, so a listing of the oldest hundred among a
//!   million reads no million.
//! - What is late is named once while it is in flight (`name_late`, called every second or so by a
//!   watchdog) and once when it ends, with the time each step took. A flood of late operations is
//!   named by its oldest and a sum, [`LINES`] lines and not a hundred thousand, and hides no late
//!   operation of another kind.
//! - Memory: 260 bytes an operation beside its key and tenant, 400 once it has steps, all given back
//!   when it ends; less than 10 KiB a kind. `begin` never refuses: what bounds the operations in
//!   flight is the gate or the lane that let them in. A million in flight are 0.4 GB; begin and
//!   finish cost 0.27 µs then, and the oldest hundred are listed in a tenth of a millisecond.
//!   Kinds past the [`KINDS`]th and steps past the [`STEPS`]th of a kind share the metrics label
//!   `other`.
//!
//! - Every operation opens a tracing span with its kind, key, tenant and id. Log lines carry them that
//!   are written by a future that [`Op::in_span`] wraps, by work that `Lanes` runs for the
//!   operation, or while the span of [`Op::span`] is entered. The span's level is `error`, so that
//!   every line that is logged at all has it. A span costs a nanosecond where nobody logs and a
//!   microsecond where somebody does.
//!
//! How: operations lie on shelves, one for each kind and each group of threads, ordered by age. An
//! [`OpId`] says which shelf, so that a holder is found without a search.

mod late_ends;
mod meters;
mod table;
mod view;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_utils::CachePadded;
// Not `crate::sync`: exploring these sections, none of which waits for anything, would only multiply
// the schedules of the primitives that keep a ledger.
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tracing::instrument::{Instrument, Instrumented};
use tracing::{Span, error_span, warn};

use crate::metrics::Histogram;
use late_ends::LateEnds;
use table::Table;
pub use view::{Filter, OpView, StepView, WaitView};

/// The most operations that are looked at under one lock.
pub const PAGE: usize = 64;
/// The most operations of one kind that one call of `name_late` logs, and the most late ends of one
/// kind that are logged in a second; one line more sums up the rest.
pub const LINES: usize = 10;
/// The most kinds that are told apart.
pub const KINDS: usize = 64;
/// The most steps of one kind that have their own histogram.
pub const STEPS: usize = 24;
/// The most steps that an operation remembers one by one; what comes after is summed up.
pub const KEPT_STEPS: usize = 16;

/// The step of an operation that has not named one yet.
const FIRST_STEP: &str = "begin";
/// Groups of threads; a power of two. More only helps machines with more busy cores than this.
const SHARDS: usize = 16;
/// An id is a running number on its shelf, then the kind, then the shard.
const SHELF_BITS: u32 = (KINDS * SHARDS).trailing_zeros();

/// Names one operation for as long as its ledger lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OpId(pub u64);

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    Done,
    Failed,
    /// Not begun: no room, or not now.
    Refused,
    /// Its deadline passed.
    Expired,
    /// Its caller went away.
    Cancelled,
}

#[derive(Clone, Debug)]
pub struct LedgerConfig {
    /// An operation older than this is late, unless `expect` says otherwise for its kind.
    pub late_after: Duration,
}

impl Default for LedgerConfig {
    fn default() -> Self {
        Self { late_after: Duration::from_secs(10) }
    }
}

/// Every operation in flight. Clones share one ledger.
#[derive(Clone, Default)]
pub struct Ledger(Arc<Book>);

#[derive(Default)]
struct Book {
    config: LedgerConfig,
    kinds: Table<Kind, KINDS>,
}

struct Kind {
    meters: Arc<Meters>,
    /// Written by the threads of one shard each; read by listings.
    shelves: [Arc<CachePadded<Shelf>>; SHARDS],
}

/// The settings and metrics that the operations of one kind share.
struct Meters {
    kind: &'static str,
    late_after_nanos: AtomicU64,
    whole: Histogram,
    steps: Table<Histogram, STEPS>,
    late_ends: LateEnds,
}

/// The operations of one kind that were begun by one shard's threads.
struct Shelf {
    meters: Arc<Meters>,
    /// The low bits of the ids given here.
    address: u64,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// By running number, hence by age.
    entries: BTreeMap<u64, Arc<Entry>>,
    last: u64,
    /// All up to here are named, or gone.
    named_up_to: u64,
    finished: [u64; Outcome::ALL.len()],
    late: u64,
}

struct Entry {
    id: OpId,
    kind: &'static str,
    key: Cow<'static, str>,
    tenant: Cow<'static, str>,
    began: Instant,
    /// Unset where spans are not logged. Set by `begin` after the shelf's lock, so that no subscriber
    /// runs under it; read by the operation and by whoever names it as late.
    span: OnceLock<Span>,
    progress: Mutex<Progress>,
}

/// How far an operation has come. Written by the operation, copied by listings.
struct Progress {
    step: &'static str,
    since: Instant,
    ended: Vec<Step>,
    folded: Folded,
    waits_on: Option<Arc<Wait>>,
    late: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    name: &'static str,
    took: Duration,
}

/// Steps past the `KEPT_STEPS`th.
#[derive(Clone, Copy, Debug, Default)]
struct Folded {
    steps: u32,
    took: Duration,
}

struct Wait {
    what: Cow<'static, str>,
    holder: Option<OpId>,
}

/// One operation in flight; dropping it takes it off the ledger.
#[must_use = "an operation that is dropped at once counts as cancelled"]
pub struct Op {
    entry: Arc<Entry>,
    shelf: Arc<CachePadded<Shelf>>,
    outcome: Outcome,
}

impl Ledger {
    pub fn new(config: LedgerConfig) -> Self {
        Self(Arc::new(Book { config, ..Book::default() }))
    }

    pub fn begin(
        &self,
        kind: &'static str,
        key: impl Into<Cow<'static, str>>,
        tenant: impl Into<Cow<'static, str>>,
    ) -> Op {
        let shelf = &self.0.kind(kind).shelves[shard()];
        let entry = shelf.put(key.into(), tenant.into(), Instant::now());
        entry.open_span();
        Op { entry, shelf: Arc::clone(shelf), outcome: Outcome::Cancelled }
    }

    /// Operations of this kind are late after `late_after`, those in flight included.
    pub fn expect(&self, kind: &'static str, late_after: Duration) {
        self.0.kind(kind).meters.late_after_nanos.store(nanos(late_after), Relaxed);
    }

    /// How many are in flight, by kind.
    pub fn count(&self) -> Vec<(&'static str, usize)> {
        let in_flight =
            |kind: &Kind| kind.shelves.iter().map(|s| s.open.lock().entries.len()).sum();
        self.0.kinds.iter().map(|kind| (kind.meters.kind, in_flight(kind))).collect()
    }

    /// The oldest operations that pass the filter, oldest first.
    pub fn in_flight(&self, filter: &Filter) -> Vec<OpView> {
        let now = Instant::now();
        self.0.oldest(filter).iter().map(|entry| self.0.view(entry, now)).collect()
    }

    /// Names, once each, the operations that have become late: counts them all, logs the oldest of
    /// each kind and the number of the rest, and returns views of those it logged.
    pub fn name_late(&self, now: Instant) -> Vec<OpView> {
        let mut views = Vec::new();
        for kind in self.0.kinds.iter() {
            let mut late = kind.take_late(now);
            let more = late.len().saturating_sub(LINES);
            late.truncate(LINES);
            for entry in late {
                let view = self.0.view(&entry, now);
                entry.span().in_scope(|| view.log_late());
                views.push(view);
            }
            if more > 0 {
                warn!(kind = kind.meters.kind, more, "more operations are late");
            }
            kind.meters.late_ends.tell_withheld(kind.meters.kind, now);
        }
        views
    }
}

impl Book {
    fn kind(&self, name: &'static str) -> &Kind {
        let make = |index: usize, name| {
            let meters = Arc::new(Meters {
                kind: name,
                late_after_nanos: AtomicU64::new(nanos(self.config.late_after)),
                whole: Histogram::default(),
                steps: Table::default(),
                late_ends: LateEnds::default(),
            });
            let shelves = std::array::from_fn(|shard| {
                Arc::new(CachePadded::new(Shelf {
                    meters: Arc::clone(&meters),
                    address: (index * SHARDS + shard) as u64,
                    open: Mutex::default(),
                }))
            });
            Kind { meters, shelves }
        };
        self.kinds.get_or_add(name, make)
    }

    fn find(&self, id: OpId) -> Option<Arc<Entry>> {
        let address = (id.0 as usize) % (KINDS * SHARDS);
        let kind = self.kinds.iter().nth(address / SHARDS)?;
        kind.shelves[address % SHARDS].open.lock().entries.get(&(id.0 >> SHELF_BITS)).cloned()
    }

    fn oldest(&self, filter: &Filter) -> Vec<Arc<Entry>> {
        let mut oldest = Vec::new();
        let wanted = |kind: &&Kind| filter.kind.as_ref().is_none_or(|k| k == kind.meters.kind);
        for shelf in self.kinds.iter().filter(wanted).flat_map(|kind| &kind.shelves) {
            // No shelf can give more than the limit, as it gives its oldest first.
            let matching = shelf.by_age().filter(|entry| filter.admits(entry)).take(filter.limit);
            oldest.extend(matching);
            oldest.sort_by_key(|entry| (entry.began, entry.id));
            oldest.truncate(filter.limit);
        }
        oldest
    }
}

impl Kind {
    /// The operations that have become late since the last call, oldest first.
    fn take_late(&self, now: Instant) -> Vec<Arc<Entry>> {
        let mut late = Vec::new();
        for shelf in &self.shelves {
            shelf.take_late(now, &mut late);
        }
        late.sort_by_key(|entry| (entry.began, entry.id));
        late
    }
}

impl Shelf {
    fn put(&self, key: Cow<'static, str>, tenant: Cow<'static, str>, now: Instant) -> Arc<Entry> {
        let mut entry = Entry {
            id: OpId(0),
            kind: self.meters.kind,
            key,
            tenant,
            began: now,
            span: OnceLock::new(),
            progress: Mutex::new(Progress {
                step: FIRST_STEP,
                since: now,
                ended: Vec::new(),
                folded: Folded::default(),
                waits_on: None,
                late: false,
            }),
        };
        let mut open = self.open.lock();
        open.last += 1;
        let number = open.last;
        entry.id = OpId(number << SHELF_BITS | self.address);
        let entry = Arc::new(entry);
        open.entries.insert(number, Arc::clone(&entry));
        entry
    }

    fn remove(&self, id: OpId, outcome: Outcome) {
        let mut open = self.open.lock();
        open.entries.remove(&(id.0 >> SHELF_BITS));
        open.finished[outcome as usize] += 1;
    }

    /// The oldest operations after number `after`, a page at most.
    fn page(&self, after: u64) -> Vec<Arc<Entry>> {
        let mut page = Vec::with_capacity(PAGE);
        page.extend(
            self.open.lock().entries.range(after + 1..).take(PAGE).map(|(_, e)| Arc::clone(e)),
        );
        page
    }

    /// All operations, oldest first, without holding the lock from one page to the next: what was
    /// there before and is there after is seen exactly once.
    fn by_age(&self) -> impl Iterator<Item = Arc<Entry>> {
        let mut after = 0;
        let pages = std::iter::from_fn(move || {
            let page = self.page(after);
            after = page.last()?.id.0 >> SHELF_BITS;
            Some(page)
        });
        pages.flatten()
    }

    /// Marks and counts what has become late since the last time.
    fn take_late(&self, now: Instant, late: &mut Vec<Arc<Entry>>) {
        let late_after = self.meters.late_after();
        loop {
            let mut open = self.open.lock();
            let after = open.named_up_to;
            let page = open.entries.range(after + 1..).take(PAGE).map(|(_, entry)| entry);
            let page: Vec<_> = page
                .take_while(|entry| now.saturating_duration_since(entry.began) >= late_after)
                .cloned()
                .collect();
            if let Some(last) = page.last() {
                open.named_up_to = last.id.0 >> SHELF_BITS;
            }
            drop(open);
            let full = page.len() == PAGE;
            // Whoever sets the mark counts: an operation may be ending at this moment.
            let mut marked = 0;
            late.extend(page.into_iter().filter(|entry| {
                let newly = !std::mem::replace(&mut entry.progress.lock().late, true);
                marked += u64::from(newly);
                newly
            }));
            self.open.lock().late += marked;
            if !full {
                return;
            }
        }
    }
}

impl Meters {
    fn late_after(&self) -> Duration {
        Duration::from_nanos(self.late_after_nanos.load(Relaxed))
    }

    fn step_took(&self, step: Step) {
        self.steps.get_or_add(step.name, |_, _| Histogram::default()).observe(step.took);
    }
}

impl Entry {
    fn open_span(&self) {
        let Self { kind, key, tenant, id: OpId(id), .. } = self;
        let span = error_span!("op", %kind, %key, %tenant, id);
        if !span.is_disabled() {
            self.span.get_or_init(|| span);
        }
    }

    fn span(&self) -> Span {
        self.span.get().cloned().unwrap_or_else(Span::none)
    }
}

impl Op {
    pub fn id(&self) -> OpId {
        self.entry.id
    }

    /// The operation's span: log lines that are written while it is entered carry the operation's
    /// kind, key, tenant and id. Do not hold it entered across an `.await`; see [`Op::in_span`].
    pub fn span(&self) -> Span {
        self.entry.span()
    }

    /// Enters the operation's span whenever `work` is polled, on whichever task that is.
    pub fn in_span<F: Future>(&self, work: F) -> Instrumented<F> {
        work.instrument(self.span())
    }

    /// Ends the step before and begins this one.
    pub fn step(&self, name: &'static str) {
        let ended = self.entry.progress.lock().enter(name, Instant::now());
        self.shelf.meters.step_took(ended);
    }

    /// Says what this operation now waits on, and which operation holds that, if known.
    /// Cleared by the next `step`.
    pub fn waits_on(&self, what: impl Into<Cow<'static, str>>, holder: Option<OpId>) {
        let wait = Some(Arc::new(Wait { what: what.into(), holder }));
        let before = std::mem::replace(&mut self.entry.progress.lock().waits_on, wait);
        drop(before);
    }

    /// Takes it off the ledger.
    pub fn finish(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Op {
    fn drop(&mut self) {
        if self.outcome == Outcome::Cancelled && std::thread::panicking() {
            self.outcome = Outcome::Failed;
        }
        let (entry, shelf) = (&self.entry, &self.shelf);
        let now = Instant::now();
        shelf.remove(entry.id, self.outcome);
        let took = now.saturating_duration_since(entry.began);
        let is_late = took >= shelf.meters.late_after();
        let (last, was_named) = {
            let mut progress = entry.progress.lock();
            (progress.current(now), std::mem::replace(&mut progress.late, is_late))
        };
        shelf.meters.step_took(last);
        shelf.meters.whole.observe(took);
        if is_late && !was_named {
            shelf.open.lock().late += 1;
        }
        if (is_late || was_named) && shelf.meters.late_ends.may_tell(entry.kind, now) {
            entry.span().in_scope(|| view::log_late_end(entry, last, took, self.outcome));
        }
    }
}

impl Progress {
    fn current(&self, now: Instant) -> Step {
        Step { name: self.step, took: now.saturating_duration_since(self.since) }
    }

    /// Begins step `name`; returns the step that this ended.
    fn enter(&mut self, name: &'static str, now: Instant) -> Step {
        let ended = self.current(now);
        if self.ended.len() < KEPT_STEPS {
            self.ended.push(ended);
        } else {
            self.folded.steps += 1;
            self.folded.took += ended.took;
        }
        (self.step, self.since) = (name, now);
        self.waits_on = None;
        ended
    }
}

impl Outcome {
    const ALL: [Self; 5] =
        [Self::Done, Self::Failed, Self::Refused, Self::Expired, Self::Cancelled];

    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }
}

/// This thread's group.
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static SHARD: usize = NEXT.fetch_add(1, Relaxed) % SHARDS);
    // A thread may still end operations while it is being torn down.
    SHARD.try_with(|shard| *shard).unwrap_or(0)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.count()).finish()
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { id, kind, key, tenant, .. } = &*self.entry;
        write!(f, "Op({} {kind} {key} of {tenant})", id.0)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
