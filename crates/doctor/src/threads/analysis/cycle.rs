//! Threads that wait for each other in a ring.

use super::super::wait::{Lock, Wait};
use super::holder::Candidate;
use super::{FEW, MOST_QUEUES, Scene};
use crate::report::Level;

/// A longer ring nobody would find by hand either; the search is bounded by it.
const LONGEST: usize = 8;
/// Candidates followed of one lock.
const FOLLOWED: usize = 4;

/// Rings told: a dump of a program in such a state says no more after these.
const MOST: usize = 32;
/// Locks looked at in the whole search, so that its time is bounded whatever the dump.
const VISITS: u32 = 400_000;

/// A ring of locks and of the threads that hold them.
#[derive(Debug)]
pub(super) struct Cycle {
    /// The queues of its locks.
    pub(super) queues: Vec<usize>,
    /// Each holds the lock of its queue and waits for that of the next.
    pub(super) steps: Vec<(usize, Candidate)>,
    pub(super) level: Level,
}

/// The rings of a dump, each once.
pub(super) fn cycles(scene: &Scene<'_>) -> Vec<Cycle> {
    let mut visits = VISITS;
    let mut found: Vec<Cycle> = Vec::new();
    for start in 0..scene.queues.len() {
        if found.iter().any(|c| c.queues.contains(&start)) {
            continue;
        }
        let mut steps = Vec::new();
        if found.len() >= MOST || !walk(scene, start, start, &mut steps, &mut visits) {
            continue;
        }
        let mut queues: Vec<usize> = steps.iter().map(|(q, _)| *q).collect();
        let largest = queues.iter().map(|&q| scene.queues[q].waiters.len()).max();
        let sure = queues.iter().all(|&q| scene.queues[q].is_sure);
        // Where the form does not say that they wait for locks, a crowd must.
        if !sure && largest <= Some(FEW) {
            continue;
        }
        let level = steps.iter().map(|(_, c)| c.level).max().unwrap_or_default();
        let owners: Vec<&str> = queues.iter().map(|&q| scene.queues[q].owner.as_str()).collect();
        // Queues at other lines of the same locks belong to it too.
        let more = (0..scene.queues.len())
            .filter(|q| {
                !scene.queues[*q].is_sure && owners.contains(&scene.queues[*q].owner.as_str())
            })
            .filter(|q| !queues.contains(q))
            .collect::<Vec<_>>();
        queues.extend(more);
        found.push(Cycle { queues, steps, level });
    }
    found.extend(upgrades(scene, &found));
    found
}

/// Follows holders from lock to lock until the first comes again. Depth is bounded, and at each step
/// so are the candidates; a queue is entered once.
fn walk(
    scene: &Scene<'_>,
    start: usize,
    at: usize,
    steps: &mut Vec<(usize, Candidate)>,
    visits: &mut u32,
) -> bool {
    if steps.len() >= LONGEST || *visits == 0 {
        return false;
    }
    *visits -= 1;
    for candidate in scene.holdings[at].candidates.iter().take(FOLLOWED) {
        let Some(&next) = scene.waits_in.get(&candidate.thread) else { continue };
        let is_same = |a: usize, b: usize| {
            a == b || (!scene.queues[a].is_sure && scene.queues[a].owner == scene.queues[b].owner)
        };
        let thread = &scene.dump.threads[candidate.thread as usize];
        // Where the form does not say that it waits for a lock, it must have gone on from inside.
        let stands = candidate.frame <= scene.dump.stack(thread).depth;
        if !scene.queues[next].is_sure && stands {
            continue;
        }
        if next == at
            || scene.queues[next].owner == scene.queues[at].owner
            || steps.iter().any(|(q, _)| *q != start && is_same(*q, next))
        {
            continue;
        }
        steps.push((at, candidate.clone()));
        if is_same(next, start) || walk(scene, start, next, steps, visits) {
            return true;
        }
        steps.pop();
    }
    false
}

/// Threads that wait for a lock inside another function that has it: by a lock that is no reentrant
/// one, or from reading to writing.
fn upgrades(scene: &Scene<'_>, known: &[Cycle]) -> Vec<Cycle> {
    let mut found = Vec::new();
    for (q, queue) in scene.queues.iter().enumerate().take(MOST_QUEUES) {
        let holding = &scene.holdings[q];
        if known.iter().any(|c| c.queues.contains(&q)) || holding.nested.len() != 1 {
            continue;
        }
        // Java's locks are taken again by whoever has them; only a reader cannot become a writer.
        let java = scene.dump.runtime == super::super::dump::Runtime::Java;
        let inner = &holding.nested[0];
        let thread = &scene.dump.threads[inner.thread as usize];
        if java && thread.wait != Wait::Lock(Lock::Write) {
            continue;
        }
        let blocked_outside = holding
            .candidates
            .iter()
            .any(|c| scene.dump.threads[c.thread as usize].wait != Wait::Running);
        if blocked_outside || (!queue.is_sure && queue.waiters.len() <= FEW) {
            continue;
        }
        found.push(Cycle { queues: vec![q], steps: vec![(q, inner.clone())], level: inner.level });
    }
    found
}
