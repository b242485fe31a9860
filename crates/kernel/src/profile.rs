//! Where CPU time goes, as `go tool pprof` and its kin read it (gzipped protobuf).
//!
//! Contract: [`cpu`] blocks its caller for the time asked for, one at a time; others are refused.
//! The kernel signals whichever thread is running each time the process has used another hundredth
//! of a second of CPU; that thread writes its frames into a buffer made beforehand. Samples that no
//! longer fit are dropped, never waited for.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use pprof_util::{StackProfile, WeightedStack};

use crate::signal;

/// Not 100: what happens to run every 10 ms should not fill the profile.
const HERTZ: u32 = 99;
const PERIOD: Duration = Duration::from_nanos(1_000_000_000 / HERTZ as u64);
const LONGEST: Duration = Duration::from_secs(300);
const DEPTH: usize = 128;
/// Words, so 16 MiB of which only what is used is ever touched: some 60,000 samples of usual depth,
/// five minutes with two CPUs fully busy, 20 s with thirty.
const BUFFER: usize = 2 << 20;

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

/// Samples one after another: the number of frames, then the frames, innermost first. Zero where
/// none was written.
static SAMPLES: OnceLock<Box<[AtomicUsize]>> = OnceLock::new();
static NEXT: AtomicUsize = AtomicUsize::new(0);
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// Handlers that are running; what they may write to is not read or cleared before they are done.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// Held for the time of a profile; says whether an earlier one got stuck.
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
    let samples = SAMPLES.get_or_init(|| (0..BUFFER).map(|_| AtomicUsize::new(0)).collect());
    for word in samples.iter().take(NEXT.swap(0, SeqCst)) {
        word.store(0, SeqCst);
    }
    signal::install(libc::SIGPROF, on_signal).map_err(Error::Timer)?;
    ACTIVE.store(true, SeqCst);
    let timed = set_timer(PERIOD);
    if timed.is_ok() {
        thread::sleep(time);
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
    timed.map_err(Error::Timer)?;
    Ok(encoded(samples))
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
            let mut frames = [0; DEPTH];
            let mut depth = 0;
            let keep = |ip| {
                frames.get_mut(depth).is_some_and(|frame| {
                    *frame = ip;
                    depth += 1;
                    true
                })
            };
            // SAFETY: this is the handler, and its context.
            unsafe { signal::unwind(context, keep) };
            write(samples, frames.get(..depth).unwrap_or_default());
        }
        INSIDE.fetch_sub(1, SeqCst);
    });
}

fn write(samples: &[AtomicUsize], frames: &[usize]) {
    let start = NEXT.fetch_add(frames.len() + 1, SeqCst);
    let Some(room) = samples.get(start..start + frames.len() + 1) else {
        return;
    };
    for (word, value) in room.iter().zip(std::iter::once(&frames.len()).chain(frames)) {
        word.store(*value, SeqCst);
    }
}

fn read(samples: &[AtomicUsize]) -> HashMap<Vec<usize>, u64> {
    let mut stacks = HashMap::new();
    let mut words = samples.iter().map(|word| word.load(SeqCst));
    while let Some(depth @ 1..) = words.next() {
        let frames: Vec<usize> = words.by_ref().take(depth).collect();
        *stacks.entry(frames).or_insert(0) += 1;
    }
    stacks
}

fn encoded(samples: &[AtomicUsize]) -> Vec<u8> {
    let stacks = read(samples).into_iter().map(|(mut addrs, count)| {
        // All addresses are taken for return addresses, one past the call; the innermost is not.
        if let Some(innermost) = addrs.first_mut() {
            *innermost += 1;
        }
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
