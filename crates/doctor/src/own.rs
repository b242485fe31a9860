//! Fairlead's own `/debug/inflight`, `/debug/stalls` and `/debug/locks`: the ledger as JSON.
//!
//! Lenient: operations may come as a bare array, or in an object under any name; unknown members
//! are passed over. An operation waits on something and may name the operation that holds it, so the chain
//! to the one who does not wait is read off, not guessed.

mod lock;
mod stall;

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::Value;

use self::lock::Lock;
use self::stall::Stall;
use crate::analysis::remedy;
use crate::figures::{count, many, seconds};
use crate::metrics::slug;
use crate::report::{
    Confidence, CycleStep, EntryCount, EntryKind, Evidence, FaultClass, Finding, Held, HeldMode,
    Holder, Level, Resource, ResourceKind, Severity, Since, Waiters,
};

/// Older than this is late where the ledger does not say.
const LATE_MS: f64 = 5_000.0;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Op {
    id: Id,
    kind: String,
    key: String,
    tenant: String,
    age_ms: f64,
    step: String,
    step_age_ms: f64,
    waits_on: Option<WaitsOn>,
    late: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct WaitsOn {
    what: String,
    holder: Option<Id>,
    /// What the holder is and does, where it was in flight.
    holder_doing: Option<String>,
}

/// A number or a string: the ledger's ids have been both.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(from = "Value")]
struct Id(String);

impl From<Value> for Id {
    fn from(value: Value) -> Self {
        match value {
            Value::String(text) => Self(text),
            Value::Number(number) => Self(number.to_string()),
            _ => Self::default(),
        }
    }
}

/// What one of our endpoints said.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    ops: Vec<Op>,
    locks: Vec<Lock>,
    stalls: Vec<Stall>,
    input: String,
}

impl Ledger {
    /// Reads a document; `None` where it is not one of ours.
    pub(crate) fn parse(input: &str, text: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let empty = Self { input: input.to_owned(), ..Self::default() };
        let ops = match value {
            Value::Array(array) => array,
            Value::Object(mut map) => {
                if let Some(locks) = map.remove("locks") {
                    return Some(Self { locks: serde_json::from_value(locks).ok()?, ..empty });
                }
                if let Some(stalls) = map.remove("stalls") {
                    return Some(Self { stalls: serde_json::from_value(stalls).ok()?, ..empty });
                }
                let is_ours = |value: &Value| value.as_array().is_some_and(|a| a.iter().any(ours));
                let named = map.contains_key("in_flight").then(|| map.remove("operations"));
                let ops = named.flatten().or_else(|| map.into_iter().map(|m| m.1).find(is_ours))?;
                serde_json::from_value(ops).ok()?
            }
            _ => return None,
        };
        if !ops.is_empty() && !ops.iter().any(ours) {
            return None;
        }
        let ops = ops.into_iter().filter_map(|v| serde_json::from_value(v).ok()).collect();
        Some(Self { ops, ..empty })
    }

    /// `12 operations in flight`: what was read.
    pub(crate) fn summary(&self) -> String {
        let (locks, stalls) = (self.locks.len() as u64, self.stalls.len() as u64);
        if locks > 0 {
            many(locks, "class of locks", "classes of locks")
        } else if stalls > 0 {
            many(stalls, "stall", "stalls")
        } else {
            many(self.ops.len() as u64, "operation in flight", "operations in flight")
        }
    }

    fn evidence(&self, op: &Op) -> Evidence {
        let step = if op.step.is_empty() { String::new() } else { format!(", step {}", op.step) };
        Evidence {
            input: self.input.clone(),
            line: None,
            text: format!("{} for {}{step}", op.title(), seconds(op.age_ms / 1000.0)),
        }
    }

