//! Fairlead's own `/debug/inflight`, `/debug/stalls` and `/debug/locks`, as JSON, and what else is in
//! an archive of `fairlead support` or in a directory of evidence.
//!
//! An operation that waits names the operation that holds what it waits for, so the chain to the
//! one that waits for nobody is read off, not guessed. Members that are not used are passed over.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;

use crate::analysis::remedy;
use crate::figures::{count, many, seconds};
use crate::metrics::slug;
use crate::report::{
    Confidence, CycleStep, EntryCount, EntryKind, Evidence, FaultClass, Finding, Held, HeldMode,
    Holder, Level, Resource, ResourceKind, Severity, Since, Waiters,
};

/// Who waits shorter than this for a lock meets ordinary contention.
const LONG_WAIT_MS: u64 = 1_000;
/// So many behind one resource, and what serves clients stands still.
const CROWD: u64 = 100;

/// The answers of the three endpoints; each is told by its list. The last is a document that
/// `fairlead support` wrote for a person, and says what it is.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum DebugPage {
    InFlight { in_flight: u64, operations: Vec<Op> },
    Stalls { stalls: Vec<Stall> },
    Locks { locks: Vec<Lock> },
    Support { fairlead_support: String },
}

#[derive(Debug, Clone, Deserialize)]
struct Op {
    id: u64,
    kind: String,
    key: String,
    tenant: String,
    age_ms: u64,
    step: String,
    step_age_ms: u64,
    waits_on: Option<WaitsOn>,
    late: bool,
}

#[derive(Debug, Clone, Deserialize)]
struct WaitsOn {
    what: String,
    holder: Option<u64>,
    holder_doing: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct Stall {
    name: String,
    critical: bool,
    stalled_ms: u64,
    fails_liveness: bool,
}

#[derive(Debug, Clone, Deserialize)]
struct Lock {
    class: String,
    held: Vec<Hold>,
}

#[derive(Debug, Clone, Deserialize)]
struct Hold {
    holder: String,
    held_ms: Option<u64>,
    waiting: u64,
    waiter: Option<String>,
    waiting_ms: Option<u64>,
}

/// What one of our endpoints said.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    answer: DebugPage,
    input: String,
}

/// Whether a JSON document that begins so may be an answer of ours.
pub(crate) fn begins(line: &[u8]) -> bool {
    let Some(rest) = line.trim_ascii_start().strip_prefix(b"{") else {
        return false;
    };
    let rest = rest.trim_ascii_start();
    let lists: [&[u8]; 4] =
        [b"\"in_flight\"", b"\"stalls\"", b"\"locks\"", b"\"fairlead_support\""];
    rest.is_empty() || lists.iter().any(|list| rest.starts_with(list))
}

/// What a text of ours is that holds nothing to be examined, told by its first line: the parts that a
/// process's watchdog follows, a page that `fairlead support` wrote.
pub(crate) fn for_people(line: &[u8]) -> Option<&'static str> {
    if line.starts_with(b"Critical  ") || line.starts_with(b"Noted  ") {
        Some("what Fairlead's watchdog follows")
    } else if line.starts_with(b"# fairlead support: ") {
        Some("page of fairlead support")
    } else {
        None
    }
}

impl Ledger {
    /// Reads a document; `None` where it is not one of ours.
    pub(crate) fn parse(input: &str, text: &[u8]) -> Option<Self> {
        let answer = serde_json::from_slice(text).ok()?;
        Some(Self { answer, input: input.to_owned() })
    }

    /// What it holds, in words.
    pub(crate) fn summary(&self) -> String {
        match &self.answer {
            DebugPage::InFlight { in_flight, .. } => {
                many(*in_flight, "operation in flight", "operations in flight")
            }
            DebugPage::Stalls { stalls } => many(stalls.len() as u64, "stall", "stalls"),
            DebugPage::Locks { locks } => {
                many(locks.len() as u64, "class of locks", "classes of locks")
            }
            DebugPage::Support { fairlead_support } => fairlead_support.clone(),
        }
    }

