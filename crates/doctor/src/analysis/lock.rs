//! Stalls behind locks: each queue is held by somebody, and this says by whom as far as anyone can.

mod deadlock;
mod held;
mod lasting;
mod tell;
mod unite;

pub(super) use tell::waiters;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::report::{Confidence, FaultClass, Finding, Held, Level, ResourceKind, Severity};

use super::compare::Unmoved;
use super::cycle::{Edge, cycles};
use super::holder::{Candidate, Candidates, Index};
use super::owner::Owner;
use super::queue::{Key, Queue, queues};
use super::scene::{Actor, Scene};
use super::wait::Wait;
use crate::words::goroutines;

/// Queues looked at, longest first: beyond these, nobody reads on.
const QUEUES: usize = 256;
/// From here on, a queue is a stall whatever else is seen.
const LONG: u64 = 10;
/// Why a lock without an owner is only perhaps lost.
const MOMENT: &str = "; but one dump of a busy lock may be of the moment between two owners";
/// Call paths and candidates listed.
const LISTED: usize = 12;

/// Everything that is stuck behind locks in one dump.
pub(super) struct Locks<'s, 'd> {
    pub(super) scene: &'s Scene<'d>,
    pub(super) queues: Vec<Queue>,
    pub(super) held: Vec<Held>,
    pub(super) candidates: Vec<Candidates>,
    /// Which queue an actor waits in.
    waits_in: FxHashMap<u32, usize>,
    /// What an earlier dump of the process shows of the same goroutines.
    unmoved: &'s Unmoved,
}

impl<'s, 'd> Locks<'s, 'd> {
    pub(super) fn new(scene: &'s Scene<'d>, unmoved: &'s Unmoved) -> Self {
        let mut queues = queues(scene);
        queues.truncate(QUEUES);
        let mut held: Vec<Held> = queues.iter().map(|q| held::held(scene, q)).collect();
        let index = Index::new(scene, &queues);
        let mut candidates: Vec<Candidates> = queues
            .iter()
            .zip(&held)
            .map(|(queue, held)| index.candidates(scene, queue, held.mode))
            .collect();
        drop_placed(&queues, &mut candidates);
        unite::unite(scene, &mut queues, &mut held, &mut candidates);
        let waits_in = queues
            .iter()
            .enumerate()
            .flat_map(|(q, queue)| queue.actors.iter().map(move |&a| (a, q)))
            .collect();
        Self { scene, queues, held, candidates, waits_in, unmoved }
    }

