//! `kubectl get pods`, as pasted: who restarts in a loop.

use std::collections::BTreeMap;

use crate::analysis::remedy;
use crate::figures::count;
use crate::log::At;
use crate::metrics::slug;
use crate::report::{
    Confidence, Evidence, FaultClass, Finding, Level, Resource, ResourceKind, Severity,
};

/// More restarts than this are no coincidence.
const MANY: u64 = 100;

#[derive(Debug, Default)]
pub(crate) struct Pods {
    /// The column of each, from the head of the table that is being read.
    columns: Option<(usize, usize)>,
    groups: BTreeMap<String, Group>,
    /// Pods already seen: reports paste the same table twice.
    seen: std::collections::HashSet<String>,
}

#[derive(Debug, Default)]
struct Group {
    pods: u64,
    looping: u64,
    backing_off: u64,
    most: u64,
    evidence: Evidence,
}

impl Pods {
    /// Takes a line where it is of such a table.
    pub(crate) fn line(&mut self, at: At<'_>) -> bool {
        let Ok(text) = std::str::from_utf8(at.bytes.get(..512).unwrap_or(at.bytes)) else {
            return false;
        };
        let words: Vec<&str> = text.split_whitespace().take(12).collect();
        let column = |name| words.iter().position(|w| *w == name);
        if let (Some(status), Some(restarts), Some(_)) =
            (column("STATUS"), column("RESTARTS"), column("NAME"))
        {
            self.columns = Some((status, restarts));
            return true;
        }
        let Some((status, restarts)) = self.columns else {
            return false;
        };
        if words.is_empty() {
            return true;
        }
        let (Some(status), Some(count)) = (words.get(status), words.get(restarts)) else {
            self.columns = None;
            return false;
        };
        let Ok(restarts) = count.parse::<u64>() else {
            self.columns = None;
            return false;
        };
        const MOST: usize = 100_000;
        if self.seen.len() >= MOST || !self.seen.insert(words[0].to_owned()) {
            return true;
        }
        let group = self.groups.entry(owner(words[0]).to_owned()).or_default();
        let backing_off = *status == "CrashLoopBackOff";
        group.pods += 1;
        group.backing_off += u64::from(backing_off);
        group.looping += u64::from(backing_off || restarts >= MANY);
        if restarts > group.most || group.most == 0 && backing_off {
            group.most = restarts;
            group.evidence = at.evidence();
        }
        true
    }

    pub(crate) fn seen(&self) -> usize {
        self.seen.len()
    }

    pub(crate) fn findings(&self) -> Vec<Finding> {
        let looping = self.groups.iter().filter(|(_, g)| g.looping > 0);
        looping
            .map(|(name, group)| Finding {
                id: format!("crash-loop-{}", slug(name)),
                class: FaultClass::RetryStorm,
                severity: Severity::Serious,
                title: format!(
                    "{} of {} {name} pods restart in a loop, up to {} times",
                    count(group.looping),
                    count(group.pods),
                    count(group.most)
                ),
                resource: Resource {
                    kind: ResourceKind::Other,
                    name: name.clone(),
                    ..Resource::default()
                },
                remedy: remedy(FaultClass::RetryStorm).into(),
                collect_next: vec![
                    "the last lines of one of them: `kubectl logs --previous`".into(),
                ],
                evidence: vec![group.evidence.clone()],
                confidence: Confidence {
                    level: Level::Certain,
                    why: "the table counts the restarts".into(),
                },
                details: vec![format!("{} in CrashLoopBackOff", count(group.backing_off))],
                ..Finding::default()
            })
            .collect()
    }
}

/// The pod's name without what its owner appended: `-854b7c7d46-fhw25`, `-24526`, `-0`.
fn owner(pod: &str) -> &str {
    let generated = |part: &str| {
        !part.is_empty()
            && part.len() <= 10
            && part
                .chars()
                .all(|c| c.is_ascii_digit() || "bcdfghjklmnpqrstvwxz".contains(c))
    };
    let mut name = pod;
    for _ in 0..2 {
        match name.rsplit_once('-') {
            Some((head, last)) if generated(last) => name = head,
            _ => break,
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_loop_are_counted_by_owner_and_once() {
        let table = "NAME  READY STATUS RESTARTS AGE\n\
            c-pod-854b7c7d46-fhw25 1/1 Running 0 25d\n\n\
            e-pod-24526 0/1 CrashLoopBackOff 1557 (3m33s ago) 25d\n\
            e-pod-7x6gr 1/1 Running 1413 (7m24s ago) 25d\n\
            e-pod-2qj5k 1/1 Running 8 (8d ago) 25d\n\
            that was it\n";
        let mut pods = Pods::default();
        for _ in 0..2 {
            for (line, text) in (1..).zip(table.lines()) {
                pods.line(At {
                    input: "x",
                    line,
                    bytes: text.as_bytes(),
                });
            }
        }
        let found = pods.findings();
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].title,
            "2 of 3 e-pod pods restart in a loop, up to 1,557 times"
        );
        assert_eq!(found[0].evidence[0].line, Some(4));
    }
}