    pub(crate) fn findings(&self) -> Vec<Finding> {
        match &self.answer {
            DebugPage::InFlight { in_flight, operations } => {
                self.operations(*in_flight, operations)
            }
            DebugPage::Stalls { stalls } => stalls.iter().map(|s| self.stall(s)).collect(),
            DebugPage::Support { .. } => Vec::new(),
            DebugPage::Locks { locks } => {
                let held = |lock: &Lock, hold: &Hold| {
                    let waited = hold.waiting_ms.filter(|ms| *ms >= LONG_WAIT_MS)?;
                    Some(self.lock(&lock.class, hold, waited))
                };
                locks
                    .iter()
                    .flat_map(|lock| lock.held.iter().filter_map(move |hold| held(lock, hold)))
                    .collect()
            }
        }
    }

    fn said(&self, text: String) -> Evidence {
        Evidence { input: self.input.clone(), line: None, text }
    }

    fn evidence(&self, op: &Op) -> Evidence {
        self.said(format!("{} for {}, step {}", op.title(), for_ms(op.age_ms), op.step))
    }

    fn stall(&self, stall: &Stall) -> Finding {
        let Stall { name, critical, stalled_ms, fails_liveness } = stall;
        let stood = for_ms(*stalled_ms);
        Finding {
            id: format!("stalled-{}", slug(name)),
            class: FaultClass::Queue,
            severity: if *critical { Severity::Critical } else { Severity::Serious },
            title: format!("{name} owes progress and has made none for {stood}"),
            resource: Resource {
                kind: ResourceKind::Other,
                name: name.clone(),
                ..Resource::default()
            },
            since: Some(Since { text: format!("for {stood}"), ..Since::default() }),
            no_holder: Some("the watchdog sees that it stands still, not why".into()),
            remedy: remedy(FaultClass::Queue).into(),
            collect_next: vec!["/debug/stacks and /debug/locks of the same process".into()],
            evidence: vec![self.said(format!("{name} stalled for {stood}"))],
            confidence: certain("the watchdog says so"),
            details: (fails_liveness.then(|| "the liveness probe fails because of it".into()))
                .into_iter()
                .collect(),
            ..Finding::default()
        }
    }

    fn lock(&self, class: &str, hold: &Hold, waited_ms: u64) -> Finding {
        let Hold { holder, held_ms, waiting, waiter, .. } = hold;
        let held_for = held_ms.map_or(String::new(), |ms| format!(" for {}", for_ms(ms)));
        let evidence = self.said(format!("{class} held by {holder}{held_for}"));
        let longest = waiter.iter().map(|site| {
            self.said(format!("{class} waited for at {site} for {}", for_ms(waited_ms)))
        });
        Finding {
            id: format!("lock-{}", slug(class)),
            class: FaultClass::Queue,
            severity: crowd(*waiting),
            title: format!(
                "{} for {class}, taken at {holder}",
                many(*waiting, "thread waits", "threads wait")
            ),
            resource: Resource {
                kind: ResourceKind::Mutex,
                name: class.to_owned(),
                sites: waiter.iter().cloned().collect(),
                ..Resource::default()
            },
            held: Some(Held {
                mode: HeldMode::Write,
                why: "the lock records where it was taken".into(),
                evidence: vec![evidence.clone()],
            }),
            waiters: Waiters { total: *waiting, writers: *waiting, ..Waiters::default() },
            since: Some(Since {
                text: format!("the longest has waited for {}", for_ms(waited_ms)),
                ..Since::default()
            }),
            holders: vec![Holder {
                thread: None,
                count: 1,
                frame: holder.clone(),
                confidence: certain("the lock records where it was taken"),
                evidence: Some(evidence.clone()),
                ..Holder::default()
            }],
            remedy: remedy(FaultClass::Queue).into(),
            collect_next: vec!["/debug/stacks, for what the holder does meanwhile".into()],
            evidence: std::iter::once(evidence).chain(longest).collect(),
            confidence: certain("the lock counts its waiters"),
            ..Finding::default()
        }
    }

