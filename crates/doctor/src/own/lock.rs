//! `/debug/locks`: classes of locks, and who holds those that are waited for.

use serde::Deserialize;

use super::LATE_MS;
use crate::analysis::remedy;
use crate::figures::{many, seconds};
use crate::metrics::slug;
use crate::report::{
    Confidence, Evidence, FaultClass, Finding, Held, HeldMode, Holder, Level, Resource,
    ResourceKind, Severity, Since, Waiters,
};

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Lock {
    class: String,
    held: Vec<Hold>,
}

#[derive(Debug, Clone, Deserialize)]
struct Hold {
    /// Where the holder took it.
    holder: String,
    held_ms: Option<f64>,
    waiting: u64,
    /// Where the one is who has waited longest, and for how long.
    waiter: Option<String>,
    waiting_ms: Option<f64>,
}

impl Lock {
    /// Holds that somebody has waited for too long.
    pub(super) fn findings(&self, input: &str) -> impl Iterator<Item = Finding> {
        self.held
            .iter()
            .filter(|hold| hold.waiting > 0 && hold.waited() >= LATE_MS)
            .map(|hold| self.finding(hold, input))
    }

    fn finding(&self, hold: &Hold, input: &str) -> Finding {
        let Self { class, .. } = self;
        let waited = seconds(hold.waited() / 1000.0);
        let held =
            hold.held_ms.map_or(String::new(), |ms| format!(" for {}", seconds(ms / 1000.0)));
        let waiter = hold.waiter.as_deref().unwrap_or("somebody");
        let evidence = Evidence {
            input: input.to_owned(),
            line: None,
            text: format!("{class}: held by {}{held}; {waiter} waits for {waited}", hold.holder),
        };
        let certain = |why: &str| Confidence { level: Level::Certain, why: why.to_owned() };
        Finding {
            id: format!("lock-{}", slug(class)),
            class: FaultClass::HeldAcrossWork,
            severity: if hold.waiting >= 100 { Severity::Critical } else { Severity::Serious },
            title: format!(
                "{} for the lock {class}, taken in {}",
                many(hold.waiting, "thread or task waits", "threads or tasks wait"),
                hold.holder
            ),
            resource: Resource {
                kind: ResourceKind::Lock,
                name: class.clone(),
                ..Resource::default()
            },
            held: Some(Held {
                mode: HeldMode::Write,
                why: "the lock records its holder".into(),
                evidence: vec![evidence.clone()],
            }),
            waiters: Waiters { total: hold.waiting, ..Waiters::default() },
            since: Some(Since {
                text: format!("the longest has waited for {waited}"),
                ..Since::default()
            }),
            holders: vec![Holder {
                count: 1,
                frame: hold.holder.clone(),
                confidence: certain("the lock records where it was taken"),
                evidence: Some(evidence.clone()),
                ..Holder::default()
            }],
            remedy: remedy(FaultClass::HeldAcrossWork).into(),
            evidence: vec![evidence],
            confidence: certain("the lock records who holds it and who waits"),
            ..Finding::default()
        }
    }
}

impl Hold {
    fn waited(&self) -> f64 {
        self.waiting_ms.unwrap_or(0.0)
    }
}
