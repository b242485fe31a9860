//! Locks that are no field of the receiver: all that names them is the function that takes them.
//!
//! Addresses say so in two ways. Waiters at one line show many locks, none inside its receiver, one
//! waiter each: locks of something else, which belong into one finding. Or readers at one line have
//! many receivers and show no lock, and nobody else works on any of those receivers: then each
//! would have to be write-held by nobody, so that they share one lock.

use rustc_hash::{FxHashMap, FxHashSet};

use super::owner::Owner;
use super::scene::{Actor, Scene};
use super::wait::{LockOp, Wait};

/// Waiters at one line from which on a coincidence is ruled out.
const SEVERAL: usize = 3;
/// No Go value that has a lock is larger.
const LARGEST: u64 = 1 << 20;

/// Waiters for locks that only their site names.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) owner: Owner,
    pub(super) actors: Vec<u32>,
    /// How many locks.
    pub(super) locks: u64,
    /// They are taken to wait for one lock, because they have nothing else in common.
    pub(super) shared: bool,
}

/// The offset of a lock in the value that has it.
pub(super) fn offset(lock: u64, receiver: u64) -> Option<u64> {
    lock.checked_sub(receiver).filter(|&offset| lock != 0 && offset < LARGEST)
}

/// Takes such waiters out of `actors`.
pub(super) fn apart(scene: &Scene<'_>, actors: &mut Vec<u32>) -> Vec<Site> {
    let mut by_line: FxHashMap<(u32, u32), Vec<u32>> = FxHashMap::default();
    for &a in actors.iter() {
        let actor = &scene.actors[a as usize];
        let site = scene.facts(actor).place.as_ref().map_or(0, |p| p.site);
        if let Some(frame) = scene.stack(actor).frames.get(site)
            && actor.example.is_some()
        {
            by_line.entry((frame.function, frame.source)).or_default().push(a);
        }
    }
    by_line.retain(|_, members| members.len() >= SEVERAL);
    let mut sites = Vec::new();
    for ((function, _), members) in by_line {
        let (locks, shared) = if are_foreign(scene, &members) {
            (members.len() as u64, false)
        } else if share_one(scene, &members) {
            (1, true)
        } else {
            continue;
        };
        let owner = Owner::Site { symbol: scene.dump.function(function).to_owned() };
        actors.retain(|a| !members.contains(a));
        sites.push(Site { owner, actors: members, locks, shared });
    }
    sites
}

/// Whether each waits alone for a lock that its receiver does not have.
fn are_foreign(scene: &Scene<'_>, members: &[u32]) -> bool {
    let actors = || members.iter().map(|&a| &scene.actors[a as usize]);
    let locks: FxHashSet<u64> = actors().map(|a| a.lock).collect();
    locks.len() == members.len()
        && actors().all(|a| {
            let inside = |r: u64| offset(a.lock, r).is_some();
            a.lock != 0 && a.count == 1 && !receiver(scene, a).is_some_and(inside)
        })
}

fn share_one(scene: &Scene<'_>, members: &[u32]) -> bool {
    let reads = |a: &Actor| scene.facts(a).wait == Wait::Lock(LockOp::Read) && a.lock == 0;
    let mut receivers: FxHashSet<u64> = FxHashSet::default();
    for &a in members {
        let actor = &scene.actors[a as usize];
        let Some(receiver) = receiver(scene, actor).filter(|_| reads(actor)) else { return false };
        receivers.insert(receiver);
    }
    let own: FxHashSet<u32> = members.iter().copied().collect();
    let mut others = (0u32..).zip(&scene.actors).filter(|(a, _)| !own.contains(a));
    receivers.len() >= SEVERAL
        && !others.any(|(_, other)| {
            scene.receivers(other).iter().any(|r| receivers.contains(&r.address()))
        })
}

/// The value that would have the lock, where it is shown for certain.
fn receiver(scene: &Scene<'_>, actor: &Actor) -> Option<u64> {
    let frame = scene.facts(actor).place.as_ref()?.owner_frame;
    let shown = scene.receivers(actor).iter();
    shown.into_iter().find(|r| r.frame() == frame && r.exact()).map(|r| r.address())
}