    /// Late operations, by what they wait on; and those that wait on nothing together.
    fn operations(&self, in_flight: u64, ops: &[Op]) -> Vec<Finding> {
        let by_id: HashMap<u64, &Op> = ops.iter().map(|op| (op.id, op)).collect();
        let mut waits: BTreeMap<(&str, Option<u64>), Vec<&Op>> = BTreeMap::new();
        let mut alone = Vec::new();
        for op in ops.iter().filter(|op| op.late) {
            match &op.waits_on {
                Some(on) => waits.entry((&on.what, on.holder)).or_default().push(op),
                None => alone.push(op),
            }
        }
        let mut findings = Vec::new();
        let mut rings: Vec<Vec<u64>> = Vec::new();
        for ((what, _), waiting) in &waits {
            let (chain, ring) = chain(waiting[0], &by_id);
            if ring {
                // A ring is met at each of its resources; it is one finding.
                let mut ids: Vec<u64> = chain.iter().map(|op| op.id).collect();
                ids.sort_unstable();
                if rings.contains(&ids) {
                    continue;
                }
                rings.push(ids);
            }
            let mut found = self.queue(what, waiting, &chain, ring);
            found.details.push(format!("{} in flight in all", count(in_flight)));
            findings.push(found);
        }
        alone.retain(|op| !waits.keys().any(|(_, holder)| *holder == Some(op.id)));
        if let Some(worst) = alone.iter().max_by_key(|op| op.age_ms) {
            findings.push(Finding {
                id: format!("late-{}", slug(&worst.kind)),
                class: FaultClass::HeldAcrossWork,
                severity: Severity::Minor,
                title: format!(
                    "{} late; the oldest is {} for {}",
                    many(alone.len() as u64, "operation is", "operations are"),
                    worst.title(),
                    for_ms(worst.age_ms)
                ),
                resource: Resource {
                    kind: ResourceKind::Other,
                    name: worst.title(),
                    ..Resource::default()
                },
                no_holder: Some("they wait for nobody; they are slow themselves".into()),
                remedy: remedy(FaultClass::HeldAcrossWork).into(),
                evidence: alone.iter().take(8).map(|op| self.evidence(op)).collect(),
                confidence: certain("the ledger says so"),
                ..Finding::default()
            });
        }
        findings
    }

    fn queue(&self, what: &str, ops: &[&Op], chain: &[&Op], ring: bool) -> Finding {
        let total = ops.len() as u64;
        let class = if ring { FaultClass::Deadlock } else { FaultClass::Queue };
        let holders: Vec<Holder> =
            if ring { Vec::new() } else { self.holder(ops[0], chain).into_iter().collect() };
        let waiting = many(total, "operation waits", "operations wait");
        let title = match holders.first() {
            _ if ring => format!(
                "{} wait for each other in a ring through {what}",
                many(chain.len() as u64, "operation", "operations")
            ),
            Some(holder) => format!("{waiting} behind {what}, held by {}", holder.frame),
            None => format!("{waiting} on {what}"),
        };
        let oldest = ops.iter().map(|op| op.step_age_ms).max().unwrap_or_default();
        let mut by_kind: BTreeMap<&str, u64> = BTreeMap::new();
        for op in ops {
            *by_kind.entry(&op.kind).or_default() += 1;
        }
        let mut by_entry: Vec<EntryCount> = by_kind
            .into_iter()
            .map(|(kind, count)| EntryCount {
                kind: EntryKind::Worker,
                name: kind.to_owned(),
                function: kind.to_owned(),
                count,
            })
            .collect();
        by_entry.sort_by_key(|e| std::cmp::Reverse(e.count));
        let last = chain.last().filter(|_| !ring && chain.len() > 1);
        Finding {
            id: format!("waits-on-{}", slug(what)),
            class,
            severity: if ring { Severity::Critical } else { crowd(total) },
            title,
            resource: Resource {
                kind: ResourceKind::Lock,
                name: what.to_owned(),
                ..Resource::default()
            },
            held: holders.first().map(|holder| Held {
                mode: HeldMode::Unknown,
                why: "the ledger names the holder".into(),
                evidence: holder.evidence.iter().cloned().collect(),
            }),
            waiters: Waiters { total, by_entry, ..Waiters::default() },
            since: Some(Since {
                text: format!("the oldest has waited for {}", for_ms(oldest)),
                ..Since::default()
            }),
            no_holder: (holders.is_empty() && !ring)
                .then(|| "the ledger does not name who holds it".into()),
            holders,
            cycle: if ring { self.ring(chain) } else { Vec::new() },
            remedy: remedy(class).into(),
            evidence: ops.iter().take(8).map(|op| self.evidence(op)).collect(),
            confidence: certain("the ledger records who waits on whom"),
            details: last
                .map(|op| format!("the chain of holders ends at {}", op.doing()))
                .into_iter()
                .collect(),
            ..Finding::default()
        }
    }

