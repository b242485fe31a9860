//! Stalls behind locks: each queue is held by somebody, and this says by whom as far as anyone can.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::goroutine::{Form, Name};
use crate::report::{
    Blast, Confidence, CycleStep, EntryCount, EntryKind, FaultClass, Finding, Held, HeldMode,
    Holder, Level, PathCount, Resource, ResourceKind, Severity, Since, Waiters,
};

use super::cycle::{Edge, cycles};
use super::entry::Entry;
use super::holder::{Candidate, Candidates, Index, address};
use super::owner::Owner;
use super::queue::{Key, Queue, queues};
use super::remedy::remedy;
use super::scene::{Actor, Scene};
use super::wait::{LockOp, Wait};
use super::words::{goroutines, thousands};

/// Queues looked at, longest first: beyond these, nobody reads on.
const QUEUES: usize = 256;
/// From here on, a queue is a stall whatever else is seen.
const LONG: u64 = 10;
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
    /// Goroutines that an earlier dump shows in the same place.
    unmoved: &'s FxHashSet<u64>,
}

impl<'s, 'd> Locks<'s, 'd> {
    pub(super) fn new(scene: &'s Scene<'d>, unmoved: &'s FxHashSet<u64>) -> Self {
        let mut queues = queues(scene);
        queues.truncate(QUEUES);
        let held: Vec<Held> = queues.iter().map(|q| held(scene, q)).collect();
        let index = Index::new(scene, &queues);
        let mut candidates: Vec<Candidates> = queues
            .iter()
            .zip(&held)
            .map(|(queue, held)| index.candidates(scene, queue, held.mode))
            .collect();
        drop_placed(&queues, &mut candidates);
        let waits_in = queues
            .iter()
            .enumerate()
            .flat_map(|(q, queue)| queue.actors.iter().map(move |&a| (a, q)))
            .collect();
        Self {
            scene,
            queues,
            held,
            candidates,
            waits_in,
            unmoved,
        }
    }

