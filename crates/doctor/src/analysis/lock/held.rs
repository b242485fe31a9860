//! The runtime's rules for how a lock is held, and the lines that prove it.

use crate::report::{Held, HeldMode, ResourceKind};

use super::super::queue::Queue;
use super::super::scene::Scene;
use super::super::wait::{LockOp, Wait};

/// The runtime's rules for who holds an RWMutex.
pub(super) fn held(scene: &Scene<'_>, queue: &Queue) -> Held {
    let with = |op: LockOp| {
        queue
            .actors
            .iter()
            .map(|&a| &scene.actors[a as usize])
            .find(|a| scene.facts(a).wait == Wait::Lock(op))
            .map(|a| scene.evidence(a, scene.facts(a).depth.saturating_sub(1)))
    };
    let of = |ops: &[LockOp]| ops.iter().filter_map(|&op| with(op)).collect::<Vec<_>>();
    if queue.kind != ResourceKind::RwMutex {
        return Held {
            mode: HeldMode::Write,
            why: "a mutex has one owner".to_owned(),
            evidence: of(&[LockOp::Mutex]),
        };
    }
    if queue.heads > 1 {
        return Held {
            mode: HeldMode::Unknown,
            why: format!(
                "{} writers wait at the head, and a lock has one head: these are at least {} \
                 locks, of which those are read-held, and this form does not show who waits for \
                 which",
                queue.heads, queue.heads
            ),
            evidence: of(&[LockOp::HeadWrite]),
        };
    }
    if queue.heads == 1 {
        return Held {
            mode: HeldMode::Read,
            why: "a writer is parked in RWMutex.Lock outside lockSlow: it has its turn and waits \
                  for readers to leave"
                .to_owned(),
            evidence: of(&[LockOp::HeadWrite]),
        };
    }
    if !scene.is_complete() {
        return Held {
            mode: HeldMode::Unknown,
            why: "no writer is shown at the head, but the evidence leaves stacks out".to_owned(),
            evidence: of(&[LockOp::Read, LockOp::QueuedWrite]),
        };
    }
    let why = if queue.readers > 0 {
        "readers are parked and no writer waits at the head: a writer has it"
    } else {
        "writers are parked behind another writer, and none waits at the head: a writer has it"
    };
    Held {
        mode: HeldMode::Write,
        why: why.to_owned(),
        evidence: of(&[LockOp::Read, LockOp::QueuedWrite]),
    }
}