    /// Who holds what `waiter` waits for: as listed, or in the words of the waiter's entry, since
    /// the list is bounded.
    fn holder(&self, waiter: &Op, chain: &[&Op]) -> Option<Holder> {
        let (frame, blocked_on, evidence) = match chain.first() {
            Some(op) => {
                let on = op.waits_on.as_ref().map(|on| on.what.clone());
                (op.doing(), on, self.evidence(op))
            }
            None => {
                let doing = waiter.waits_on.as_ref()?.holder_doing.clone()?;
                (doing, None, self.evidence(waiter))
            }
        };
        Some(Holder {
            thread: None,
            count: 1,
            frame,
            blocked_on,
            confidence: certain("the ledger names it"),
            evidence: Some(evidence),
            ..Holder::default()
        })
    }

    fn ring(&self, chain: &[&Op]) -> Vec<CycleStep> {
        let waits = |op: &Op| op.waits_on.as_ref().map_or_else(String::new, |on| on.what.clone());
        (0..chain.len())
            .map(|i| {
                let before = chain[(i + chain.len() - 1) % chain.len()];
                CycleStep {
                    thread: None,
                    goroutine: None,
                    holds: waits(before),
                    waits_for: waits(chain[i]),
                    frame: chain[i].doing(),
                    evidence: Some(self.evidence(chain[i])),
                }
            })
            .collect()
    }
}

impl Op {
    fn title(&self) -> String {
        let parts = [&self.kind, &self.key, &self.tenant];
        let named: Vec<&str> = parts.iter().map(|p| p.as_str()).filter(|p| !p.is_empty()).collect();
        named.join(" ")
    }

    fn doing(&self) -> String {
        format!("{} in step {}", self.title(), self.step)
    }
}

fn for_ms(ms: u64) -> String {
    seconds(ms as f64 / 1000.0)
}

fn certain(why: &str) -> Confidence {
    Confidence { level: Level::Certain, why: why.into() }
}

fn crowd(waiting: u64) -> Severity {
    if waiting >= CROWD { Severity::Critical } else { Severity::Serious }
}

/// From a waiter over the holders to the one who waits for nobody; whether it closes a ring, then
/// only the ring.
fn chain<'a>(first: &'a Op, by_id: &HashMap<u64, &'a Op>) -> (Vec<&'a Op>, bool) {
    let mut seen: Vec<&Op> = vec![first];
    let mut at = first;
    while let Some(next) =
        at.waits_on.as_ref().and_then(|on| on.holder).and_then(|id| by_id.get(&id))
    {
        if let Some(start) = seen.iter().position(|op| op.id == next.id) {
            return (seen.split_off(start), true);
        }
        seen.push(next);
        at = next;
    }
    seen.remove(0);
    (seen, false)
}

#[cfg(test)]
mod tests;
