//! A lock whose readers and whose writer take it in methods of different types, by elimination.
//!
//! Somebody is past the readers' `RLock` and still inside, so the lock is read-held; readers queue
//! at a read-held lock only behind a writer at its head. One head writer in the whole dump has
//! nobody else to wait for: it is theirs.

use crate::report::{Held, Level, ResourceKind};

use super::super::holder::Candidates;
use super::super::queue::{Key, Queue};
use super::super::scene::Scene;
use super::held::held;

pub(super) fn unite(
    scene: &Scene<'_>,
    queues: &mut Vec<Queue>,
    helds: &mut Vec<Held>,
    candidates: &mut Vec<Candidates>,
) {
    let is_passed = |found: &Candidates| {
        found.outside.first().is_some_and(|c| c.takes && c.level <= Level::Likely)
    };
    let readers = (0..queues.len())
        .filter(|&q| queues[q].shared && queues[q].heads == 0 && is_passed(&candidates[q]));
    let writers = (0..queues.len()).filter(|&q| {
        queues[q].kind == ResourceKind::RwMutex
            && (queues[q].heads, queues[q].total()) == (1, 1)
            && !matches!(queues[q].key, Key::Lock(_))
            && candidates[q].outside.is_empty()
            && candidates[q].nested.is_empty()
    });
    let (readers, writers): (Vec<usize>, Vec<usize>) = (readers.collect(), writers.collect());
    let (&[reader], &[writer]) = (&*readers, &*writers) else { return };
    if !scene.is_complete() {
        return;
    }
    let head = std::mem::take(&mut queues[writer].actors);
    head.into_iter().for_each(|a| queues[reader].add(scene, a));
    helds[reader] = held(scene, &queues[reader]);
    queues.remove(writer);
    helds.remove(writer);
    candidates.remove(writer);
}
