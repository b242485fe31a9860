//! Faults, for tests and replays: a part of the ingest hangs until it is let go, or panics; the wall clock
//! jumps. Not in a build that serves anybody (feature `faults`).

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use parking_lot::{Condvar, Mutex};

/// The parts that hang. Written by tests, read by every part before it works.
static HELD: Mutex<Vec<Part>> = Mutex::new(Vec::new());
static CHANGED: Condvar = Condvar::new();
/// The parts that panic when they next work.
static BROKEN: Mutex<Vec<Part>> = Mutex::new(Vec::new());
/// How far the wall clock is off, in milliseconds. Written by tests, read with the clock.
static OFF: AtomicI64 = AtomicI64::new(0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Shard(usize),
    Learner,
    Writer,
}

/// While it is kept, the part hangs.
#[derive(Debug)]
#[must_use]
pub struct Hold(Part);

/// The owner of a shard hangs before its next piece of work.
pub fn hold_shard(number: usize) -> Hold {
    hold(Part::Shard(number))
}

/// The owner of learned rules and violations hangs.
pub fn hold_learner() -> Hold {
    hold(Part::Learner)
}

/// The disk hangs when a checkpoint is written.
pub fn hold_writer() -> Hold {
    hold(Part::Writer)
}

/// The owner of a shard panics in its next piece of work.
pub fn break_shard(number: usize) {
    BROKEN.lock().push(Part::Shard(number));
}

/// While it is kept, the wall clock is off.
#[derive(Debug)]
#[must_use]
pub struct Jump(i64);

/// The wall clock jumps by so many milliseconds, and back when that is dropped.
pub fn jump_clock(by: i64) -> Jump {
    OFF.fetch_add(by, Relaxed);
    Jump(by)
}

impl Drop for Jump {
    fn drop(&mut self) {
        OFF.fetch_sub(self.0, Relaxed);
    }
}

pub(crate) fn jumped(clock: u64) -> u64 {
    clock.saturating_add_signed(OFF.load(Relaxed))
}

fn hold(part: Part) -> Hold {
    HELD.lock().push(part);
    Hold(part)
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = HELD.lock();
        if let Some(place) = held.iter().position(|part| *part == self.0) {
            held.swap_remove(place);
        }
        CHANGED.notify_all();
    }
}

pub(crate) fn pass(part: Part) {
    let mut broken = BROKEN.lock();
    if let Some(place) = broken.iter().position(|other| *other == part) {
        broken.swap_remove(place);
        drop(broken);
        panic!("a fault");
    }
    drop(broken);
    let mut held = HELD.lock();
    while held.contains(&part) {
        CHANGED.wait(&mut held);
    }
}
