//! CPU profiles, in the form that `go tool pprof` and its kin read (gzipped protobuf).
//!
//! Contract: [`cpu`] blocks its caller for the given time, one caller at a time; others are refused.
//! The kernel signals whichever thread is running each time the process has used another hundredth
//! of a second of CPU; that thread copies its stack into a slot made beforehand, and the caller turns
//! slots into counted stacks as they come. A sample that finds no free slot is dropped, never waited
//! for.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use pprof_util::{StackProfile, WeightedStack};

use crate::captured_stack::CapturedStack;
use crate::signal;
use crate::symbols::SymbolTables;
use crate::unwind::Unwinder;

/// Samples per second. It is not 100: work that happens to run every 10 ms should not fill the profile.
const HERTZ: u32 = 99;
const PERIOD: Duration = Duration::from_nanos(1_000_000_000 / HERTZ as u64);
const LONGEST: Duration = Duration::from_secs(300);
/// The pause between two looks at the slots: sixty-four slots are enough for as many busy CPUs.
const LOOK: Duration = Duration::from_millis(10);
const SLOTS: usize = 64;
/// How much of each stack is copied: 4 MiB in all, of which only what is used is ever touched.
const STACK: usize = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("a CPU profile is being taken already; try again when it is done")]
    Busy,
    #[error("a CPU profile can take at most {} s", LONGEST.as_secs())]
    TooLong,
    #[error("the kernel refused the profiling timer")]
    Timer(#[source] io::Error),
    #[error("a thread did not finish its sample; no more CPU profiles in this process")]
    Stuck,
}

struct Slot {
    /// Says who may use the slot: [`FREE`] and [`WRITING`] the handlers, [`WRITTEN`] the profiler.
    turn: AtomicU8,
    stack: CapturedStack,
}

const FREE: u8 = 0;
const WRITING: u8 = 1;
const WRITTEN: u8 = 2;

static SAMPLES: OnceLock<Box<[Slot]>> = OnceLock::new();
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// The number of handlers that run; slots are not read or cleared before they are done.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// Held during a profile; says whether an earlier profile got stuck.
static STUCK: Mutex<bool> = Mutex::new(false);

/// Profiles the whole process for `time`.
pub fn cpu(time: Duration) -> Result<Vec<u8>, Error> {
    if time > LONGEST {
        return Err(Error::TooLong);
    }
    let mut stuck = match STUCK.try_lock() {
        Ok(stuck) => stuck,
        // One that panicked while it encoded has left nothing behind that the next would trip over.
        Err(TryLockError::Poisoned(stuck)) => stuck.into_inner(),
        Err(TryLockError::WouldBlock) => return Err(Error::Busy),
    };
    if *stuck {
        return Err(Error::Stuck);
    }
    let slot = |_| Slot { turn: AtomicU8::new(FREE), stack: CapturedStack::new(STACK) };
    let samples = SAMPLES.get_or_init(|| (0..SLOTS).map(slot).collect());
    let mut stacks = Stacks::new();
    signal::install(libc::SIGPROF, on_signal).map_err(Error::Timer)?;
    ACTIVE.store(true, SeqCst);
    let timed = set_timer(PERIOD);
    if timed.is_ok() {
        let until = Instant::now() + time;
        while Instant::now() < until {
            thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
            stacks.collect(samples);
        }
        set_timer(Duration::ZERO).map_err(Error::Timer)?;
    }
    ACTIVE.store(false, SeqCst);
    let until = Instant::now() + Duration::from_secs(2);
    while INSIDE.load(SeqCst) > 0 {
        if Instant::now() > until {
            *stuck = true;
            return Err(Error::Stuck);
        }
        thread::sleep(Duration::from_millis(1));
    }
    stacks.collect(samples);
    timed.map_err(Error::Timer)?;
    Ok(encoded(stacks.counted))
}

fn set_timer(period: Duration) -> io::Result<()> {
    let period = libc::timeval {
        tv_sec: 0,
        tv_usec: libc::suseconds_t::try_from(period.as_micros()).unwrap_or(0),
    };
    let timer = libc::itimerval { it_interval: period, it_value: period };
    // SAFETY: `timer` is initialised, and the old value is not asked for.
    if unsafe { libc::setitimer(libc::ITIMER_PROF, &timer, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

extern "C" fn on_signal(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    signal::keeping_errno(|| {
        // Entered before looking: whoever switches off and then sees nobody inside is alone.
        INSIDE.fetch_add(1, SeqCst);
        if ACTIVE.load(SeqCst)
            && let Some(samples) = SAMPLES.get()
        {
            let take =
                |slot: &&Slot| slot.turn.compare_exchange(FREE, WRITING, SeqCst, SeqCst).is_ok();
            if let Some(slot) = samples.iter().find(take) {
                // SAFETY: this is the handler, and its context; the slot is ours until we say so.
                unsafe { slot.stack.take(context) };
                slot.turn.store(WRITTEN, SeqCst);
            }
        }
        INSIDE.fetch_sub(1, SeqCst);
    });
}

/// Counts how often each stack was found.
struct Stacks {
    unwinder: Unwinder,
    counted: HashMap<Vec<usize>, u64>,
}

impl Stacks {
    fn new() -> Self {
        Self { unwinder: Unwinder::new(), counted: HashMap::new() }
    }

    fn collect(&mut self, samples: &[Slot]) {
        for slot in samples.iter().filter(|slot| slot.turn.load(SeqCst) == WRITTEN) {
            // SAFETY: written, so no handler's, and there is one profiler.
            let (registers, stack) = unsafe { slot.stack.read() };
            *self.counted.entry(self.unwinder.frames(registers, stack)).or_insert(0) += 1;
            slot.turn.store(FREE, SeqCst);
        }
    }
}

fn encoded(counted: HashMap<Vec<usize>, u64>) -> Vec<u8> {
    let _tables = SymbolTables;
    let stacks = counted.into_iter().map(|(mut addrs, count)| {
        addrs.reverse();
        let weight = (u128::from(count) * PERIOD.as_nanos()) as f64;
        (WeightedStack { addrs, weight }, None)
    });
    let profile = StackProfile {
        annotations: Vec::new(),
        stacks: stacks.collect(),
        mappings: mappings::MAPPINGS.clone().unwrap_or_default(),
    };
    profile.to_pprof(("cpu", "nanoseconds"), ("cpu", "nanoseconds"), None)
}

#[cfg(test)]
mod tests;
