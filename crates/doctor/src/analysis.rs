//! Dumps in, findings out. One rule a file; what the evidence cannot carry is not said.
//!
//! ```text
//! Dump ─► Scene ─► queues ─► candidates ─► cycles ─┐
//!           │                                      ├─► findings ─► joined over dumps of a process
//!           ├────► senders, pools, leaks ──────────┤
//! table ────┴──────────────────────────────────────┘
//! ```

mod compare;
mod consequence;
mod contention;
mod cycle;
mod entry;
mod graph;
mod holder;
mod lock;
mod others;
mod owner;
mod queue;
mod remedy;
mod scene;
mod site;
mod table;
mod wait;

pub use remedy::remedy;

use crate::goroutine::{Dump, Form, ProfileKind};
use crate::report::{
    Comparison, Finding, Held, HeldMode, Note, PathCount, ResourceKind, WaitGraph,
};

use lock::Locks;
use scene::Scene;

/// What all dumps show together.
#[derive(Debug, Default)]
pub struct Diagnosis {
    /// In no order.
    pub findings: Vec<Finding>,
    /// Pairs of dumps of one process.
    pub comparisons: Vec<Comparison>,
    /// What else is parked in the last dump.
    pub parked: Vec<PathCount>,
    /// Limits of the evidence.
    pub notes: Vec<Note>,
}

/// Examines dumps, given in the order in which they were taken.
pub fn diagnose(dumps: &[Dump]) -> Diagnosis {
    let mut diagnosis = Diagnosis::default();
    let mut processes: Vec<Process<'_>> = Vec::new();
    for dump in dumps {
        if matches!(dump.kind, ProfileKind::Mutex | ProfileKind::Block) {
            continue;
        }
        diagnosis.notes.extend(dump.gaps.iter().map(|gap| Note {
            text: format!("{}: {gap}", dump.taken_for()),
            input: Some(dump.input.clone()),
        }));
        let scene = Scene::new(dump);
        let mut unmoved = compare::Unmoved::default();
        let mut process = None;
        let mut followed = false;
        for (p, known) in processes.iter().enumerate() {
            let compared = known.compare(&scene);
            // Without numbers, two replicas look like one process: compared, but not joined.
            let joined = compared.as_ref().is_some_and(|(c, _)| c.by_goroutine);
            if let Some((comparison, same)) = compared {
                diagnosis.comparisons.push(comparison);
                unmoved = same;
                followed = joined && scene.is_complete();
            }
            if joined || known.is_same_profile(dump) {
                process = Some(p);
                break;
            }
        }
        let mut findings = match dump.form {
            Form::Text => table::examine(dump),
            _ => Locks::new(&scene, &unmoved).findings(),
        };
        findings.extend(others::findings(&scene, &unmoved));
        consequence::attribute(&mut findings);
        diagnosis.parked = others::parked(&scene);
        match process {
            Some(p) => {
                if followed {
                    processes[p].forget_what_passed(&findings);
                }
                processes[p].add(dump, findings);
            }
            None => processes.push(Process { dumps: vec![dump], findings }),
        }
    }
    for process in processes {
        diagnosis.findings.extend(process.findings);
    }
    for profile in
        dumps.iter().filter(|d| matches!(d.kind, ProfileKind::Mutex | ProfileKind::Block))
    {
        for finding in &mut diagnosis.findings {
            contention::witness(finding, profile);
        }
    }
    diagnosis
}

/// The findings drawn as one graph.
pub fn graph(findings: &[Finding]) -> WaitGraph {
    let mut graph = WaitGraph::default();
    for finding in findings.iter().filter(|f| !f.waiters.is_empty()) {
        graph::draw(&mut graph, finding);
    }
    graph
}

/// Dumps of one process, and what they show together.
#[derive(Debug)]
struct Process<'d> {
    dumps: Vec<&'d Dump>,
    findings: Vec<Finding>,
}

