//! The figures of every lock in the process: counted by the locks, read by `locks()` and metrics.
//!
//! Process-wide, as are threads: a deadlock does not care which part of the program made the lock.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use crossbeam_utils::atomic::AtomicCell;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use serde::Serialize;
use tracing::warn;

use super::Stuck;
use crate::metrics::Histogram;

pub(super) type Site = &'static Location<'static>;

/// The most holders listed of one class.
const HOLDERS: usize = 16;

/// Never shrinks: a class is a literal in the program.
static CLASSES: Mutex<BTreeMap<&'static str, Arc<Class>>> = Mutex::new(BTreeMap::new());
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The figures that one class of locks shares.
pub(super) struct Class {
    pub(super) name: &'static str,
    /// How long acquisitions waited that had to.
    pub(super) wait: Histogram,
    /// How long the sampled holds lasted.
    pub(super) hold: Histogram,
    instances: Mutex<Instances>,
}

#[derive(Default)]
struct Instances {
    next: u64,
    live: BTreeMap<u64, Arc<Watch>>,
    /// The counts of locks that are gone.
    taken: u64,
    contended: u64,
}

/// The figures of one lock.
pub(super) struct Watch {
    pub(super) class: Arc<Class>,
    number: u64,
    pub(super) holder: AtomicCell<Option<Site>>,
    /// Microseconds after `START`; 0 if the holder was not timed and nobody has come to wait.
    held_since: AtomicU64,
    pub(super) taken: AtomicU64,
    contended: AtomicU64,
    pub(super) waiting: AtomicUsize,
    /// The threads that have waited for a while.
    waiters: Mutex<Vec<Waiter>>,
    /// The value of `taken` when the holder was last named in the log.
    pub(super) named: AtomicU64,
}

#[derive(Clone, Copy, PartialEq)]
struct Waiter {
    site: Site,
    since: Instant,
    thread: std::thread::ThreadId,
}

/// A class of locks, at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LockView {
    pub class: &'static str,
    pub instances: usize,
    pub acquisitions: u64,
    /// Acquisitions that had to wait.
    pub contended: u64,
    pub waiting: usize,
    /// The locks that are held now: the most waited for first, 16 at most.
    pub held: Vec<HeldView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeldView {
    /// Where the holder took the lock.
    pub holder: String,
    /// At least; unknown while nobody waits, unless this hold is a sampled one.
    pub held_ms: Option<u64>,
    pub waiting: usize,
    /// The one who has waited longest: where, and for how long.
    pub waiter: Option<String>,
    pub waiting_ms: Option<u64>,
}

/// Every class of locks in the process, by name.
pub fn locks() -> Vec<LockView> {
    classes().iter().map(|class| class.view(Instant::now())).collect()
}

/// Registers the metrics of every lock in the process.
pub fn register(registry: &mut Registry) {
    registry.register_collector(Box::new(AllLocks));
}

fn classes() -> Vec<Arc<Class>> {
    CLASSES.lock().values().cloned().collect()
}

impl Class {
    fn view(&self, now: Instant) -> LockView {
        let (mut view, held) = {
            let instances = self.instances.lock();
            let live = instances.live.values();
            let held: Vec<_> =
                live.clone().filter(|w| w.holder.load().is_some()).cloned().collect();
            let view = LockView {
                class: self.name,
                instances: instances.live.len(),
                acquisitions: instances.taken + sum(live.clone().map(|w| &w.taken)),
                contended: instances.contended + sum(live.clone().map(|w| &w.contended)),
                waiting: live.map(|w| w.waiting.load(Relaxed)).sum(),
                held: Vec::new(),
            };
            (view, held)
        };
        view.held = held.iter().filter_map(|watch| watch.view(now)).collect();
        view.held.sort_by_key(|held| std::cmp::Reverse((held.waiting, held.held_ms)));
        view.held.truncate(HOLDERS);
        view
    }
}

fn sum<'a>(counts: impl Iterator<Item = &'a AtomicU64>) -> u64 {
    counts.map(|count| count.load(Relaxed)).sum()
}

impl Watch {
    pub(super) fn new(class: &'static str) -> Arc<Self> {
        let class = Arc::clone(CLASSES.lock().entry(class).or_insert_with(|| {
            Arc::new(Class {
                name: class,
                wait: Histogram::default(),
                hold: Histogram::default(),
                instances: Mutex::default(),
            })
        }));
        let mut instances = class.instances.lock();
        let number = instances.next;
        instances.next += 1;
        let watch = Arc::new(Self {
            class: Arc::clone(&class),
            number,
            holder: AtomicCell::new(None),
            held_since: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            contended: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            waiters: Mutex::default(),
            named: AtomicU64::new(0),
        });
        instances.live.insert(number, Arc::clone(&watch));
        drop(instances);
        watch
    }

