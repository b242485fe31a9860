//! Thread dumps in, findings out: the same classes, from the same graph of waiters, locks and holders
//! as for goroutines.
//!
//! ```text
//! ThreadDump ─► queues ─► holder (declared, else inferred) ─► cycles ─► findings
//!                  └────► queues that are full, pools that are empty ──────┘
//! ```

mod crowd;
mod cycle;
mod holder;
mod queue;
mod tell;

use rustc_hash::{FxHashMap, FxHashSet};

use super::dump::{Thread, ThreadDump};
use super::wait::Wait;
use crate::analysis::Diagnosis;
use crate::report::{Comparison, Finding, Note, PathCount};

use holder::Holding;
use queue::Queue;

/// Paths listed of those that did not move, or that are parked.
const LISTED: usize = 12;
/// Queues told, and for which a holder is inferred, largest first: a dump may have a lock for each
/// thread, and nobody reads on. What the runtime says of holders is looked at for all.
const MOST_QUEUES: usize = 200;
/// Fewer waiters than this are a moment of any program.
const FEW: usize = 3;

/// Examines thread dumps in the order in which they were taken.
pub(crate) fn diagnose(dumps: &[ThreadDump], diagnosis: &mut Diagnosis) {
    let mut latest: Vec<(usize, Vec<Finding>)> = Vec::new();
    for (d, dump) in dumps.iter().enumerate() {
        diagnosis.notes.extend(dump.gaps.iter().map(|gap| Note {
            text: format!("{}: {gap}", dump.taken_for()),
            input: Some(dump.input.clone()),
        }));
        let known = latest.iter().position(|(earlier, _)| is_same_process(&dumps[*earlier], dump));
        let earlier = known.map(|at| &dumps[latest[at].0]);
        let scene = Scene::new(dump, earlier);
        let findings = scene.findings();
        if let Some(earlier) = earlier {
            diagnosis.comparisons.push(scene.comparison(earlier));
        }
        match known {
            // The later dump knows whether anybody moved.
            Some(at) => latest[at] = (d, findings),
            None => latest.push((d, findings)),
        }
    }
    for (_, findings) in latest {
        diagnosis.findings.extend(findings);
    }
}

/// Whether most threads of the smaller dump are in both, by number and name.
fn is_same_process(a: &ThreadDump, b: &ThreadDump) -> bool {
    let names: FxHashMap<u64, &str> = a.threads.iter().map(|t| (t.id, &*t.name)).collect();
    let both = b.threads.iter().filter(|t| names.get(&t.id) == Some(&&*t.name)).count();
    a.runtime == b.runtime && both > 0 && both * 2 >= a.threads.len().min(b.threads.len())
}

/// A dump with its queues, and what an earlier dump of the process adds.
#[derive(Debug)]
struct Scene<'d> {
    dump: &'d ThreadDump,
    queues: Vec<Queue>,
    holdings: Vec<Holding>,
    /// The queue that a thread waits in.
    waits_in: FxHashMap<u32, usize>,
    /// Queues in which the holder of a larger queue's lock waits.
    links: FxHashSet<usize>,
    earlier: Option<Earlier<'d>>,
}

/// An earlier dump of the same process.
#[derive(Debug)]
struct Earlier<'d> {
    dump: &'d ThreadDump,
    by_id: FxHashMap<u64, &'d Thread>,
    queues: Vec<Queue>,
}

impl<'d> Scene<'d> {
    fn new(dump: &'d ThreadDump, earlier: Option<&'d ThreadDump>) -> Self {
        let queues = queue::queues(dump);
        let holdings = holder::holdings(dump, &queues);
        let mut waits_in: FxHashMap<u32, usize> = FxHashMap::default();
        for (q, queue) in queues.iter().enumerate() {
            waits_in.extend(queue.waiters.iter().map(|&t| (t, q)));
        }
        let large = queues.iter().zip(&holdings).filter(|(q, _)| q.waiters.len() >= FEW);
        let links = large
            .filter_map(|(_, holding)| waits_in.get(&holding.candidates.first()?.thread).copied())
            .collect();
        let earlier = earlier.map(|earlier| Earlier {
            dump: earlier,
            by_id: earlier.threads.iter().map(|t| (t.id, t)).collect(),
            queues: queue::queues(earlier),
        });
        Self { dump, queues, holdings, waits_in, links, earlier }
    }

    fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let cycles = cycle::cycles(self);
        for cycle in &cycles {
            findings.push(tell::cycle(self, cycle));
        }
        let in_cycle = |q: usize| cycles.iter().any(|cycle| cycle.queues.contains(&q));
        for q in (0..self.queues.len().min(MOST_QUEUES)).filter(|&q| !in_cycle(q)) {
            findings.extend(tell::queue(self, q));
        }
        findings.extend(crowd::findings(self));
        findings
    }

    fn threads<'s>(&'s self, queue: &'s Queue) -> impl Iterator<Item = &'d Thread> + use<'s, 'd> {
        queue.waiters.iter().map(|&t| &self.dump.threads[t as usize])
    }

    /// Whether a thread of an earlier dump stands where it stood, and has not run since.
    fn is_unmoved(&self, thread: &Thread) -> bool {
        let Some(earlier) = &self.earlier else { return false };
        let Some(before) = earlier.by_id.get(&thread.id) else { return false };
        let ran =
            before.cpu.zip(thread.cpu).is_some_and(|(then, now)| now.saturating_sub(then) >= 500);
        before.wait == thread.wait && !ran && self.is_same_stack(earlier.dump, before, thread)
    }

    fn is_same_stack(&self, earlier: &ThreadDump, before: &Thread, now: &Thread) -> bool {
        let (a, b) = (earlier.stack(before), self.dump.stack(now));
        a.frames.len() == b.frames.len()
            && a.frames.iter().zip(&b.frames).all(|(x, y)| {
                earlier.text(x.function) == self.dump.text(y.function)
                    && earlier.text(x.place) == self.dump.text(y.place)
            })
    }

    /// Whether the queue is seen to change hands: somebody who waited has had the lock since.
    fn is_moving(&self, q: usize) -> bool {
        let Some(earlier) = &self.earlier else { return false };
        let queue = &self.queues[q];
        let Some(before) =
            earlier.queues.iter().find(|b| b.is_same(earlier.dump, queue, self.dump))
        else {
            return false;
        };
        let now: FxHashMap<u64, &Thread> = self.threads(queue).map(|t| (t.id, t)).collect();
        before.waiters.iter().any(|&t| {
            let then = &earlier.dump.threads[t as usize];
            now.get(&then.id).is_none_or(|thread| !self.is_unmoved(thread))
        })
    }

    /// Whether an earlier dump shows the queue, and nobody has left it.
    fn has_lasted(&self, q: usize) -> bool {
        !self.is_moving(q) && self.threads(&self.queues[q]).any(|t| self.is_unmoved(t))
    }

    fn comparison(&self, earlier: &ThreadDump) -> Comparison {
        let before = self.earlier.as_ref().map_or(0, |e| e.by_id.len()) as u64;
        let known =
            |t: &&Thread| self.earlier.as_ref().is_some_and(|e| e.by_id.contains_key(&t.id));
        let both = self.dump.threads.iter().filter(known).count() as u64;
        let mut stuck_by_stack: FxHashMap<u32, (u64, &Thread)> = FxHashMap::default();
        for thread in self.dump.threads.iter().filter(|t| self.is_unmoved(t)) {
            stuck_by_stack.entry(thread.stack).or_insert((0, thread)).0 += 1;
        }
        let stuck = stuck_by_stack.values().map(|(n, _)| n).sum();
        let mut paths: Vec<(u64, &Thread)> = stuck_by_stack.into_values().collect();
        paths.sort_by_key(|(n, t)| (std::cmp::Reverse(*n), t.line, t.id));
        Comparison {
            first: earlier.input.clone(),
            second: self.dump.input.clone(),
            by_goroutine: true,
            stuck,
            moved: both - stuck,
            arrived: self.dump.threads.len() as u64 - both,
            left: before.saturating_sub(both),
            stuck_paths: paths
                .into_iter()
                .filter(|(_, t)| t.wait != Wait::Idle)
                .take(LISTED)
                .map(|(count, t)| PathCount {
                    count,
                    wants: t.wait.what().to_owned(),
                    frames: tell::path(self.dump, t),
                    evidence: Some(tell::evidence(self.dump, t)),
                })
                .collect(),
        }
    }
}
