//! The stacks of all threads of this process, taken by the process itself.
//!
//! Contract: [`stacks`] returns within its time limit whatever the threads are doing. Each thread is
//! asked by a signal to copy its own stack, one thread after the other; frames and their names are
//! looked up afterwards, outside the handler. A thread that does not answer (it is in an uninterruptible call,
//! or blocks signals) is listed with what `/proc` says of it.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::fs;
use std::io;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use crate::captured_stack::CapturedStack;
use crate::signal;
use crate::symbols::SymbolTables;
use crate::unwind::Unwinder;

/// How long one thread may take: a thread that can answer does so in microseconds, and within a few time
/// slices on a machine under full load.
const THREAD_ANSWERS_WITHIN: Duration = Duration::from_millis(100);
/// How much of a stack is copied: in most cases a hundred frames of code that was not optimised.
const STACK: usize = 256 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadStack {
    pub tid: i32,
    pub name: String,
    /// The state as in `/proc`: R runs, S sleeps, D is in an uninterruptible call.
    pub state: char,
    /// The kernel function that the thread sleeps in, where the kernel says so.
    pub wchan: String,
    /// The frames, innermost first; none if the thread did not answer.
    pub frames: Option<Vec<String>>,
}

/// The place where a thread leaves its stack. It is never freed: a signal may arrive at any later time.
struct Slot {
    /// The thread that is asked and the [`Phase`], in one word, so that a late answer cannot pass for that
    /// of the next thread.
    asked: AtomicU64,
    stack: CapturedStack,
}

#[derive(Clone, Copy)]
#[repr(u8)]
enum Phase {
    Asked = 1,
    Writing = 2,
    Written = 3,
}

static SLOT: AtomicPtr<Slot> = AtomicPtr::new(std::ptr::null_mut());
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
static INSTALLED: OnceLock<Result<c_int, io::ErrorKind>> = OnceLock::new();

/// Returns all threads in the order of their ids, within about `timeout`.
pub fn stacks(timeout: Duration) -> io::Result<Vec<ThreadStack>> {
    let until = Instant::now() + timeout;
    let _one = loop {
        match ONE_AT_A_TIME.try_lock() {
            Ok(one) => break one,
            Err(TryLockError::Poisoned(one)) => break one.into_inner(),
            Err(TryLockError::WouldBlock) if Instant::now() >= until => {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(5)),
        }
    };
    let signal = (*INSTALLED.get_or_init(|| {
        // Real-time signals have no meaning of their own; runtimes use the low ones.
        let signal = libc::SIGRTMAX() - 3;
        signal::install(signal, on_signal).map(|()| signal).map_err(|error| error.kind())
    }))?;
    let mut tids: Vec<i32> = fs::read_dir("/proc/self/task")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    tids.sort_unstable();
    let mut unwinder = Unwinder::new();
    let mut taken = Vec::new();
    for tid in tids {
        // Read before the signal disturbs it. A thread that has ended meanwhile is left out.
        if let Some(thread) = described(tid) {
            let within = THREAD_ANSWERS_WITHIN.min(until.saturating_duration_since(Instant::now()));
            let can_answer = !blocks(tid, signal);
            let frames = can_answer.then(|| ask(signal, tid, within, &mut unwinder)).flatten();
            taken.push((thread, frames));
        }
    }
    let _tables = SymbolTables;
    let mut names = Names::default();
    let named = taken.into_iter().map(|(mut thread, frames)| {
        thread.frames = frames.map(|frames| frames.iter().flat_map(|ip| names.of(*ip)).collect());
        thread
    });
    Ok(named.collect())
}

fn described(tid: i32) -> Option<ThreadStack> {
    let read = |file| fs::read_to_string(format!("/proc/self/task/{tid}/{file}"));
    let stat = read("stat").ok()?;
    // The name is in parentheses and may itself contain some.
    let state = stat.rsplit_once(") ")?.1.chars().next()?;
    let name = read("comm").ok()?.trim_end().to_owned();
    Some(ThreadStack { tid, name, state, wchan: read("wchan").unwrap_or_default(), frames: None })
}