    /// The lock is gone; its counts stay, so that the class's never fall.
    pub(super) fn retire(&self) {
        let mut instances = self.class.instances.lock();
        instances.taken += self.taken.load(Relaxed);
        instances.contended += self.contended.load(Relaxed);
        let gone = instances.live.remove(&self.number);
        drop(instances);
        drop(gone);
    }

    #[inline]
    pub(super) fn set_holder(&self, site: Site, since: Option<Instant>) {
        // The time before the place: who sees this holder must not see the last one's time.
        self.held_since.store(since.map_or(0, micros), Relaxed);
        self.holder.store(Some(site));
    }

    pub(super) fn count_waiter(&self, now: Instant) -> impl Drop {
        self.contended.fetch_add(1, Relaxed);
        self.waiting.fetch_add(1, Relaxed);
        // From now on someone asks since when it is held, so the clock starts if it has not.
        let _ = self.held_since.compare_exchange(0, micros(now), Relaxed, Relaxed);
        OnDrop(|| {
            self.waiting.fetch_sub(1, Relaxed);
        })
    }

    pub(super) fn list_waiter(&self, site: Site, since: Instant) -> impl Drop {
        let waiter = Waiter { site, since, thread: std::thread::current().id() };
        self.waiters.lock().push(waiter);
        OnDrop(move || self.waiters.lock().retain(|other| *other != waiter))
    }

    pub(super) fn stuck(&self) -> Stuck {
        let held_for = self.held_for(Instant::now()).unwrap_or_default();
        Stuck { class: self.class.name, holder: self.holder.load(), held_for }
    }

    /// Says who holds the lock, once per hold.
    pub(super) fn name_holder(&self, waiter: Site) {
        let taken = self.taken.load(Relaxed);
        if self.named.swap(taken, Relaxed) == taken {
            return;
        }
        let Stuck { class, holder, held_for } = self.stuck();
        warn!(
            class,
            holder = site_name(holder),
            held_ms = ms(held_for),
            waiter = site_name(Some(waiter)),
            waiting = self.waiting.load(Relaxed),
            "lock is stuck"
        );
    }

    fn held_for(&self, now: Instant) -> Option<Duration> {
        let since = self.held_since.load(Relaxed);
        (since > 0).then(|| Duration::from_micros(micros(now).saturating_sub(since)))
    }

    fn view(&self, now: Instant) -> Option<HeldView> {
        let holder = self.holder.load()?;
        let longest = self.waiters.lock().iter().min_by_key(|waiter| waiter.since).copied();
        Some(HeldView {
            holder: site_name(Some(holder)),
            held_ms: self.held_for(now).map(ms),
            waiting: self.waiting.load(Relaxed),
            waiter: longest.map(|waiter| site_name(Some(waiter.site))),
            waiting_ms: longest.map(|waiter| ms(now.saturating_duration_since(waiter.since))),
        })
    }
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

pub(super) fn site_name(site: Option<Site>) -> String {
    site.map_or_else(|| "nobody".to_owned(), |site| format!("{}:{}", site.file(), site.line()))
}

/// Never 0, which means unknown.
fn micros(now: Instant) -> u64 {
    let after_start = now.saturating_duration_since(*START).as_micros();
    u64::try_from(after_start).unwrap_or(u64::MAX).max(1)
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[derive(Debug)]
struct AllLocks;

impl Collector for AllLocks {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let classes = classes();
        let views: Vec<_> = classes.iter().map(|class| class.view(Instant::now())).collect();

        let help = "Threads that wait for a lock of the class";
        let mut family =
            encoder.encode_descriptor("locks_waiting", help, None, MetricType::Gauge)?;
        for view in &views {
            family.encode_family(&[("class", view.class)])?.encode_gauge(&view.waiting)?;
        }

        type Count = fn(&LockView) -> u64;
        let counters: [(&str, &str, Count); 2] = [
            ("locks_acquired", "Locks taken", |view| view.acquisitions),
            ("locks_contended", "Locks that were not free at once", |view| view.contended),
        ];
        for (name, help, count) in counters {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for view in &views {
                let labels = [("class", view.class)];
                let mut counter = family.encode_family(&labels)?;
                counter.encode_counter::<NoLabelSet, _, u64>(&count(view), None)?;
            }
        }

        type Times = fn(&Class) -> &Histogram;
        let histograms: [(&str, &str, Times); 2] = [
            ("lock_wait_seconds", "Waits for locks that were not free at once", |c| &c.wait),
            ("lock_hold_seconds", "How long locks were held; a sample", |c| &c.hold),
        ];
        for (name, help, times) in histograms {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for class in &classes {
                times(class).encode(family.encode_family(&[("class", class.name)])?)?;
            }
        }
        Ok(())
    }
}
