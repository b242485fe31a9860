//! What a queue looks like to whoever reads the report.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::goroutine::Form;
use crate::report::{
    Blast, Confidence, EntryCount, EntryKind, FaultClass, Finding, HeldMode, Holder, Level,
    PathCount, Resource, ResourceKind, Severity, Since, Waiters,
};

use super::super::entry::Entry;
use super::super::holder::Candidate;
use super::super::owner::Owner;
use super::super::queue::Queue;
use super::super::remedy::remedy;
use super::super::scene::{Actor, Scene};
use super::super::wait::{LockOp, Wait};
use super::{LISTED, LONG, Locks};
use crate::words::{goroutines, thousands};

const SHARED: &str = "the waiters work on different values, on which nobody else is seen to work: \
                      they are taken to share one lock";
const UNITED: &str = "the writer is counted here by elimination: the lock is read-held, so that its readers \
     wait behind a writer, and no other writer at a head has nobody else to wait for";

impl Locks<'_, '_> {
    /// Everything about a queue but its cause.
    pub(super) fn describe(&self, q: usize) -> Finding {
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
            id: format!("{kind}:{}", self.name(q)).to_lowercase().replace(' ', "_"),
            title: if queue.locks > 1 {
                let (many, site) = (goroutines(waiters.total), self.name(q));
                format!("{many} wait in {site}, each for its own {kind}")
            } else {
                let (many, name) = (goroutines(waiters.total), self.name(q));
                format!("{many} {verb} for the {kind} of {name}{mode}")
            },
            severity: self.severity(&waiters),
            resource,
            held: (queue.kind != ResourceKind::Once).then(|| held.clone()),
            since: self.since(&queue.actors),
            evidence: waiters.by_path.iter().take(3).filter_map(|p| p.evidence.clone()).collect(),
            waiters,
            details: [(queue.shared, SHARED), (queue.shared && queue.heads > 0, UNITED)]
                .into_iter()
                .filter(|(holds, _)| *holds)
                .map(|(_, why)| why.to_owned())
                .collect(),
            ..Finding::default()
        }
    }

    pub(super) fn severity(&self, waiters: &Waiters) -> Severity {
        let shown = self.scene.dump.shown().max(1);
        let served = |kind| matches!(kind, EntryKind::Grpc | EntryKind::Http | EntryKind::Webhook);
        let requests: u64 =
            waiters.by_entry.iter().filter(|e| served(e.kind)).map(|e| e.count).sum();
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
    pub(super) fn finish(&self, mut finding: Finding, q: usize) -> Finding {
        finding.remedy = remedy(finding.class).to_owned();
        let (blast, worst) = self.blast(q);
        finding.blast_radius.extend(blast);
        finding.severity = finding.severity.min(worst);
        finding.severity = self.weighed(&finding, q);
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
            && finding.holders.first().is_some_and(|h| h.confidence.level <= Level::Likely);
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
            if !self.unmoved.followed {
                finding
                    .collect_next
                    .push("a second dump ten seconds later: who moved, who did not".to_owned());
            }
        }
        if finding.class == FaultClass::LostUnlock {
            let sites = finding.resource.sites.join(", ");
            finding.collect_next.push(format!("the source of {sites}: every way out of the lock"));
        }
        finding
    }

    /// Who waits for those who wait here, and how bad that is.
    pub(super) fn blast(&self, q: usize) -> (Vec<Blast>, Severity) {
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
        let parents: FxHashSet<u64> =
            stuck.iter().filter_map(|&a| scene.parent(&scene.actors[a as usize])).collect();
        let creators: FxHashSet<u32> = stuck
            .iter()
            .filter_map(|&a| scene.stack(&scene.actors[a as usize]).created_by)
            .collect();
        for actor in scene.actors.iter().filter(|a| scene.facts(a).wait == Wait::Group) {
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

    pub(super) fn since(&self, actors: &[u32]) -> Option<Since> {
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

    pub(super) fn waiters(&self, actors: &[u32]) -> Waiters {
        waiters(self.scene, actors.iter().map(|&a| &self.scene.actors[a as usize]))
    }

    pub(super) fn holder(&self, candidate: &Candidate, level: Level) -> Holder {
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
            let missing = match (candidate.exact, candidate.takes) {
                (true, true) => "others fit as well",
                (true, false) => "nothing shows that it has taken the lock",
                _ => "nothing ties it to this very lock",
            };
            reasons.push(missing.to_owned());
        }
        Holder {
            thread: None,
            goroutine: scene.number(actor),
            count: actor.count,
            frame: frame.to_owned(),
            blocked_on: self.wait(candidate).is_blocked().then_some(blocked_on),
            frames: scene.path(actor),
            confidence: Confidence { level, why: reasons.join(", ") },
            evidence: Some(scene.evidence(actor, candidate.frame)),
        }
    }
}

pub(super) fn resource(scene: &Scene<'_>, queue: &Queue) -> Resource {
    let mut sites: Vec<String> =
        queue.sites.keys().map(|&f| scene.dump.function(f).to_owned()).collect();
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
        address: queue.address(),
        sites,
    }
}

/// Sums of waiters by entry point and by call path.
pub(in super::super) fn waiters<'a>(
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
        .map(|(e, count)| EntryCount { kind: e.kind, name: e.name, function: e.function, count })
        .collect();
    waiters.by_entry.sort_by(|a, b| (b.count, &a.name).cmp(&(a.count, &b.name)));
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