    /// Locks that keep somebody, stalls, and late operations: by what they wait on, and those that
    /// wait on nothing, each for itself.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let by_id: HashMap<&Id, &Op> = self.ops.iter().map(|op| (&op.id, op)).collect();
        let mut waits: BTreeMap<&str, Vec<&Op>> = BTreeMap::new();
        let mut alone = Vec::new();
        for op in self.ops.iter().filter(|op| op.is_late()) {
            match &op.waits_on {
                Some(on) if !on.what.is_empty() => waits.entry(&on.what).or_default().push(op),
                _ => alone.push(op),
            }
        }
        let mut findings: Vec<Finding> =
            self.locks.iter().flat_map(|lock| lock.findings(&self.input)).collect();
        findings.extend(self.stalls.iter().map(|stall| stall.finding(&self.input)));
        let mut rings: Vec<Vec<&Id>> = Vec::new();
        for (what, ops) in &waits {
            let (chain, ring) = chain(ops[0], &by_id);
            if ring {
                // A ring is met at each of its resources; it is one finding.
                let mut ids: Vec<&Id> = chain.iter().map(|op| &op.id).collect();
                ids.sort();
                if rings.contains(&ids) {
                    continue;
                }
                rings.push(ids);
            }
            findings.push(self.queue(what, ops, &chain, ring));
        }
        let is_holder = |op: &&Op| {
            waits
                .values()
                .flatten()
                .any(|w| w.waits_on.as_ref().and_then(|on| on.holder.as_ref()) == Some(&op.id))
        };
        alone.retain(|op| !is_holder(op));
        if let Some(worst) = alone.iter().max_by(|a, b| a.age_ms.total_cmp(&b.age_ms)) {
            findings.push(Finding {
                id: format!("late-{}", slug(&worst.kind)),
                class: FaultClass::HeldAcrossWork,
                severity: Severity::Minor,
                title: format!(
                    "{} late; the oldest is {} for {}",
                    many(alone.len() as u64, "operation is", "operations are"),
                    worst.title(),
                    seconds(worst.age_ms / 1000.0)
                ),
                resource: Resource {
                    kind: ResourceKind::Other,
                    name: worst.title(),
                    ..Resource::default()
                },
                no_holder: Some("they wait for nobody; they are slow themselves".into()),
                remedy: remedy(FaultClass::HeldAcrossWork).into(),
                evidence: alone.iter().take(8).map(|op| self.evidence(op)).collect(),
                confidence: Confidence { level: Level::Certain, why: "the ledger says so".into() },
                ..Finding::default()
            });
        }
        findings
    }

    fn queue(&self, what: &str, ops: &[&Op], chain: &[&Op], cycle: bool) -> Finding {
        let id = format!("waits-on-{}", slug(what));
        let mut by_entry: BTreeMap<&str, u64> = BTreeMap::new();
        for op in ops {
            *by_entry.entry(&op.kind).or_default() += 1;
        }
        let holder = chain.last().copied();
        let class = if cycle { FaultClass::Deadlock } else { FaultClass::Queue };
        let oldest = ops.iter().map(|op| op.wait_ms()).fold(0.0, f64::max);
        let holders = if cycle { Vec::new() } else { self.holders(ops[0], holder) };
        let mut by_entry: Vec<EntryCount> = by_entry
            .into_iter()
            .map(|(kind, count)| EntryCount {
                kind: EntryKind::Worker,
                name: kind.to_owned(),
                function: kind.to_owned(),
                count,
            })
            .collect();
        by_entry.sort_by_key(|e| std::cmp::Reverse(e.count));
        Finding {
            id,
            class,
            severity: if cycle || ops.len() >= 100 {
                Severity::Critical
            } else {
                Severity::Serious
            },
            title: match holder {
                Some(op) if !cycle => format!(
                    "{} behind {what}, held by {}",
                    many(ops.len() as u64, "operation waits", "operations wait"),
                    op.title()
                ),
                Some(_) => format!(
                    "{} wait for each other in a ring through {what}",
                    many(chain.len() as u64, "operation", "operations")
                ),
                None => format!(
                    "{} on {what}",
                    many(ops.len() as u64, "operation waits", "operations wait")
                ),
            },
            resource: Resource {
                kind: ResourceKind::Lock,
                name: what.to_owned(),
                ..Resource::default()
            },
            held: holder.map(|op| Held {
                mode: HeldMode::Unknown,
                why: "the ledger names the holder".into(),
                evidence: vec![self.evidence(op)],
            }),
            waiters: Waiters { total: ops.len() as u64, by_entry, ..Waiters::default() },
            since: Some(Since {
                text: format!("the oldest has waited for {}", seconds(oldest / 1000.0)),
                ..Since::default()
            }),
            no_holder: (holders.is_empty() && !cycle)
                .then(|| "the ledger does not name who holds it".into()),
            holders,
            cycle: if cycle { self.ring(chain) } else { Vec::new() },
            remedy: remedy(class).into(),
            evidence: ops.iter().take(8).map(|op| self.evidence(op)).collect(),
            confidence: Confidence {
                level: Level::Certain,
                why: "the ledger records who waits on whom".into(),
            },
            details: vec![format!("{} in flight in all", count(self.ops.len() as u64))],
            ..Finding::default()
        }
    }

    /// Who holds up `waiter`: the end of its chain, or where that is not listed, what it says itself.
    fn holders(&self, waiter: &Op, end: Option<&Op>) -> Vec<Holder> {
        let doing = waiter.waits_on.as_ref().and_then(|on| on.holder_doing.clone());
        let frame = match end {
            Some(op) if op.step.is_empty() => Some(op.title()),
            Some(op) => Some(format!("{} in step {}", op.title(), op.step)),
            None => doing,
        };
        let named = frame.map(|frame| Holder {
            count: 1,
            frame,
            blocked_on: end.and_then(|op| op.waits_on.as_ref()).map(|on| on.what.clone()),
            confidence: Confidence { level: Level::Certain, why: "the ledger names it".into() },
            evidence: Some(self.evidence(end.unwrap_or(waiter))),
            ..Holder::default()
        });
        named.into_iter().collect()
    }

    fn ring(&self, chain: &[&Op]) -> Vec<CycleStep> {
        let waits = |op: &Op| op.waits_on.as_ref().map_or_else(String::new, |on| on.what.clone());
        (0..chain.len())
            .map(|i| {
                let before = chain[(i + chain.len() - 1) % chain.len()];
                CycleStep {
                    goroutine: None,
                    holds: waits(before),
                    waits_for: waits(chain[i]),
                    frame: format!("{} in step {}", chain[i].title(), chain[i].step),
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
        if named.is_empty() { format!("operation {}", self.id.0) } else { named.join(" ") }
    }

    fn wait_ms(&self) -> f64 {
        if self.step_age_ms > 0.0 { self.step_age_ms } else { self.age_ms }
    }

    fn is_late(&self) -> bool {
        self.late || (self.waits_on.is_some() && self.wait_ms() >= LATE_MS)
    }
}

/// Whether it looks like an entry of the ledger.
fn ours(value: &Value) -> bool {
    let has = |key| value.get(key).is_some();
    has("age_ms") || has("waits_on") || (has("step") && has("kind"))
}

/// From a waiter over the holders to the one who waits for nobody; whether it closes a ring, then
/// only the ring.
fn chain<'a>(first: &'a Op, by_id: &HashMap<&Id, &'a Op>) -> (Vec<&'a Op>, bool) {
    let mut seen: Vec<&Op> = vec![first];
    let mut at = first;
    while let Some(next) =
        at.waits_on.as_ref().and_then(|on| on.holder.as_ref()).and_then(|id| by_id.get(id))
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