    /// The findings, in no order.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut told: FxHashSet<usize> = FxHashSet::default();
        let edges = self.edges();
        let stalled = self.stalled(&edges);
        for cycle in cycles(self.queues.len(), &edges) {
            told.extend(cycle.iter().map(|e| e.from));
            findings.push(self.inversion(&cycle));
        }
        for cycle in self.variables_crossed(&told, &stalled) {
            told.extend(cycle.iter().map(|e| e.from));
            findings.push(self.inversion(&cycle));
        }
        for q in (0..self.queues.len()).filter(|q| !told.contains(q)) {
            let (main, extra) = self.queue_findings(q, stalled[q]);
            findings.extend(main);
            findings.extend(extra);
        }
        findings.extend(self.stranded());
        findings
    }

    fn actor(&self, candidate: &Candidate) -> &Actor {
        &self.scene.actors[candidate.actor as usize]
    }

    fn wait(&self, candidate: &Candidate) -> Wait {
        self.scene.facts(self.actor(candidate)).wait
    }

    /// The queue that a candidate waits in itself.
    fn next_queue(&self, candidate: &Candidate) -> Option<usize> {
        self.waits_in.get(&candidate.actor).copied()
    }

    /// Who holds one lock and waits for another: only those seen in a function that takes the first,
    /// or who are the only ones that can have it.
    fn edges(&self) -> Vec<Edge> {
        let mut edges = Vec::new();
        for (from, candidates) in self.candidates.iter().enumerate() {
            for (holder, candidate) in candidates.outside.iter().enumerate() {
                if let Some(to) = self.next_queue(candidate)
                    && to != from
                    && (candidate.takes || (candidates.outside.len() == 1 && !candidate.idle))
                {
                    edges.push(Edge { from, to, holder });
                }
            }
        }
        edges
    }

    /// What a queue by itself shows, and a second finding for a pattern that is only possible.
    fn queue_findings(&self, q: usize, stalled: bool) -> (Option<Finding>, Option<Finding>) {
        let (queue, candidates) = (&self.queues[q], &self.candidates[q]);
        let nested = self.nested(q).filter(|&(_, level)| level <= Level::Likely || stalled);
        if self.is_moving(q) {
            let hot = stalled && queue.total() >= LONG;
            return (hot.then(|| self.hot(q)), None);
        }
        let starved = self.starving(q);
        if let Some((class, level)) = nested
            && starved.is_none()
            && (level <= Level::Likely || self.all_nested(q) || self.only_loops(q))
        {
            return (Some(self.nested_finding(q, class, level)), None);
        }
        let extra = nested
            .filter(|_| starved.is_none())
            .map(|(class, level)| self.nested_pattern(q, class, level));
        if !stalled {
            return (None, extra);
        }
        let best = starved.or(candidates.outside.first());
        if best.is_some_and(|c| !self.wait(c).is_blocked())
            && !self.has_lasted(q)
            && self.next_best_is_running(q)
        {
            return (Some(self.hot(q)), None);
        }
        let mut finding = self.describe(q);
        let ambiguous = queue.instances() > 1;
        let is_site = matches!(queue.owner, Owner::Site { .. });
        let others = candidates.outside.iter().filter(|c| Some(c.actor) != best.map(|b| b.actor));
        finding.holders =
            best.into_iter().chain(others).take(LISTED).map(|c| self.holder(c, c.level)).collect();
        let (class, confidence) = match best {
            _ if candidates.outside.iter().all(|c| c.idle)
                && self.scene.is_complete()
                && !is_site
                && !ambiguous =>
            {
                (
                    FaultClass::LostUnlock,
                    Confidence {
                        level: if self.has_lasted(q) && best.is_none() {
                            Level::Likely
                        } else {
                            Level::Possible
                        },
                        why: format!(
                            "all {} are shown with complete stacks, and {} inside anything that this \
                         lock guards{}",
                            goroutines(self.scene.dump.shown()),
                            if best.is_none() {
                                "none of them is"
                            } else {
                                "only loops that wait for their next work are"
                            },
                            if self.has_lasted(q) { "" } else { MOMENT },
                        ),
                    },
                )
            }
            None => (
                FaultClass::Queue,
                Confidence {
                    level: Level::Likely,
                    why: "the queue is seen; who holds the lock is not".to_owned(),
                },
            ),
            Some(_) if ambiguous => (
                FaultClass::Queue,
                Confidence {
                    level: Level::Likely,
                    why: "the queues are seen; this form shows no addresses, so it cannot be said \
                          which waiter and which candidate belong to the same lock"
                        .to_owned(),
                },
            ),
            Some(best) if best.idle => (
                FaultClass::Queue,
                Confidence {
                    level: Level::Likely,
                    why: "only loops that wait for work are inside what the lock guards: one of \
                          them holds it, or an unlock was missed"
                        .to_owned(),
                },
            ),
            Some(best) => {
                let class = self.counterpart(q, best).map_or_else(
                    || class_of(self.wait(best)),
                    |step| {
                        finding.cycle = step;
                        FaultClass::Deadlock
                    },
                );
                let why = match best.level {
                    Level::Certain | Level::Likely => finding.holders[0].confidence.why.clone(),
                    Level::Possible => "the class follows the first candidate, which is one of \
                                        several or rests on the type alone"
                        .to_owned(),
                };
                (class, Confidence { level: best.level, why })
            }
        };
        let confidence = match best {
            Some(best) if queue.total() == 1 && self.is_wedged(best) => Confidence {
                level: Level::Possible,
                why: "one waiter, and this form does not say since when: it may be a moment's \
                      contention"
                    .to_owned(),
            },
            _ => confidence,
        };
        (finding.class, finding.confidence) = (class, confidence);
        if class == FaultClass::Deadlock {
            finding.severity = finding.severity.min(Severity::Serious);
        }
        if finding.holders.is_empty() {
            finding.no_holder = Some(if is_site {
                "it is no field of the value that the waiters work on, so that nothing shown says \
                 what it guards"
                    .to_owned()
            } else if self.scene.is_complete() {
                "no goroutine is inside anything that this lock guards".to_owned()
            } else {
                format!("the evidence leaves stacks out: {}", self.scene.dump.gaps.join("; "))
            });
        } else if finding.holders[0].confidence.level == Level::Possible {
            finding.no_holder = Some(if candidates.outside[0].exact {
                "the candidates are listed, but none is proven: the first works on the very value \
                 that has the lock, and nothing shown says that it has taken it"
                    .to_owned()
            } else {
                "the candidates are listed, but none is proven: nothing shown ties one of them to \
                 this very lock"
                    .to_owned()
            });
        }
        (Some(self.finish(finding, q)), extra)
    }

    /// Which queues are stalls: those that are by themselves, and those that their holders wait in,
    /// however few they are: the cause of a long queue may be a queue of one.
    fn stalled(&self, edges: &[Edge]) -> Vec<bool> {
        let mut stalled: Vec<bool> = (0..self.queues.len()).map(|q| self.is_stall(q)).collect();
        let mut work: Vec<usize> = (0..stalled.len()).filter(|&q| stalled[q]).collect();
        while let Some(q) = work.pop() {
            for edge in edges.iter().filter(|e| e.from == q) {
                if !std::mem::replace(&mut stalled[edge.to], true) {
                    work.push(edge.to);
                }
            }
        }
        stalled
    }

    /// Whether the queue is more than a moment's contention.
    fn is_stall(&self, q: usize) -> bool {
        let queue = &self.queues[q];
        let candidates = &self.candidates[q].outside;
        let stuck = |c: &Candidate| {
            !c.idle
                && self.wait(c).is_blocked()
                && !matches!(self.wait(c), Wait::Syscall | Wait::Sleep)
        };
        queue.total() >= LONG
            || self.minutes(&queue.actors) > 0
            || self.unmoved(queue) > 0 && !self.is_moving(q)
            || candidates.first().is_some_and(|c| self.counterpart(q, c).is_some())
            || candidates.iter().any(|c| {
                let never = self.wait(c) == Wait::Forever;
                let once = queue.kind == ResourceKind::Once && stuck(c) && self.wait(c) != Wait::Io;
                (never || once) && c.level <= Level::Likely
            })
            || (queue.total() >= 2 && candidates.iter().any(stuck))
            || candidates.first().is_some_and(|c| self.is_wedged(c))
            || (queue.total() >= 3 && candidates.is_empty() && self.scene.is_complete())
    }

    /// Whether the holder waits for a channel's other side. A form without minutes shows a waiter
    /// behind it, and cannot show that it is there for a moment only.
    fn is_wedged(&self, holder: &Candidate) -> bool {
        let plain = matches!(self.wait(holder), Wait::Send | Wait::Receive | Wait::Channel);
        plain && holder.level <= Level::Likely && self.scene.dump.goroutines.is_empty()
    }

    pub(super) fn name(&self, q: usize) -> String {
        let queue = &self.queues[q];
        let owner = queue.owner.short();
        match queue.key {
            Key::Lock(lock) => format!("{owner} ({lock:#x})"),
            Key::Receiver(receiver) => format!("{owner} (of the value at {receiver:#x})"),
            Key::Unknown => owner,
        }
    }

    fn minutes(&self, actors: &[u32]) -> u32 {
        actors.iter().map(|&a| self.scene.actors[a as usize].minutes).max().unwrap_or(0)
    }
}

