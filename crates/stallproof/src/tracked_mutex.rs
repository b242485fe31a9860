//! `TrackedMutex`: a mutex that says who holds it.
//!
//! Contract:
//! - A mutex belongs to a class, named when it is made. Who holds it (file and line) is known at
//!   every moment, who waits and since when too; `locks()` lists that for the whole process.
//! - Every wait is timed; of the holds one in [`SAMPLE`] is. A wait of more than [`PATIENCE`] names
//!   the holder in the log, once per hold.
//! - The guard cannot cross an `.await`: it is not `Send`, and clippy knows its name, for tasks
//!   that need not be.
//! - In debug builds locks have an order by class: taking two classes in both orders, or two locks
//!   of one class at once, panics with the places, whether or not it would have deadlocked this
//!   time. Release builds have none of it.
//!
//! Uncontended it costs 1.4 times parking_lot's mutex (`make bench` measures).
//!
//! ```compile_fail,E0277
//! use stallproof::TrackedMutex;
//! async fn holds_across_await(mutex: &TrackedMutex<u32>) {
//!     let guard = mutex.lock();
//!     std::future::ready(()).await;
//!     drop(guard);
//! }
//! fn spawn(_task: impl Future<Output = ()> + Send) {}
//! let mutex = TrackedMutex::new("example", 1);
//! spawn(holds_across_await(&mutex));
//! ```
//!
//! Let go of before the `.await`, it compiles:
//!
//! ```
//! use stallproof::TrackedMutex;
//! async fn lets_go(mutex: &TrackedMutex<u32>) {
//!     *mutex.lock() += 1;
//!     std::future::ready(()).await;
//! }
//! fn spawn(_task: impl Future<Output = ()> + Send) {}
//! let mutex = TrackedMutex::new("example", 1);
//! spawn(lets_go(&mutex));
//! ```

mod locks;
#[cfg(debug_assertions)]
mod order;

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

// Not `crate::sync`: this is for the code above the primitives, which shuttle does not drive.
use parking_lot::{Mutex, MutexGuard};

use crate::Deadline;
pub use locks::{HeldView, LockView, locks, register};
use locks::{Site, Watch};

/// One hold in this many is timed.
pub const SAMPLE: u64 = 64;
/// A wait longer than this names the holder in the log.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// A wait longer than this is listed by itself. Shorter ones are only counted, so that a busy lock
/// does not pay for a list.
const BRIEF: Duration = Duration::from_millis(10);

/// A mutex that says who holds it.
pub struct TrackedMutex<T> {
    watch: Arc<Watch>,
    value: Mutex<T>,
}

/// The lock, until dropped. Never hold it across an `.await`.
#[must_use = "a lock that is dropped at once protects nothing"]
pub struct TrackedGuard<'a, T> {
    // In the order in which they are dropped: the lock is free before its time is written down.
    value: MutexGuard<'a, T>,
    hold: Hold<'a>,
    #[cfg(debug_assertions)]
    _order: order::Held,
    /// Not `Send`, whatever features parking_lot was built with.
    _not_send: PhantomData<*const ()>,
}

struct Hold<'a> {
    watch: &'a Watch,
    sampled: Option<Instant>,
}

/// The lock did not come free in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("lock `{class}` is stuck: held for {held_for:.1?} by {}", locks::site_name(*holder))]
pub struct Stuck {
    pub class: &'static str,
    /// Where the holder took it; none if it came free at the last moment.
    pub holder: Option<&'static Location<'static>>,
    /// At least; the clock starts no later than when the first waiter came.
    pub held_for: Duration,
}

impl<T> TrackedMutex<T> {
    pub fn new(class: &'static str, value: T) -> Self {
        Self { watch: Watch::new(class), value: Mutex::new(value) }
    }

    /// Waits as long as it takes. Where a caller waits for the answer, prefer `lock_until`.
    #[track_caller]
    pub fn lock(&self) -> TrackedGuard<'_, T> {
        let site = Location::caller();
        self.check_order(site);
        if let Some(value) = self.value.try_lock() {
            return self.guard(value, site, false);
        }
        let value = self.wait(site, None, PATIENCE).expect("a wait without end ends with the lock");
        self.guard(value, site, true)
    }

    /// Blocks this thread until the deadline at most.
    #[track_caller]
    pub fn lock_until(&self, deadline: Deadline) -> Result<TrackedGuard<'_, T>, Stuck> {
        let site = Location::caller();
        self.check_order(site);
        if let Some(value) = self.value.try_lock() {
            return Ok(self.guard(value, site, false));
        }
        let until = Instant::now() + deadline.remaining();
        match self.wait(site, Some(until), PATIENCE) {
            Some(value) => Ok(self.guard(value, site, true)),
            None => Err(self.watch.stuck()),
        }
    }

    /// Takes the lock if it is free. Waits for nothing, so any order will do.
    #[track_caller]
    pub fn try_lock(&self) -> Option<TrackedGuard<'_, T>> {
        let site = Location::caller();
        self.value.try_lock().map(|value| self.guard(value, site, false))
    }

    #[cold]
    fn wait(
        &self,
        site: Site,
        until: Option<Instant>,
        patience: Duration,
    ) -> Option<MutexGuard<'_, T>> {
        let began = Instant::now();
        let up_to = |wait| until.map_or(began + wait, |until| until.min(began + wait));
        let _counted = self.watch.count_waiter(began);
        let taken = self.value.try_lock_until(up_to(BRIEF)).or_else(|| {
            let _listed = self.watch.list_waiter(site, began);
            self.value.try_lock_until(up_to(patience)).or_else(|| {
                if began.elapsed() >= patience {
                    self.watch.name_holder(site);
                }
                match until {
                    None => Some(self.value.lock()),
                    Some(until) => self.value.try_lock_until(until),
                }
            })
        });
        self.watch.class.wait.observe(began.elapsed());
        taken
    }

    fn guard<'a>(
        &'a self,
        value: MutexGuard<'a, T>,
        site: Site,
        contended: bool,
    ) -> TrackedGuard<'a, T> {
        let watch = &*self.watch;
        // Only the holder writes these, so a load and a store count exactly.
        let taken = watch.taken.load(Relaxed);
        watch.taken.store(taken + 1, Relaxed);
        let sampled = taken.is_multiple_of(SAMPLE);
        let timed = sampled || contended || watch.waiting.load(Relaxed) > 0;
        let now = timed.then(Instant::now);
        watch.set_holder(site, now);
        TrackedGuard {
            value,
            hold: Hold { watch, sampled: now.filter(|_| sampled) },
            #[cfg(debug_assertions)]
            _order: order::Held::new(watch.class.name, site),
            _not_send: PhantomData,
        }
    }

    #[inline]
    fn check_order(&self, _site: Site) {
        #[cfg(debug_assertions)]
        order::check(self.watch.class.name, _site);
    }
}

impl<T> Drop for TrackedMutex<T> {
    fn drop(&mut self) {
        self.watch.retire();
    }
}

impl<T> Drop for TrackedGuard<'_, T> {
    fn drop(&mut self) {
        self.hold.watch.holder.store(None);
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        if let Some(since) = self.sampled {
            self.watch.class.hold.observe(since.elapsed());
        }
    }
}

impl<T> Deref for TrackedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for TrackedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> fmt::Debug for TrackedMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holder = locks::site_name(self.watch.holder.load());
        write!(f, "TrackedMutex({}, held by {holder})", self.watch.class.name)
    }
}

impl<T: fmt::Debug> fmt::Debug for TrackedGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
