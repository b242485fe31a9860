//! late-crd: a tenant's Peer CRD lands after the first reconcile of its mesh.
//!
//! The report: "no such kind" was kept for the life of the process; 13 minutes until a person restarted
//! it, while a tenant beside it, of the same process, went on.

use std::time::Duration;

use serde_json::json;

use super::{Incident, Need};
use crate::outcome::{Ended, Judge, Parameters, Requirement};
use crate::plan::Plan;
use crate::{new, old};

pub(crate) const INCIDENT: Incident = Incident {
    name: "late-crd",
    about: "a tenant's CRD lands after the first reconcile",
    needs: &[Need::Kube],
    level: "peers",
    limit: |plan| Load::of(plan).watched(),
    parameters: |plan| Load::of(plan).parameters(),
    old: old::late_crd::run_crd,
    new: new::mesh::run_crd,
    requirements: |_, new| requirements(new),
    void: |_, old, new| void(old, new),
};

/// What both designs get.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Of each cluster.
    pub(crate) nodes: usize,
    /// How long after the mesh what is late lands.
    pub(crate) late_by: Duration,
}

/// Once it has landed a mesh must converge within this: "seconds", and a machine that is busy.
pub(super) const CONVERGED_WITHIN_MS: f64 = 10_000.0;

impl Load {
    pub(crate) fn of(plan: &Plan) -> Self {
        let late_by = Duration::from_secs(if plan.scale < 0.5 { 1 } else { 5 });
        Self { nodes: plan.of(4, 1), late_by }
    }

    /// How long the old design is watched: three times what the new one may take.
    pub(super) fn watched(&self) -> Duration {
        self.late_by + Duration::from_millis(3 * CONVERGED_WITHIN_MS as u64)
    }

    pub(super) fn parameters(&self) -> Parameters {
        Parameters::from([
            ("nodesOfEachCluster".to_owned(), json!(self.nodes)),
            ("lateBySeconds".to_owned(), json!(self.late_by.as_secs_f64())),
            ("oldDesignWatchedForSeconds".to_owned(), json!(self.watched().as_secs_f64())),
        ])
    }
}

fn requirements(new: &Ended) -> Vec<Requirement> {
    let mut judge = Judge::of(new);
    judge.named_within("the mesh says that it waits for the CRD", 10_000.0);
    judge.at_most("converged after the CRD landed", "crdMs", CONVERGED_WITHIN_MS, "ms");
    untouched(&mut judge);
    judge.requirements()
}

/// Nothing else noticed.
pub(super) fn untouched(judge: &mut Judge<'_>) {
    judge.exactly("peers of the mesh beside it that changed", "besideChanged", 0.0, "peers");
    judge.at_least("peers of the mesh beside it", "besidePeers", 2.0, "peers");
    judge.exactly("new terms of the leader", "newTerms", 0.0, "terms");
    judge.exactly("tasks that panicked", "panics", 0.0, "tasks");
}

pub(super) fn void(old: &Ended, new: &Ended) -> Option<String> {
    if new.figures.get("waited").copied() != Some(1.0) {
        return Some("nothing was late: the mesh was never seen to wait".to_owned());
    }
    (old.figures.get("converged").copied() != Some(0.0))
        .then(|| "the old design bore this: it shows nothing".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::tests::{can_each_fail, ended};

    fn good() -> Ended {
        let beside = [("besideChanged", 0.0), ("besidePeers", 2.0), ("newTerms", 0.0)];
        let own = [("crdMs", 100.0), ("panics", 0.0), ("waited", 1.0)];
        ended(&[&beside[..], &own].concat())
    }

    #[test]
    fn each_requirement_can_fail() {
        can_each_fail(&good(), requirements);
    }

    #[test]
    fn a_run_that_shows_nothing_is_void() {
        let old = ended(&[("converged", 0.0)]);
        assert_eq!(void(&old, &good()), None);
        assert!(void(&old, &Ended::default()).unwrap().contains("never seen to wait"));
        assert!(void(&ended(&[("converged", 1.0)]), &good()).unwrap().contains("bore"));
        assert!(void(&Ended::default(), &good()).is_some());
    }
}
