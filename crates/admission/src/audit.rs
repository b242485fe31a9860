//! `Audit`: what was decided, one line for each owner and image and rule, with how often.
//!
//! Contract: a decision never waits for it. What comes faster than it is written down is dropped and
//! counted; what is more than may be kept goes, the oldest first, and is counted. Lines about what was
//! refused or would have been have room of their own, so that a thousand admissions push none of them
//! out. Readers read a snapshot. Where files are given, what changed is on disk within seconds, and there again
//! after a restart ([`files`]).

pub(super) mod files;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use imbl::OrdMap;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use files::AuditFiles;

/// Lines on what a rule refused, or would have: about 1 KiB each.
const MOST_VIOLATIONS: usize = 4096;
const MOST_ADMISSIONS: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Allowed,
    /// Refused.
    Denied,
    /// Admitted although a rule in monitor mode matched.
    Monitored,
}

impl Outcome {
    pub fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Monitored => "monitored",
        }
    }

    fn is_violation(self) -> bool {
        self != Self::Allowed
    }
}

/// What lines are told apart by.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditKey {
    pub outcome: Outcome,
    pub cluster: String,
    pub namespace: String,
    /// Kind and name of the root owner as far as it is known; else of what controls the object; else
    /// its own.
    pub owner: String,
    /// The image of the container that decided; all of them where none did.
    pub image: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    pub dry_run: bool,
}

/// One decision on it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Decided {
    /// Kind and name.
    pub object: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    pub user: String,
    /// The sentence.
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Line {
    #[serde(flatten)]
    pub subject: AuditKey,
    #[serde(flatten)]
    pub latest: Decided,
    pub count: u64,
    pub first: Timestamp,
    pub last: Timestamp,
}

/// The lines at one moment.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// By when they last changed: the greatest is the latest.
    pub lines: OrdMap<u64, Arc<Line>>,
    /// Lines that had to make room.
    pub forgotten: u64,
}

/// Who writes them.
#[derive(Debug, Default)]
pub(super) struct AuditWriter {
    audit: Audit,
    next: u64,
    at: HashMap<AuditKey, u64>,
    violations: BTreeSet<u64>,
    admissions: BTreeSet<u64>,
    /// Lines up to this one are on disk, or on their way.
    written: u64,
    /// Lines that made room before they were.
    not_written: u64,
}

impl AuditWriter {
    /// Takes lines that were kept on disk, the oldest first.
    pub(super) fn restore(&mut self, lines: Vec<Line>) {
        for line in lines {
            self.insert(line);
        }
        self.written = self.next;
    }

    /// Hands what has changed to the files; false while they are busy.
    pub(super) fn flush(&mut self, files: &AuditFiles) -> bool {
        let lines = self.unwritten();
        let taken = lines.is_empty() || files.try_write(&lines);
        if taken {
            self.written = self.next;
        }
        taken
    }

    /// The lines that have changed since they were handed to the files.
    pub(super) fn unwritten(&self) -> Vec<Arc<Line>> {
        self.audit.lines.range(self.written + 1..).map(|(_, line)| Arc::clone(line)).collect()
    }

    /// How many lines made room for others before they were handed to the files.
    pub(super) fn not_written(&self) -> u64 {
        self.not_written
    }

    pub(super) fn audit(&self) -> Audit {
        self.audit.clone()
    }

    pub(super) fn write(&mut self, subject: AuditKey, latest: Decided, now: Timestamp) {
        let before = self.at.get(&subject).copied().and_then(|at| self.remove(at));
        let (count, first) = before.map_or((0, now), |line| (line.count, line.first));
        self.insert(Line { subject, latest, count: count + 1, first, last: now });
    }

    fn insert(&mut self, line: Line) {
        self.next += 1;
        let at = self.next;
        let (kept, most) = self.kept(line.subject.outcome);
        kept.insert(at);
        if kept.len() > most
            && let Some(oldest) = kept.first().copied()
            && let Some(line) = self.remove(oldest)
        {
            self.at.remove(&line.subject);
            self.audit.forgotten += 1;
            self.not_written += u64::from(oldest > self.written);
        }
        self.at.insert(line.subject.clone(), at);
        self.audit.lines.insert(at, Arc::new(line));
    }

    fn kept(&mut self, outcome: Outcome) -> (&mut BTreeSet<u64>, usize) {
        if outcome.is_violation() {
            (&mut self.violations, MOST_VIOLATIONS)
        } else {
            (&mut self.admissions, MOST_ADMISSIONS)
        }
    }

    fn remove(&mut self, at: u64) -> Option<Arc<Line>> {
        let line = self.audit.lines.remove(&at)?;
        self.kept(line.subject.outcome).0.remove(&at);
        Some(line)
    }
}

#[cfg(test)]
mod tests;