    /// The findings, in no order.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut told: FxHashSet<usize> = FxHashSet::default();
        let edges = self.edges();
        for cycle in cycles(self.queues.len(), &edges) {
            told.extend(cycle.iter().map(|e| e.from));
            findings.push(self.inversion(&cycle));
        }
        let stalled = self.stalled(&edges);
        for q in (0..self.queues.len()).filter(|q| !told.contains(q)) {
            let (main, extra) = self.queue_findings(q, stalled[q]);
            findings.extend(main);
            findings.extend(extra);
        }
        findings.extend(self.stranded());
        findings
    }

    /// Goroutines that can never leave a function that takes a lock: nobody waits for it yet.
    fn stranded(&self) -> Vec<Finding> {
        let mut told: FxHashSet<u32> = FxHashSet::default();
        let mut findings = Vec::new();
        for (q, candidates) in self.candidates.iter().enumerate() {
            let strays = candidates
                .outside
                .iter()
                .filter(|c| c.takes && c.level == Level::Possible && self.wait(c) == Wait::Forever);
            for candidate in strays {
                if !told.insert(candidate.actor) || self.queues[q].kind == ResourceKind::Once {
                    continue;
                }
                let actor = self.actor(candidate);
                let frame = self.scene.symbol(actor, candidate.frame);
                let owner = &self.queues[q].owner;
                let mut resource = resource(self.scene, &self.queues[q]);
                (resource.address, resource.field) = (None, None);
                let mut holder = self.holder(candidate, Level::Likely);
                holder.confidence.why =
                    format!("it can never leave {frame}, a function that takes such a lock");
                let evidence = holder.evidence.iter().cloned().collect();
                let labels = self.scene.stack(actor).labels.as_ref();
                findings.push(Finding {
                    id: format!("stranded:{}", Name::short(frame)).to_lowercase(),
                    class: FaultClass::HeldAcrossChannel,
                    severity: Severity::Minor,
                    title: format!(
                        "{} can never proceed while inside a lock of {}",
                        goroutines(actor.count),
                        owner.short()
                    ),
                    resource,
                    confidence: holder.confidence.clone(),
                    holders: vec![holder],
                    remedy: remedy(FaultClass::HeldAcrossChannel).to_owned(),
                    evidence,
                    details: labels.map(|l| format!("labels: {l}")).into_iter().collect(),
                    ..Finding::default()
                });
            }
        }
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

    fn edges(&self) -> Vec<Edge> {
        let mut edges = Vec::new();
        for (from, candidates) in self.candidates.iter().enumerate() {
            for (holder, candidate) in candidates.outside.iter().enumerate() {
                if let Some(to) = self.next_queue(candidate)
                    && to != from
                    && !candidate.idle
                {
                    edges.push(Edge { from, to, holder });
                }
            }
        }
        edges
    }

    /// A cycle over locks.
    fn inversion(&self, cycle: &[Edge]) -> Finding {
        let scene = self.scene;
        let top = cycle
            .iter()
            .map(|e| e.from)
            .max_by_key(|&q| self.queues[q].total())
            .unwrap_or_default();
        let mut finding = self.describe(top);
        finding.class = FaultClass::LockOrderInversion;
        finding.severity = finding.severity.min(Severity::Serious);
        let holder_of = |e: &Edge| &self.candidates[e.from].outside[e.holder];
        finding.cycle = cycle
            .iter()
            .map(|edge| {
                let candidate = holder_of(edge);
                let actor = self.actor(candidate);
                let site = scene.facts(actor).place.as_ref().map_or(0, |p| p.site);
                CycleStep {
                    goroutine: scene.number(actor),
                    holds: self.name(edge.from),
                    waits_for: self.name(edge.to),
                    frame: scene.symbol(actor, site).to_owned(),
                    evidence: Some(scene.evidence(actor, site)),
                }
            })
            .collect();
        let only = |e: &Edge| {
            let locked = self.candidates[e.from]
                .outside
                .iter()
                .filter(|c| self.next_queue(c).is_some())
                .count();
            locked == 1 && holder_of(e).takes
        };
        let (level, why) = if cycle.iter().all(|e| holder_of(e).exact) {
            (
                Level::Certain,
                "every step of the cycle is proven by exact addresses",
            )
        } else if cycle.iter().all(|e| only(e) || holder_of(e).exact) {
            (
                Level::Likely,
                "each of these goroutines is inside a function that takes the one lock while it \
                 waits for the other, and no other lock waiter fits",
            )
        } else {
            (
                Level::Possible,
                "each of these goroutines is inside what the one lock guards while it waits for \
                 the other; addresses do not prove that it is the same lock",
            )
        };
        finding.confidence = Confidence {
            level,
            why: why.to_owned(),
        };
        finding.holders = cycle
            .iter()
            .filter(|e| e.from == top)
            .map(|e| self.holder(holder_of(e), level))
            .collect();
        finding.no_holder = None;
        for edge in cycle.iter().filter(|e| e.from != top) {
            let other = self.waiters(&self.queues[edge.from].actors);
            finding.blast_radius.push(Blast {
                what: format!("the queue of {}", self.name(edge.from)),
                count: other.total,
                why: "its lock is part of the cycle".to_owned(),
            });
        }
        let locks: Vec<String> = cycle.iter().map(|e| self.name(e.from)).collect();
        finding.title = format!(
            "deadlock: {} are taken in opposite orders",
            locks.join(" and ")
        );
        finding.id = format!("cycle:{}", locks.join("+"));
        self.finish(finding, top)
    }

    /// What a queue by itself shows, and a second finding for a pattern that is only possible.
    fn queue_findings(&self, q: usize, stalled: bool) -> (Option<Finding>, Option<Finding>) {
        let (queue, candidates) = (&self.queues[q], &self.candidates[q]);
        let nested = self.nested(q);
        if let Some((class, level)) = nested
            && (level <= Level::Likely || self.all_nested(q))
        {
            return (Some(self.nested_finding(q, class, level)), None);
        }
        let extra = nested.map(|(class, level)| {
            let mut finding = self.nested_finding(q, class, level);
            finding.id.push_str("/nested");
            finding
        });
        if !stalled {
            return (None, extra);
        }
        let mut finding = self.describe(q);
        let best = candidates.outside.first();
        let ambiguous = queue.instances() > 1;
        finding.holders = candidates
            .outside
            .iter()
            .take(LISTED)
            .map(|c| self.holder(c, c.level))
            .collect();
        let (class, confidence) = match best {
            None if self.scene.is_complete() => (
                FaultClass::LostUnlock,
                Confidence {
                    level: if queue.total() >= LONG || self.minutes(&queue.actors) > 0 {
                        Level::Likely
                    } else {
                        Level::Possible
                    },
                    why: format!(
                        "all {} are shown with complete stacks, and none of them is inside \
                         anything that this lock guards",
                        goroutines(self.scene.dump.shown())
                    ),
                },
            ),
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
                (
                    class,
                    Confidence {
                        level: best.level,
                        why,
                    },
                )
            }
        };
        (finding.class, finding.confidence) = (class, confidence);
        if finding.holders.is_empty() {
            finding.no_holder = Some(if self.scene.is_complete() {
                "no goroutine is inside anything that this lock guards".to_owned()
            } else {
                format!(
                    "the evidence leaves stacks out: {}",
                    self.scene.dump.gaps.join("; ")
                )
            });
        } else if finding.holders[0].confidence.level == Level::Possible {
            finding.no_holder = Some(
                "the candidates are listed, but none is proven: nothing shown ties one of them to \
                 this very lock"
                    .to_owned(),
            );
        }
        (Some(self.finish(finding, q)), extra)
    }

    /// Whether waiters hold what they wait for, and how sure that is.
    fn nested(&self, q: usize) -> Option<(FaultClass, Level)> {
        let (queue, candidates) = (&self.queues[q], &self.candidates[q]);
        let op = |c: &Candidate| match self.wait(c) {
            Wait::Lock(op) => Some(op),
            _ => None,
        };
        let proven = |c: &Candidate| c.exact && queue.key != Key::Unknown;
        let alone = candidates.outside.is_empty()
            && self.scene.is_complete()
            && queue.instances() == 1
            && !queue.assumed;
        let level = |c: &Candidate| {
            if proven(c) || (alone && queue.key != Key::Unknown) {
                Level::Likely
            } else {
                Level::Possible
            }
        };
        let reads = |c: &&Candidate| op(c) == Some(LockOp::Read) && queue.heads > 0;
        let best = |found: &mut dyn Iterator<Item = &Candidate>| found.map(level).min();
        if let Some(level) = best(&mut candidates.nested.iter().filter(reads)) {
            return Some((FaultClass::RecursiveReadLock, level));
        }
        let upgrades = |c: &&Candidate| op(c) == Some(LockOp::HeadWrite);
        if let Some(level) = best(&mut candidates.nested.iter().filter(upgrades)) {
            return Some((FaultClass::SelfDeadlock, level));
        }
        let locks = |c: &&Candidate| matches!(op(c), Some(LockOp::Mutex | LockOp::QueuedWrite));
        let mut locking = candidates.nested.iter().filter(locks);
        if locking.clone().any(proven) {
            return Some((FaultClass::SelfDeadlock, Level::Likely));
        }
        let first = locking.next()?;
        let another = locking.any(|c| self.actor(c).stack != self.actor(first).stack);
        match queue.key {
            // Without addresses, nesting in one type is an inversion or a recursion.
            Key::Unknown if another => Some((FaultClass::LockOrderInversion, Level::Possible)),
            Key::Unknown | Key::Receiver(_) if !another => {
                Some((FaultClass::SelfDeadlock, Level::Possible))
            }
            Key::Lock(_) if candidates.outside.is_empty() => {
                Some((FaultClass::SelfDeadlock, level(first)))
            }
            _ => None,
        }
    }

    fn all_nested(&self, q: usize) -> bool {
        let nested: u64 = self.candidates[q]
            .nested
            .iter()
            .map(|c| self.actor(c).count)
            .sum();
        nested == self.queues[q].total()
    }

    fn nested_finding(&self, q: usize, class: FaultClass, level: Level) -> Finding {
        let scene = self.scene;
        let queue = &self.queues[q];
        let mut finding = self.describe(q);
        finding.class = class;
        finding.severity = finding.severity.min(Severity::Serious);
        let name = self.name(q);
        let nested = &self.candidates[q].nested;
        let why = match (class, level) {
            (FaultClass::RecursiveReadLock, Level::Certain | Level::Likely) => {
                "a reader waits behind the head writer, and an outer frame of the same goroutine \
                 is inside the same value, which is read-held"
            }
            (FaultClass::RecursiveReadLock, Level::Possible) => {
                "a reader waits under an outer frame of the lock's own type while a writer waits \
                 at the head; this form does not show that both work on the same value"
            }
            (FaultClass::LockOrderInversion, _) => {
                "each waiter is inside one lock of this type and waits for another, or for the \
                 same; this form shows no addresses to tell"
            }
            (_, Level::Certain | Level::Likely) => {
                "an outer frame of the waiting goroutine is inside the same value"
            }
            _ => "a waiter is inside a lock of this type already; addresses do not show which",
        };
        finding.confidence = Confidence {
            level,
            why: why.to_owned(),
        };
        finding.holders = nested
            .iter()
            .take(LISTED)
            .map(|c| self.holder(c, level))
            .collect();
        finding.title = match class {
            FaultClass::RecursiveReadLock => {
                format!("{name} is read-locked again by a reader while a writer waits")
            }
            FaultClass::LockOrderInversion => {
                format!("locks of {name} are taken one inside the other")
            }
            _ => format!("{name} is locked again by the goroutine that holds it"),
        };
        if level == Level::Possible {
            // Of those that cannot be told apart, these are the pattern.
            let mut members: Vec<u32> = nested.iter().map(|c| c.actor).collect();
            members.extend(queue.actors.iter().filter(|&&a| {
                scene.facts(&scene.actors[a as usize]).wait == Wait::Lock(LockOp::HeadWrite)
            }));
            members.sort_unstable();
            members.dedup();
            finding.waiters = self.waiters(&members);
            finding.severity = Severity::Serious;
        }
        if class == FaultClass::RecursiveReadLock {
            let head = queue
                .actors
                .iter()
                .map(|&a| &scene.actors[a as usize])
                .find(|a| scene.facts(a).wait == Wait::Lock(LockOp::HeadWrite));
            let writer = head.map(|actor| CycleStep {
                goroutine: scene.number(actor),
                holds: format!("the turn to write {name}"),
                waits_for: format!("the readers of {name} to leave"),
                frame: scene.symbol(actor, scene.facts(actor).depth).to_owned(),
                evidence: Some(scene.evidence(actor, scene.facts(actor).depth)),
            });
            let reader = nested.first().map(|c| {
                let actor = self.actor(c);
                let depth = scene.facts(actor).depth;
                CycleStep {
                    goroutine: scene.number(actor),
                    holds: format!("{name} for reading, in {}", scene.symbol(actor, c.frame)),
                    waits_for: format!("{name} for reading again, behind the writer"),
                    frame: scene.symbol(actor, depth).to_owned(),
                    evidence: Some(scene.evidence(actor, depth)),
                }
            });
            finding.cycle = reader.into_iter().chain(writer).collect();
        }
        self.finish(finding, q)
    }

    /// A waiter of the lock that the holder waits for: through a wait group, or a channel's loop.
    fn counterpart(&self, q: usize, holder: &Candidate) -> Option<Vec<CycleStep>> {
        let scene = self.scene;
        let held_by = self.actor(holder);
        let stack = scene.stack(held_by);
        let wait = self.wait(holder);
        if wait != Wait::Group {
            return None;
        }
        let number = scene.number(held_by);
        let own: FxHashSet<u32> = stack.frames.iter().map(|f| f.function).collect();
        let waiter = self.queues[q]
            .actors
            .iter()
            .map(|&a| &scene.actors[a as usize])
            .find(|a| match (scene.parent(a), number) {
                (Some(parent), Some(number)) => parent == number,
                _ => scene.stack(a).created_by.is_some_and(|f| own.contains(&f)),
            })?;
        let name = self.name(q);
        let step = |actor: &Actor, frame: usize, holds: String, waits_for: String| CycleStep {
            goroutine: scene.number(actor),
            holds,
            waits_for,
            frame: scene.symbol(actor, frame).to_owned(),
            evidence: Some(scene.evidence(actor, frame)),
        };
        let depth = scene.facts(waiter).depth;
        Some(vec![
            step(
                held_by,
                holder.frame,
                name.clone(),
                "its wait group".to_owned(),
            ),
            step(waiter, depth, "the wait group".to_owned(), name),
        ])
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
            || self.unmoved(queue) > 0
            || candidates.iter().any(|c| {
                let never = self.wait(c) == Wait::Forever;
                let once = queue.kind == ResourceKind::Once && stuck(c) && self.wait(c) != Wait::Io;
                (never || once) && c.level <= Level::Likely
            })
            || (queue.total() >= 2 && candidates.iter().any(stuck))
            || (queue.total() >= 3 && candidates.is_empty() && self.scene.is_complete())
    }

    /// How many waiters an earlier dump shows in the same place.
    fn unmoved(&self, queue: &Queue) -> usize {
        if self.unmoved.is_empty() {
            return 0;
        }
        let stacks: FxHashSet<(u32, u64)> = queue
            .actors
            .iter()
            .map(|&a| &self.scene.actors[a as usize])
            .map(|a| (a.stack, a.lock))
            .collect();
        let goroutines = &self.scene.dump.goroutines;
        goroutines
            .iter()
            .filter(|g| self.unmoved.contains(&g.id) && stacks.contains(&(g.stack, g.lock)))
            .count()
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

    /// Everything about a queue but its cause.
    fn describe(&self, q: usize) -> Finding {
        let (queue, held) = (&self.queues[q], &self.held[q]);
        let waiters = self.waiters(&queue.actors);
        let resource = resource(self.scene, queue);
        let kind = match queue.kind {
            ResourceKind::Mutex => "mutex",
            ResourceKind::Once => "sync.Once",
            _ => "RWMutex",
        };
        let mode = match held.mode {
            _ if queue.kind == ResourceKind::Once => "",
            HeldMode::Read => ", which is read-held",
            HeldMode::Write if queue.kind == ResourceKind::RwMutex => ", which is write-held",
            _ => "",
        };
        let verb = if waiters.total == 1 { "waits" } else { "wait" };
        Finding {
            id: format!("{kind}:{}", self.name(q))
                .to_lowercase()
                .replace(' ', "_"),
            title: format!(
                "{} {verb} for the {kind} of {}{mode}",
                goroutines(waiters.total),
                self.name(q)
            ),
            severity: self.severity(&waiters),
            resource,
            held: (queue.kind != ResourceKind::Once).then(|| held.clone()),
            since: self.since(&queue.actors),
            evidence: waiters
                .by_path
                .iter()
                .take(3)
                .filter_map(|p| p.evidence.clone())
                .collect(),
            waiters,
            ..Finding::default()
        }
    }

    fn severity(&self, waiters: &Waiters) -> Severity {
        let shown = self.scene.dump.shown().max(1);
        let served = |kind| matches!(kind, EntryKind::Grpc | EntryKind::Http | EntryKind::Webhook);
        let requests: u64 = waiters
            .by_entry
            .iter()
            .filter(|e| served(e.kind))
            .map(|e| e.count)
            .sum();
        if waiters.total >= 1000
            || requests >= LONG
            || (waiters.total >= LONG && waiters.total * 2 >= shown)
        {
            Severity::Critical
        } else if waiters.total >= LONG {
            Severity::Serious
        } else {
            Severity::Minor
        }
    }

    /// What follows from the class: remedy, what to collect, who else is held up.
    fn finish(&self, mut finding: Finding, q: usize) -> Finding {
        finding.remedy = remedy(finding.class).to_owned();
        let (blast, worst) = self.blast(q);
        finding.blast_radius.extend(blast);
        finding.severity = finding.severity.min(worst);
        let unmoved = self.unmoved(&self.queues[q]);
        if unmoved > 0 {
            finding.details.push(format!(
                "{} of them stood in the same place in the earlier dump",
                thousands(unmoved as u64)
            ));
        }
        let form = self.scene.dump.form;
        let has_addresses = matches!(form, Form::Debug2 | Form::Debug2Reversed);
        let sure = finding.confidence.level <= Level::Likely
            && finding
                .holders
                .first()
                .is_some_and(|h| h.confidence.level <= Level::Likely);
        if !sure {
            if !has_addresses {
                finding.collect_next.push(
                    "the same process with `/debug/pprof/goroutine?debug=2`: it shows addresses, \
                     states and who started whom"
                        .to_owned(),
                );
            }
            if !self.scene.is_complete() {
                finding.collect_next.push(
                    "the complete profile, as protobuf or `go tool pprof -traces`: this evidence \
                     leaves stacks out"
                        .to_owned(),
                );
            }
            finding
                .collect_next
                .push("a second dump ten seconds later: who moved, who did not".to_owned());
        }
        if finding.class == FaultClass::LostUnlock {
            let sites = finding.resource.sites.join(", ");
            finding
                .collect_next
                .push(format!("the source of {sites}: every way out of the lock"));
        }
        finding
    }

    /// Who waits for those who wait here, and how bad that is.
    fn blast(&self, q: usize) -> (Vec<Blast>, Severity) {
        let scene = self.scene;
        let stuck: FxHashSet<u32> = self.queues[q].actors.iter().copied().collect();
        let (mut blast, mut worst) = (Vec::new(), Severity::Minor);
        for (other, candidates) in self.candidates.iter().enumerate() {
            let by = candidates.outside.iter().find(|c| {
                stuck.contains(&c.actor)
                    && (c.level <= Level::Likely || candidates.outside.len() == 1)
            });
            if other != q
                && let Some(by) = by
            {
                worst = worst.min(self.severity(&self.waiters(&self.queues[other].actors)));
                blast.push(Blast {
                    what: format!("the queue of {}", self.name(other)),
                    count: self.queues[other].total(),
                    why: format!(
                        "its holder, in {}, waits here",
                        scene.symbol(self.actor(by), by.frame)
                    ),
                });
            }
        }
        let parents: FxHashSet<u64> = stuck
            .iter()
            .filter_map(|&a| scene.parent(&scene.actors[a as usize]))
            .collect();
        let creators: FxHashSet<u32> = stuck
            .iter()
            .filter_map(|&a| scene.stack(&scene.actors[a as usize]).created_by)
            .collect();
        for actor in scene
            .actors
            .iter()
            .filter(|a| scene.facts(a).wait == Wait::Group)
        {
            let depth = scene.facts(actor).depth;
            let frames = scene.stack(actor).frames.get(depth..).unwrap_or(&[]);
            let waits = match scene.number(actor) {
                Some(number) if !parents.is_empty() => parents.contains(&number),
                _ => frames.iter().any(|f| creators.contains(&f.function)),
            };
            if waits && !frames.is_empty() {
                blast.push(Blast {
                    what: format!("the wait group in {}", scene.symbol(actor, depth)),
                    count: actor.count,
                    why: "goroutines that it started wait here".to_owned(),
                });
            }
        }
        if self.held[q].mode == HeldMode::Read && self.queues[q].heads > 0 {
            blast.push(Blast {
                what: "every new reader".to_owned(),
                count: 0,
                why: "RLock queues behind the writer at the head, although the lock is only \
                      read-held"
                    .to_owned(),
            });
        }
        blast.truncate(LISTED);
        (blast, worst)
    }

    fn minutes(&self, actors: &[u32]) -> u32 {
        actors
            .iter()
            .map(|&a| self.scene.actors[a as usize].minutes)
            .max()
            .unwrap_or(0)
    }

    fn since(&self, actors: &[u32]) -> Option<Since> {
        let longest = actors
            .iter()
            .map(|&a| &self.scene.actors[a as usize])
            .max_by_key(|a| a.minutes)
            .filter(|a| a.minutes > 0)?;
        Some(Since {
            at: None,
            minutes: Some(u64::from(longest.minutes)),
            text: format!(
                "the longest has waited {} minutes, give or take one cycle of the garbage \
                 collector",
                longest.minutes
            ),
            evidence: Some(self.scene.evidence(longest, 0)),
        })
    }

    fn waiters(&self, actors: &[u32]) -> Waiters {
        waiters(
            self.scene,
            actors.iter().map(|&a| &self.scene.actors[a as usize]),
        )
    }

    fn holder(&self, candidate: &Candidate, level: Level) -> Holder {
        let scene = self.scene;
        let actor = self.actor(candidate);
        let frame = scene.symbol(actor, candidate.frame);
        let blocked_on = match self.next_queue(candidate) {
            Some(q) => self.name(q),
            None => self.wait(candidate).what().to_owned(),
        };
        let mut reasons = vec![format!("it is inside {frame}")];
        if candidate.exact {
            reasons.push("called on the very value that has the lock".to_owned());
        }
        if candidate.takes {
            reasons.push("a function in which others are seen to take this lock".to_owned());
        }
        if self.wait(candidate).is_blocked() {
            reasons.push(format!("and waits for {blocked_on}"));
        }
        if level == Level::Possible {
            reasons.push("nothing ties it to this very lock".to_owned());
        }
        Holder {
            goroutine: scene.number(actor),
            count: actor.count,
            frame: frame.to_owned(),
            blocked_on: self.wait(candidate).is_blocked().then_some(blocked_on),
            frames: scene.path(actor),
            confidence: Confidence {
                level,
                why: reasons.join(", "),
            },
            evidence: Some(scene.evidence(actor, candidate.frame)),
        }
    }
}

