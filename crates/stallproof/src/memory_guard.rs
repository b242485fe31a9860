//! `MemoryGuard`: how close the process is to being killed for its memory.
//!
//! Contract: [`MemoryGuard::level`] is one atomic load. [`MemoryGuard::check`] measures; someone
//! calls it a few times a second (`Watchdog::each_tick`). Every change of level is told to the
//! subscribers, on the thread that checks. The first critical reading of an episode saves evidence;
//! the episode ends when memory is back to normal.
//!
//! Of all limits that apply (each cgroup up the tree, v1 or v2, and the configured one) the one that
//! is closest counts, with the usage of its own level: a full pod kills its containers however
//! little each of them uses. Page cache that can be dropped at once is not counted.

mod usage;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tracing::{info, warn};

use self::usage::Places;
use crate::sync::Mutex;
use crate::watchdog::Evidence;

pub use self::usage::Usage;

/// Ordered: worse is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Pressure {
    Normal,
    /// Refuse what has low priority.
    Shedding,
    /// Refuse all but what keeps the process alive.
    Critical,
}

/// Shares of the limit, in percent, at which a level is entered and, lower, left again.
const ENTER_SHEDDING: u64 = 80;
const LEAVE_SHEDDING: u64 = 70;
const ENTER_CRITICAL: u64 = 92;
const LEAVE_CRITICAL: u64 = 85;

type Subscriber = Arc<dyn Fn(Pressure) + Send + Sync>;

type Reading = Box<dyn Fn() -> Option<Usage> + Send + Sync>;

pub struct MemoryGuard {
    reading: Reading,
    evidence: Option<Evidence>,
    level: AtomicU8,
    /// Has this episode been saved? Set and read by `check` only.
    episode: Mutex<Episode>,
    subscribers: Mutex<Vec<Subscriber>>,
    used: Gauge<u64, AtomicU64>,
    limit: Gauge<u64, AtomicU64>,
    pressure: Gauge,
}

#[derive(Debug, Default)]
struct Episode {
    saved: bool,
}

impl MemoryGuard {
    /// Finds the limits of this process. `configured`, in bytes, applies besides those of the
    /// cgroups; where neither exists the machine's memory is the limit.
    pub fn new(configured: Option<u64>, evidence: Option<Evidence>) -> Self {
        Self::below(Path::new("/"), configured, evidence)
    }

    /// The same in a file system that a test made up.
    fn below(root: &Path, configured: Option<u64>, evidence: Option<Evidence>) -> Self {
        let places = Places::find(root, configured);
        info!(limits = %places, "memory limits");
        Self::of(move || places.measure(), evidence)
    }

    /// Measures by `reading`; none is one that failed. For who knows better than the kernel, as tests
    /// do.
    pub fn of(
        reading: impl Fn() -> Option<Usage> + Send + Sync + 'static,
        evidence: Option<Evidence>,
    ) -> Self {
        Self {
            reading: Box::new(reading),
            evidence,
            level: AtomicU8::new(Pressure::Normal as u8),
            episode: Mutex::default(),
            subscribers: Mutex::new(Vec::new()),
            used: Gauge::default(),
            limit: Gauge::default(),
            pressure: Gauge::default(),
        }
    }

    pub fn level(&self) -> Pressure {
        match self.level.load(Relaxed) {
            0 => Pressure::Normal,
            1 => Pressure::Shedding,
            _ => Pressure::Critical,
        }
    }

    /// Called with the new level at every change.
    pub fn on_change(&self, subscriber: impl Fn(Pressure) + Send + Sync + 'static) {
        self.subscribers.lock().push(Arc::new(subscriber));
    }

    /// Measures, publishes and tells. One caller at a time; a reading that fails changes nothing.
    pub fn check(&self) {
        let Some(usage) = (self.reading)() else {
            return;
        };
        self.used.set(usage.used);
        self.limit.set(usage.limit);
        let old = self.level();
        let new = next(old, usage);
        if new == old {
            return;
        }
        self.level.store(new as u8, Relaxed);
        self.pressure.set(i64::from(new as u8));
        let Usage { used, limit } = usage;
        if new > old {
            warn!(?old, ?new, used, limit, "memory pressure rises");
        } else {
            info!(?old, ?new, used, limit, "memory pressure falls");
        }
        // Shed first: the evidence costs memory too.
        let subscribers = self.subscribers.lock().clone();
        for subscriber in subscribers {
            subscriber(new);
        }
        if self.first_critical(new)
            && let Some(evidence) = &self.evidence
        {
            evidence.save("memory");
        }
    }

    fn first_critical(&self, level: Pressure) -> bool {
        let mut episode = self.episode.lock();
        match level {
            Pressure::Normal => episode.saved = false,
            Pressure::Shedding => {}
            Pressure::Critical => return !std::mem::replace(&mut episode.saved, true),
        }
        false
    }

    pub fn register(&self, registry: &mut Registry) {
        let Self { used, limit, pressure, .. } = self;
        registry.register(
            "memory_used_bytes",
            "Memory that counts against the limit",
            used.clone(),
        );
        registry.register("memory_limit_bytes", "The limit that is closest", limit.clone());
        let help = "0 normal, 1 shedding, 2 critical";
        registry.register("memory_pressure", help, pressure.clone());
    }
}

/// Up at once, down only well below where it came up.
fn next(now: Pressure, usage: Usage) -> Pressure {
    let share = usage.percent();
    let critical = if now == Pressure::Critical { LEAVE_CRITICAL } else { ENTER_CRITICAL };
    let shedding = if now >= Pressure::Shedding { LEAVE_SHEDDING } else { ENTER_SHEDDING };
    if share >= critical {
        Pressure::Critical
    } else if share >= shedding {
        Pressure::Shedding
    } else {
        Pressure::Normal
    }
}

impl fmt::Debug for MemoryGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryGuard").field("level", &self.level()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