impl<'d> Process<'d> {
    /// Whether the dump is the same profile printed once more, or the same moment in another form.
    fn is_same_profile(&self, dump: &Dump) -> bool {
        self.dumps.iter().any(|d| {
            let same_build = d.build_id.is_some() && d.build_id == dump.build_id;
            (same_build && d.taken == dump.taken) || compare::is_same_moment(d, dump)
        })
    }

    fn compare(&self, later: &Scene<'_>) -> Option<(Comparison, compare::Unmoved)> {
        let earlier = self.dumps.iter().rev().find(|d| {
            d.form != Form::Text
                && d.kind == later.dump.kind
                && !(d.taken.is_some() && d.taken == later.dump.taken)
                && (d.input != later.dump.input || d.form == later.dump.form)
        })?;
        compare::compare(earlier, later)
    }

    /// Drops what an earlier dump showed of a lock that a later one shows no longer, or better: the
    /// later knows whether anybody moved.
    fn forget_what_passed(&mut self, later: &[Finding]) {
        let is_lock = |f: &Finding| {
            matches!(f.resource.kind, ResourceKind::Mutex | ResourceKind::RwMutex)
                && !f.waiters.is_empty()
        };
        let lock = |f: &Finding| (f.resource.kind, f.resource.name.clone());
        self.findings.retain(|known| {
            !is_lock(known)
                || later.iter().any(|f| {
                    lock(f) == lock(known)
                        && f.resource.address == known.resource.address
                        && f.class == known.class
                })
        });
    }

    fn add(&mut self, dump: &'d Dump, findings: Vec<Finding>) {
        self.dumps.push(dump);
        for finding in findings {
            // A form with addresses has told them apart already, or does so now.
            let resource = |f: &Finding| (f.resource.kind, f.resource.name.clone());
            let queues = |f: &Finding| !f.waiters.is_empty();
            let same =
                |f: &Finding| resource(f) == resource(&finding) && queues(f) == queues(&finding);
            let known = &mut self.findings;
            if finding.resource.address.is_some() {
                known.retain(|f| !(same(f) && f.resource.address.is_none()));
            } else if known.iter().any(|f| same(f) && f.resource.address.is_some()) {
                continue;
            }
            let twin = known.iter_mut().find(|f| {
                same(f)
                    && f.resource.address == finding.resource.address
                    && f.class == finding.class
            });
            match twin {
                Some(twin) => join(twin, finding),
                None => known.push(finding),
            }
        }
    }
}

/// Two findings on one resource: the one that explains more stays, and takes what the other knows.
fn join(known: &mut Finding, mut other: Finding) {
    let says = |f: &Finding| {
        let unknown = |h: &Held| h.mode == HeldMode::Unknown;
        (!f.holders.is_empty(), f.waiters.total, !f.held.as_ref().is_none_or(unknown))
    };
    if says(&other) >= says(known) {
        std::mem::swap(known, &mut other);
    }
    if known.held.as_ref().is_none_or(|h| h.mode == HeldMode::Unknown)
        && other.held.as_ref().is_some_and(|h| h.mode != HeldMode::Unknown)
    {
        known.held = other.held;
    }
    if known.since.is_none() {
        known.since = other.since;
    }
    known.severity = known.severity.min(other.severity);
    // Whole call paths say more than a table's functions.
    let depth = |paths: &[PathCount]| paths.iter().map(|p| p.frames.len()).max().unwrap_or(0);
    if depth(&known.waiters.by_path) < depth(&other.waiters.by_path) {
        let listed = |p: &PathCount| other.waiters.by_path.iter().any(|o| o.count == p.count);
        let only_known: Vec<PathCount> =
            known.waiters.by_path.iter().filter(|p| !listed(p)).cloned().collect();
        known.waiters.by_path = other.waiters.by_path;
        known.waiters.by_path.extend(only_known);
        known.waiters.by_path.sort_by_key(|p| std::cmp::Reverse(p.count));
    }
    for evidence in other.evidence {
        if !known.evidence.contains(&evidence) {
            known.evidence.push(evidence);
        }
    }
    for detail in other.details {
        if !known.details.contains(&detail) {
            known.details.push(detail);
        }
    }
}

#[cfg(test)]
mod tests;
