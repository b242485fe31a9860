//! What can never resolve itself: locks taken in opposite orders, taken again by their holder, or
//! held while waiting for those who need them.

use rustc_hash::FxHashSet;

use crate::goroutine::{Name, RuntimeCall};
use crate::report::{
    Blast, Confidence, CycleStep, FaultClass, Finding, Level, ResourceKind, Severity,
};

use super::super::cycle::Edge;
use super::super::holder::{Candidate, Candidates};
use super::super::owner::Owner;
use super::super::queue::Key;
use super::super::remedy::remedy;
use super::super::scene::Actor;
use super::super::wait::{LockOp, Wait};
use super::tell::resource;
use super::{LISTED, Locks};
use crate::words::goroutines;

impl Locks<'_, '_> {
    /// A cycle over locks.
    pub(super) fn inversion(&self, cycle: &[Edge]) -> Finding {
        let scene = self.scene;
        let top = cycle
            .iter()
            .map(|e| e.from)
            .max_by_key(|&q| self.queues[q].total())
            .unwrap_or_default();
        let mut finding = self.describe(top);
        finding.class = FaultClass::LockOrderInversion;
        finding.severity = finding.severity.min(Severity::Serious);
        let holder_of = |e: &Edge| {
            let found = &self.candidates[e.from];
            found
                .outside
                .get(e.holder)
                .unwrap_or_else(|| &found.crossing[e.holder - found.outside.len()])
        };
        finding.cycle = cycle
            .iter()
            .map(|edge| {
                let candidate = holder_of(edge);
                let actor = self.actor(candidate);
                let site = scene.facts(actor).place.as_ref().map_or(0, |p| p.site);
                CycleStep {
                    thread: None,
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
        let proven = |e: &Edge| holder_of(e).exact && holder_of(e).takes;
        let (level, why) = if cycle.iter().all(proven) {
            (
                Level::Certain,
                "every goroutine of the cycle is inside a function that takes the one lock, called \
                 on the very value that has it, and waits for the next",
            )
        } else if cycle.iter().all(|e| only(e) || proven(e)) {
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
        finding.confidence = Confidence { level, why: why.to_owned() };
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
        finding.title = format!("deadlock: {} are taken in opposite orders", locks.join(" and "));
        finding.id = format!("cycle:{}", locks.join("+"));
        self.finish(finding, top)
    }

    /// Whether waiters hold what they wait for, and how sure that is.
    pub(super) fn nested(&self, q: usize) -> Option<(FaultClass, Level)> {
        let (queue, candidates) = (&self.queues[q], &self.candidates[q]);
        let op = |c: &Candidate| match self.wait(c) {
            Wait::Lock(op) => Some(op),
            _ => None,
        };
        if candidates.outside.iter().any(|c| c.level <= Level::Likely) {
            return None;
        }
        let forced = self.must_be_nested(q);
        let known = |c: &Candidate| c.exact || candidates.outside.is_empty();
        let passed = |c: &Candidate| self.actor(c).count == 1;
        let level = |earned: bool| {
            if earned { Level::Likely } else { Level::Possible }
        };
        let of = |wanted: fn(LockOp) -> bool| {
            candidates.nested.iter().filter(move |c| op(c).is_some_and(wanted))
        };
        // The writer at the head proves that somebody reads; where nobody else can, it is the
        // reader that waits behind it.
        if queue.heads > 0
            && let Some(level) = of(|op| op == LockOp::Read)
                .map(|c| level(forced && known(c) || c.exact && c.takes))
                .min()
        {
            return Some((FaultClass::RecursiveReadLock, level));
        }
        // A method that calls another on the same value need not have the lock itself: only one
        // that is seen to take it has.
        let again = |c: &Candidate| level(c.takes && (c.exact || forced));
        if let Some(level) = of(|op| op == LockOp::HeadWrite).map(again).min() {
            return Some((FaultClass::SelfDeadlock, level));
        }
        // Readers too: where no writer waits at the head, one has the lock.
        let mut locking = candidates.nested.iter().filter(|c| match op(c) {
            Some(LockOp::Mutex | LockOp::QueuedWrite) => true,
            Some(LockOp::Read) => queue.heads == 0,
            _ => false,
        });
        if locking.clone().any(|c| again(c) == Level::Likely) {
            return Some((FaultClass::SelfDeadlock, Level::Likely));
        }
        // Of many, those that stand alone decide; crowds are their victims.
        let lone: Vec<&Candidate> = locking.clone().filter(|c| passed(c)).collect();
        let first = *lone.first().or(locking.clone().next().as_ref())?;
        let another = if lone.is_empty() {
            locking.any(|c| self.actor(c).stack != self.actor(first).stack)
        } else {
            lone.iter().any(|c| self.actor(c).stack != self.actor(first).stack)
        };
        match queue.key {
            // Without addresses, nesting in one type is an inversion or a recursion.
            Key::Unknown if another => Some((FaultClass::LockOrderInversion, Level::Possible)),
            Key::Unknown | Key::Receiver(_) if !another => {
                Some((FaultClass::SelfDeadlock, Level::Possible))
            }
            _ if self.only_loops(q) => Some((FaultClass::SelfDeadlock, Level::Possible)),
            _ => None,
        }
    }

    /// Whether nobody but a waiter can hold the lock: each of the others that could holds at most
    /// one of its owner's locks, and there are queues enough that only they can account for.
    fn must_be_nested(&self, q: usize) -> bool {
        let (queue, candidates) = (&self.queues[q], &self.candidates[q]);
        let others: u64 = candidates.outside.iter().map(|c| self.actor(c).count).sum();
        let without = |(other, found): (usize, &Candidates)| {
            other != q
                && self.queues[other].owner == queue.owner
                && self.queues[other].kind == queue.kind
                && self.queues[other].key != Key::Unknown
                && found.nested.is_empty()
                && !found.outside.iter().any(|c| c.exact)
        };
        let claims = self.candidates.iter().enumerate().filter(|&c| without(c)).count() as u64;
        self.scene.is_complete()
            && queue.key != Key::Unknown
            && queue.instances() == 1
            && !queue.assumed
            && others <= claims
    }

    pub(super) fn all_nested(&self, q: usize) -> bool {
        let nested: u64 = self.candidates[q].nested.iter().map(|c| self.actor(c).count).sum();
        nested == self.queues[q].total()
    }

    pub(super) fn nested_finding(&self, q: usize, class: FaultClass, level: Level) -> Finding {
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
                "an outer frame of the waiting goroutine is a function that takes this lock"
            }
            _ => {
                "a waiter is inside what this lock guards already; whether its outer frame has the \
                 lock, or an unlock was missed elsewhere, only the source shows"
            }
        };
        finding.confidence = Confidence { level, why: why.to_owned() };
        finding.holders = nested.iter().take(LISTED).map(|c| self.holder(c, level)).collect();
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
            finding.title.insert_str(0, "perhaps ");
        }
        if class == FaultClass::RecursiveReadLock {
            let head = queue
                .actors
                .iter()
                .map(|&a| &scene.actors[a as usize])
                .find(|a| scene.facts(a).wait == Wait::Lock(LockOp::HeadWrite));
            let writer = head.map(|actor| CycleStep {
                thread: None,
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
                    thread: None,
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

    /// Of waiters that cannot be told apart, only those that show a pattern, beside the finding of
    /// the whole queue.
    pub(super) fn nested_pattern(&self, q: usize, class: FaultClass, level: Level) -> Finding {
        let scene = self.scene;
        let mut finding = self.nested_finding(q, class, level);
        let mut members: Vec<u32> = self.candidates[q].nested.iter().map(|c| c.actor).collect();
        members.extend(self.queues[q].actors.iter().filter(|&&a| {
            scene.facts(&scene.actors[a as usize]).wait == Wait::Lock(LockOp::HeadWrite)
        }));
        members.sort_unstable();
        members.dedup();
        finding.waiters = self.waiters(&members);
        finding.severity = Severity::Serious;
        finding.id.push_str("/nested");
        finding
    }

    /// A waiter of the lock that the holder waits for: through a wait group, or a channel's loop.
    pub(super) fn counterpart(&self, q: usize, holder: &Candidate) -> Option<Vec<CycleStep>> {
        let scene = self.scene;
        let held_by = self.actor(holder);
        let stack = scene.stack(held_by);
        let mut waiters = self.queues[q].actors.iter().map(|&a| &scene.actors[a as usize]);
        let (waiter, what) = match self.wait(holder) {
            // Whoever the holder started, and waits for, is in its own queue.
            Wait::Group => {
                let number = scene.number(held_by);
                let own: FxHashSet<u32> = stack.frames.iter().map(|f| f.function).collect();
                let started = |a: &&Actor| match (scene.parent(a), number) {
                    (Some(parent), Some(number)) => parent == number,
                    _ => match scene.stack(a).created_by {
                        Some(creator) => own.contains(&creator),
                        None => self.may_have_started(held_by, holder.frame, a),
                    },
                };
                match waiters.find(started) {
                    Some(waiter) => (waiter, "the wait group"),
                    None => return self.starved_group(q, holder, started),
                }
            }
            // The loop on the other side of the type's channel is in the holder's queue.
            Wait::Send | Wait::Receive | Wait::Channel if holder.level <= Level::Likely => {
                let channel = Name::of(scene.symbol(held_by, scene.facts(held_by).depth));
                channel.receiver?;
                let is_loop = |a: &&Actor| {
                    let frames = &scene.stack(a).frames;
                    let root = frames
                        .iter()
                        .rev()
                        .map(|f| Name::of(scene.dump.function(f.function)))
                        .find(|n| n.package != "runtime");
                    a.count == 1
                        && root.is_some_and(|root| {
                            (root.package, root.receiver) == (channel.package, channel.receiver)
                                && root.function != channel.function
                        })
                };
                (waiters.find(is_loop)?, "the other side of the channel")
            }
            _ => return None,
        };
        let name = self.name(q);
        let step = |actor: &Actor, frame: usize, holds: String, waits_for: String| CycleStep {
            thread: None,
            goroutine: scene.number(actor),
            holds,
            waits_for,
            frame: scene.symbol(actor, frame).to_owned(),
            evidence: Some(scene.evidence(actor, frame)),
        };
        let depth = scene.facts(waiter).depth;
        Some(vec![
            step(held_by, holder.frame, name.clone(), what.to_owned()),
            step(waiter, depth, what.to_owned(), name),
        ])
    }

    /// Forms that do not say who started whom: a goroutine that begins in a closure of the function
    /// that waits for its group, or in a method of the same type.
    fn may_have_started(&self, parent: &Actor, frame: usize, child: &Actor) -> bool {
        let scene = self.scene;
        let waits = Name::of(scene.symbol(parent, frame));
        let stack = scene.stack(child);
        let root =
            stack.frames.iter().rfind(|f| scene.dump.known(f.function) == RuntimeCall::Program);
        let Some(root) = root.map(|f| Name::of(scene.dump.function(f.function))) else {
            return false;
        };
        let same = (root.package, root.receiver) == (waits.package, waits.receiver);
        same && waits.receiver.is_some() && (!root.closure || root.function == waits.function)
    }

    /// The candidate that waits for a group which its own queue keeps from ending.
    pub(super) fn starving(&self, q: usize) -> Option<&Candidate> {
        let group = |c: &&Candidate| self.wait(c) == Wait::Group;
        let mut groups = self.candidates[q].outside.iter().filter(group);
        let first = groups.next()?;
        (groups.next().is_none() && self.counterpart(q, first).is_some()).then_some(first)
    }

    /// The holder waits for goroutines that it started; they wait for places in a bounded set, and
    /// the lock's waiters have those: they stand in a call of the same function, past its entrance.
    fn starved_group(
        &self,
        q: usize,
        holder: &Candidate,
        started: impl Fn(&&Actor) -> bool,
    ) -> Option<Vec<CycleStep>> {
        let scene = self.scene;
        let for_place = |a: &&Actor| {
            matches!(
                scene.facts(a).wait,
                Wait::Send | Wait::Receive | Wait::Select | Wait::Channel | Wait::Semaphore
            )
        };
        let functions = |a: &Actor, from: usize| -> Vec<u32> {
            let frames = scene.stack(a).frames.iter().skip(from).map(|f| f.function);
            frames.filter(|&f| scene.dump.known(f) == RuntimeCall::Program).collect()
        };
        for worker in scene.actors.iter().filter(started).filter(for_place) {
            let depth = scene.facts(worker).depth;
            let wants = functions(worker, depth);
            for &a in &self.queues[q].actors {
                let waiter = &scene.actors[a as usize];
                let site = scene.facts(waiter).place.as_ref().map_or(0, |p| p.site);
                let Some(&shared) = functions(waiter, site + 1).iter().find(|f| wants.contains(f))
                else {
                    continue;
                };
                let name = self.name(q);
                let place = format!("a place in {}", Name::short(scene.dump.function(shared)));
                let step = |actor: &Actor, frame, holds: &str, waits_for: &str| CycleStep {
                    thread: None,
                    goroutine: scene.number(actor),
                    holds: holds.to_owned(),
                    waits_for: waits_for.to_owned(),
                    frame: scene.symbol(actor, frame).to_owned(),
                    evidence: Some(scene.evidence(actor, frame)),
                };
                return Some(vec![
                    step(self.actor(holder), holder.frame, &name, "the wait group"),
                    step(worker, depth, "the wait group", &place),
                    step(waiter, site, &place, &name),
                ]);
            }
        }
        None
    }

    /// Two locks of one package whose holders nobody proves, but of which each has a lone goroutine
    /// in the package that waits for the other: taken in opposite orders, perhaps.
    pub(super) fn variables_crossed(
        &self,
        told: &FxHashSet<usize>,
        stalled: &[bool],
    ) -> Vec<Vec<Edge>> {
        let scene = self.scene;
        let open = |q: usize| {
            stalled[q]
                && !told.contains(&q)
                && matches!(self.queues[q].owner, Owner::Variable { .. } | Owner::Package { .. })
                && !self.candidates[q].outside.iter().any(|c| c.level <= Level::Likely)
        };
        // A function with one goroutine that asks for the second lock; a crowd only asks.
        let crosses = |from: usize, to: usize| {
            let found = &self.candidates[from];
            let candidates = found.outside.iter().chain(&found.crossing).enumerate();
            candidates
                .filter(|(_, c)| self.next_queue(c) == Some(to) && self.actor(c).count == 1)
                .min_by_key(|(_, c)| {
                    let site = scene.facts(self.actor(c)).place.as_ref().map_or(0, |p| p.site);
                    (!c.takes, c.frame.saturating_sub(site))
                })
                .map(|(holder, _)| Edge { from, to, holder })
        };
        let mut cycles = Vec::new();
        let mut used: FxHashSet<usize> = FxHashSet::default();
        for a in (0..self.queues.len()).filter(|&q| open(q)) {
            for b in (a + 1..self.queues.len()).filter(|&q| open(q)) {
                if used.contains(&a)
                    || used.contains(&b)
                    || self.queues[a].owner.package() != self.queues[b].owner.package()
                {
                    continue;
                }
                if let (Some(there), Some(back)) = (crosses(a, b), crosses(b, a)) {
                    used.extend([a, b]);
                    cycles.push(vec![there, back]);
                }
            }
        }
        cycles
    }

    /// Goroutines that can never leave a function that takes a lock: nobody waits for it yet.
    pub(super) fn stranded(&self) -> Vec<Finding> {
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
}
