//! late-node: a tenant's Secret, then its nodes, land after the first reconcile of its mesh; then the
//! Secret is rotated.
//!
//! The report: a source without nodes reconciled "successfully" to nothing, and nobody came back for 17
//! minutes.

use super::late_crd::{CONVERGED_WITHIN_MS, Load, untouched, void};
use super::{Incident, Need};
use crate::outcome::{Ended, Judge, Requirement};
use crate::{new, old};

pub(crate) const INCIDENT: Incident = Incident {
    name: "late-node",
    about: "a tenant's Secret and nodes land after the first reconcile",
    needs: &[Need::Kube],
    level: "peers",
    limit: |plan| Load::of(plan).watched(),
    parameters: |plan| Load::of(plan).parameters(),
    old: old::late_crd::run_node,
    new: new::mesh::run_node,
    requirements: |_, new| requirements(new),
    void: |_, old, new| void(old, new),
};

fn requirements(new: &Ended) -> Vec<Requirement> {
    let mut judge = Judge::of(new);
    judge.named_within("the mesh says that it waits for the Secret", 10_000.0);
    let limit = CONVERGED_WITHIN_MS;
    judge.at_most("connected after the Secret landed", "secretMs", limit, "ms");
    judge.at_most("converged after the nodes landed", "nodesMs", limit, "ms");
    judge.at_most("converged after the Secret rotated", "rotatedMs", limit, "ms");
    untouched(&mut judge);
    judge.requirements()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::tests::{can_each_fail, ended};

    #[test]
    fn each_requirement_can_fail() {
        let good = ended(&[
            ("secretMs", 10.0),
            ("nodesMs", 10.0),
            ("rotatedMs", 10.0),
            ("besideChanged", 0.0),
            ("besidePeers", 2.0),
            ("newTerms", 0.0),
            ("panics", 0.0),
        ]);
        can_each_fail(&good, requirements);
    }
}