/// A goroutine that is proven to work on one value is no candidate for its siblings.
fn drop_placed(queues: &[Queue], candidates: &mut [Candidates]) {
    let mut placed: FxHashMap<u32, usize> = FxHashMap::default();
    for (q, found) in candidates.iter().enumerate() {
        for candidate in found
            .outside
            .iter()
            .chain(&found.nested)
            .filter(|c| c.exact)
        {
            placed.insert(candidate.actor, q);
        }
    }
    for (q, found) in candidates.iter_mut().enumerate() {
        found.outside.retain(|c| {
            c.exact
                || placed
                    .get(&c.actor)
                    .is_none_or(|&p| queues[p].owner != queues[q].owner)
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

/// The runtime's rules for who holds an RWMutex.
fn held(scene: &Scene<'_>, queue: &Queue) -> Held {
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

fn resource(scene: &Scene<'_>, queue: &Queue) -> Resource {
    let mut sites: Vec<String> = queue
        .sites
        .iter()
        .map(|&f| scene.dump.function(f).to_owned())
        .collect();
    sites.sort();
    sites.truncate(LISTED);
    let named = |wanted: fn(&Owner) -> Option<&String>| wanted(&queue.owner).cloned();
    Resource {
        kind: queue.kind,
        name: queue.owner.short(),
        package: queue.owner.package().map(str::to_owned),
        type_name: named(|o| match o {
            Owner::Type { name, .. } => Some(name),
            _ => None,
        }),
        field: queue.offset.map(|o| format!("+{o:#x}")),
        variable: named(|o| match o {
            Owner::Variable { name, .. } => Some(name),
            _ => None,
        }),
        address: address(queue),
        sites,
    }
}

/// Sums of waiters by entry point and by call path.
pub(super) fn waiters<'a>(
    scene: &Scene<'_>,
    actors: impl Iterator<Item = &'a Actor> + Clone,
) -> Waiters {
    let mut waiters = Waiters::default();
    let mut entries: FxHashMap<Entry, u64> = FxHashMap::default();
    let mut paths: FxHashMap<u32, (u64, &Actor)> = FxHashMap::default();
    for actor in actors {
        waiters.total += actor.count;
        match scene.facts(actor).wait {
            Wait::Lock(LockOp::Read) => waiters.readers += actor.count,
            Wait::Lock(_) => waiters.writers += actor.count,
            _ => {}
        }
        paths.entry(actor.stack).or_insert((0, actor)).0 += actor.count;
    }
    for (count, actor) in paths.values() {
        *entries.entry(scene.entry(actor)).or_default() += count;
    }
    waiters.by_entry = entries
        .into_iter()
        .map(|(e, count)| EntryCount {
            kind: e.kind,
            name: e.name,
            function: e.function,
            count,
        })
        .collect();
    waiters
        .by_entry
        .sort_by(|a, b| (b.count, &a.name).cmp(&(a.count, &b.name)));
    let mut paths: Vec<_> = paths.into_values().collect();
    paths.sort_by_key(|(count, actor)| (std::cmp::Reverse(*count), actor.stack));
    waiters.by_path = paths
        .into_iter()
        .take(LISTED)
        .map(|(count, actor)| {
            let facts = scene.facts(actor);
            PathCount {
                count,
                wants: match facts.wait {
                    Wait::Lock(op) => op.wants().to_owned(),
                    wait => wait.what().to_owned(),
                },
                frames: scene.path(actor),
                evidence: Some(scene.evidence(actor, facts.depth.saturating_sub(1))),
            }
        })
        .collect();
    waiters
}
