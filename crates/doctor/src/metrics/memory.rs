//! Memory against its limit.

use crate::analysis::remedy;
use crate::figures::{bytes, count, timestamp};
use crate::log::stamp::Millis;
use crate::report::{
    Confidence, EventKind, Evidence, FaultClass, Finding, Level, Resource, ResourceKind, Severity,
    Since, TimelineEvent,
};

/// Memory in use at a time, in bytes.
#[derive(Debug, Clone)]
pub(crate) struct MemoryFact {
    pub(crate) used: f64,
    pub(crate) limit: Option<f64>,
    pub(crate) at: Option<Millis>,
    pub(crate) evidence: Evidence,
}

impl MemoryFact {
    pub(crate) fn text(&self) -> String {
        match self.limit {
            Some(limit) => format!(
                "memory: {} against a limit of {}",
                bytes(self.used),
                bytes(limit)
            ),
            None => format!("memory: {}", bytes(self.used)),
        }
    }

    fn ratio(&self) -> f64 {
        self.limit.map_or(0.0, |limit| self.used / limit)
    }
}

/// The worst of the facts, where it is above its limit.
pub(crate) fn over_limit(facts: &[MemoryFact]) -> Option<Finding> {
    let over = || facts.iter().filter(|f| f.ratio() > 1.0);
    let worst = over().max_by(|a, b| a.ratio().total_cmp(&b.ratio()))?;
    let first = over().filter(|f| f.at.is_some()).min_by_key(|f| f.at);
    let limit = worst.limit?;
    Some(Finding {
        id: "memory-over-limit".into(),
        class: FaultClass::MemoryOverLimit,
        severity: Severity::Critical,
        title: format!(
            "memory: {} in use against a limit of {}, {:.1} times",
            bytes(worst.used),
            bytes(limit),
            worst.ratio()
        ),
        resource: Resource {
            kind: ResourceKind::Memory,
            name: "memory".into(),
            ..Resource::default()
        },
        since: first.map(|f| Since {
            at: timestamp(f.at),
            text: "the first figure above the limit".into(),
            evidence: Some(f.evidence.clone()),
            ..Since::default()
        }),
        remedy: remedy(FaultClass::MemoryOverLimit).into(),
        evidence: vec![worst.evidence.clone()],
        confidence: Confidence {
            level: Level::Certain,
            why: "both figures stand in the same line".into(),
        },
        details: vec![format!(
            "{} bytes against {} bytes",
            count(worst.used as u64),
            count(limit as u64)
        )],
        ..Finding::default()
    })
}

/// Memory over time; of the same figure in several lines, one.
pub(crate) fn memory_events(facts: &[MemoryFact]) -> Vec<TimelineEvent> {
    let mut facts: Vec<&MemoryFact> = facts.iter().collect();
    facts.dedup_by_key(|fact| (fact.at, fact.used as u64));
    let event = |fact: &MemoryFact| TimelineEvent {
        at: timestamp(fact.at),
        kind: EventKind::Memory,
        text: fact.text(),
        count: 1,
        value: Some(fact.used),
        unit: Some("bytes".into()),
        evidence: Some(fact.evidence.clone()),
        ..TimelineEvent::default()
    };
    facts.into_iter().map(event).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(used: f64, limit: Option<f64>) -> MemoryFact {
        MemoryFact {
            used,
            limit,
            at: Some(0),
            evidence: Evidence::default(),
        }
    }

    #[test]
    fn only_what_is_above_its_limit_is_found() {
        assert_eq!(over_limit(&[fact(5e9, Some(6e9)), fact(9e9, None)]), None);
        let found = over_limit(&[
            fact(7e9, Some(6e9)),
            fact(109_572_132_864.0, Some(6_442_450_944.0)),
        ]);
        assert_eq!(
            found.unwrap().title,
            "memory: 109.6 GB in use against a limit of 6 GiB, 17.0 times"
        );
    }
}