/// A goroutine that is proven to work on one value is no candidate for its siblings.
fn drop_placed(queues: &[Queue], candidates: &mut [Candidates]) {
    let mut placed: FxHashMap<u32, usize> = FxHashMap::default();
    for (q, found) in candidates.iter().enumerate() {
        for candidate in found.outside.iter().chain(&found.nested).filter(|c| c.exact) {
            placed.insert(candidate.actor, q);
        }
    }
    for (q, found) in candidates.iter_mut().enumerate() {
        found.outside.retain(|c| {
            c.exact || placed.get(&c.actor).is_none_or(|&p| queues[p].owner != queues[q].owner)
        });
    }
}

/// What holding a lock while waiting like this is called.
fn class_of(wait: Wait) -> FaultClass {
    match wait {
        Wait::Lock(_) | Wait::Once => FaultClass::HeldAcrossLock,
        Wait::Io | Wait::Syscall => FaultClass::HeldAcrossIo,
        Wait::Group
        | Wait::Condition
        | Wait::Semaphore
        | Wait::Send
        | Wait::Receive
        | Wait::Select
        | Wait::Channel
        | Wait::Forever => FaultClass::HeldAcrossChannel,
        Wait::Sleep | Wait::Running | Wait::Idle | Wait::Unknown => FaultClass::HeldAcrossWork,
    }
}
