//! The decisions of several replicas as one audit.
//!
//! Contract: a line is of one owner, image and rule whichever replica decided, so that two lines on the
//! same become one: their counts add up, and the rest is of the later one. Every replica puts the same
//! lines together in the same way.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use admission::AuditKey;
use sha2::{Digest, Sha256};

use super::{AdmissionAudit, AdmissionLine, AuditParams};
use crate::api::replicas::ReplicaParts;

/// Whole numbers that every client reads as they are have so many bits.
const BITS: u32 = 53;

impl AdmissionAudit {
    /// With what the `others` told, the latest first: what is `asked` for of it.
    pub(super) fn together(self, others: ReplicaParts<Self>, asked: &AuditParams) -> Self {
        let mut whole = Self { lines: Vec::new(), missing: others.missing, ..self };
        let mut lines = HashMap::<AuditKey, AdmissionLine>::new();
        let mut add = |line: AdmissionLine| match lines.entry(line.subject()) {
            Entry::Vacant(place) => {
                place.insert(line);
            }
            Entry::Occupied(mut place) => place.get_mut().add(line),
        };
        self.lines.into_iter().for_each(&mut add);
        for (_, part) in others.told {
            whole.forgotten = whole.forgotten.saturating_add(part.forgotten);
            whole.dropped = whole.dropped.saturating_add(part.dropped);
            whole.not_kept = whole.not_kept.saturating_add(part.not_kept);
            part.lines.into_iter().for_each(&mut add);
        }
        let wanted = lines.into_iter();
        let wanted = wanted.filter(|(_, line)| asked.since.is_none_or(|since| line.last >= since));
        whole.lines = wanted
            .map(|(subject, line)| AdmissionLine { id: id(&subject, &line), ..line })
            .collect();
        whole.lines.sort_by_key(|line| Reverse((line.last, line.id)));
        whole.lines.truncate(asked.limit());
        whole
    }
}

impl AdmissionLine {
    fn subject(&self) -> AuditKey {
        AuditKey {
            outcome: self.outcome,
            cluster: self.cluster.clone(),
            namespace: self.namespace.clone(),
            owner: self.owner.clone(),
            image: self.image.clone(),
            rule: self.rule.clone(),
            dry_run: self.dry_run,
        }
    }

    /// Counts another replica's decisions on the same.
    fn add(&mut self, other: Self) {
        let count = self.count.saturating_add(other.count);
        let first = self.first.min(other.first);
        // The one that every replica takes, even of two at the same time.
        let rank = |line: &Self| (line.last, line.object.clone(), line.user.clone());
        if rank(&other) > rank(self) {
            *self = other;
        }
        (self.count, self.first) = (count, first);
    }
}

/// The number of a line that several replicas count: another one with every decision.
fn id(subject: &AuditKey, line: &AdmissionLine) -> u64 {
    let text = format!("{subject:?} {} {} {}", line.count, line.first, line.last);
    let digest = Sha256::digest(text);
    let bytes = digest.first_chunk::<8>().copied().unwrap_or_default();
    u64::from_be_bytes(bytes) >> (u64::BITS - BITS)
}