/// Whether a thread blocks a signal, as those of libraries do. One that is sent would wait for ever, and whatever
/// waits counts against the user's limit.
fn blocks(tid: i32, signal: c_int) -> bool {
    let status = fs::read_to_string(format!("/proc/self/task/{tid}/status")).unwrap_or_default();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let blocked = blocked.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    blocked.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

fn ask(signal: c_int, tid: i32, within: Duration, unwinder: &mut Unwinder) -> Option<Vec<usize>> {
    let mut slot = SLOT.load(SeqCst);
    if slot.is_null() {
        slot = Box::leak(Box::new(Slot {
            asked: AtomicU64::new(0),
            stack: CapturedStack::new(STACK),
        }));
        SLOT.store(slot, SeqCst);
    }
    // SAFETY: not null, and slots are leaked.
    let slot = unsafe { &*slot };
    let until = Instant::now() + within;
    slot.asked.store(word(tid, Phase::Asked), SeqCst);
    // SAFETY: a plain system call with numbers; a thread that is gone is an error, not a fault.
    if unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal) } != 0 {
        return None;
    }
    while slot.asked.load(SeqCst) != word(tid, Phase::Written) {
        if Instant::now() < until {
            thread::sleep(Duration::from_micros(50));
            continue;
        }
        if slot.asked.compare_exchange(word(tid, Phase::Asked), 0, SeqCst, SeqCst).is_ok() {
            return None;
        }
        if Instant::now() > until + within {
            // Stuck in the handler itself. The slot is its for good, the next thread gets a new one;
            // a thread can be stuck only once, so what is lost is bounded.
            SLOT.store(std::ptr::null_mut(), SeqCst);
            return None;
        }
        thread::sleep(Duration::from_micros(50));
    }
    // SAFETY: written, and nobody is asked before this returns.
    let (registers, stack) = unsafe { slot.stack.read() };
    Some(unwinder.frames(registers, stack))
}

fn word(tid: i32, phase: Phase) -> u64 {
    (tid as u64) << 8 | phase as u64
}

extern "C" fn on_signal(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    signal::keeping_errno(|| {
        // SAFETY: null or leaked.
        let Some(slot) = (unsafe { SLOT.load(SeqCst).as_ref() }) else {
            return;
        };
        // SAFETY: takes nothing and cannot fail.
        let tid = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
        let (asked, writing) = (word(tid, Phase::Asked), word(tid, Phase::Writing));
        if slot.asked.compare_exchange(asked, writing, SeqCst, SeqCst).is_err() {
            return;
        }
        // SAFETY: this is the handler, and its context; the slot is this thread's until it says so.
        unsafe { slot.stack.take(context) };
        slot.asked.store(word(tid, Phase::Written), SeqCst);
    });
}

/// Looks up the names of frames. Many threads stand in the same places; each place is looked up once.
#[derive(Default)]
struct Names(HashMap<usize, Vec<String>>);

impl Names {
    /// An address has several names where the compiler has inlined.
    fn of(&mut self, ip: usize) -> Vec<String> {
        let named = self.0.entry(ip).or_insert_with(|| {
            let mut names = Vec::new();
            backtrace::resolve(ip as *mut c_void, |symbol| {
                let Some(name) = symbol.name() else { return };
                let place = match (symbol.filename(), symbol.lineno()) {
                    (Some(file), Some(line)) => format!(" at {}:{line}", file.display()),
                    _ => String::new(),
                };
                names.push(format!("{name:#}{place}"));
            });
            if names.is_empty() {
                names.push(format!("{ip:#x}"));
            }
            names
        });
        named.clone()
    }
}

impl fmt::Display for ThreadStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tid, name, state, wchan, frames } = self;
        writeln!(f, "thread {tid} {name:?} state {state} wchan {wchan}")?;
        match frames {
            Some(frames) => frames.iter().try_for_each(|frame| writeln!(f, "    {frame}")),
            None => writeln!(f, "    did not answer"),
        }
    }
}

#[cfg(test)]
mod tests;
