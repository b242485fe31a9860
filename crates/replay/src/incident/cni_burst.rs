//! cni-burst: a fresh node gets all its pods at once, and one kernel call hangs.
//!
//! The report: about 80 pods on a fresh node, 120 s until the runtime gives up, a retry after each
//! failure, and 59,962 set-ups handled one at a time in 16 hours: 0.96 s of the one lock for each.

use std::time::Duration;

use serde_json::json;

use super::{Incident, Need};
use crate::outcome::{Ended, Judge, Parameters, Relation, Requirement};
use crate::plan::Plan;
use crate::{new, old};

pub(crate) const INCIDENT: Incident = Incident {
    name: "cni-burst",
    about: "a node gets 100 pods at once, and one set-up hangs in the kernel",
    needs: &[Need::Root, Need::Plugin],
    level: "pods with a network",
    limit: |plan| Load::of(plan).deadline * 6,
    parameters: |plan| Load::of(plan).parameters(),
    old: old::cni_burst::run,
    new: new::cni_burst::run,
    requirements: |plan, new| requirements(&Load::of(plan), new),
    void: |plan, old, new| void(&Load::of(plan), old, new),
};

/// The report's own times.
const DEADLINE: Duration = Duration::from_secs(120);
const SETTLING: Duration = Duration::from_millis(960);
/// Enough for a request to get under way.
const HEAD_START: Duration = Duration::from_millis(200);
/// Fewer pods than this queue up for nobody.
const LEAST: usize = 8;

/// What both designs get.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) pods: usize,
    /// Which of them hangs.
    pub(crate) hung: usize,
    /// How much faster time goes here than in the report; the same for both designs.
    pub(crate) time: f64,
    /// When a runtime gives up on one set-up.
    pub(crate) deadline: Duration,
    /// How long the kernel call hangs: a little longer than anybody waits.
    pub(crate) hang: Duration,
    /// What one set-up waits for its addresses to settle, where the design waits for that.
    pub(crate) settling: Duration,
    /// Between a failure and the next try.
    pub(crate) again: Duration,
    /// After which an operation is named in the slow log.
    pub(crate) slow: Duration,
}

impl Load {
    pub(crate) fn of(plan: &Plan) -> Self {
        let pods = plan.of(100, 1);
        // A runtime's deadline is in whole seconds.
        let time = if plan.scale < 0.5 { 0.025 } else { 0.1 };
        let deadline = DEADLINE.mul_f64(time);
        Self {
            pods,
            hung: plan.random().usize(..pods),
            time,
            deadline,
            hang: deadline + Duration::from_secs(1),
            settling: SETTLING.mul_f64(time),
            again: Duration::from_secs(1).mul_f64(time),
            slow: Duration::from_secs(1),
        }
    }

    /// Returns when it is this pod's turn to begin: the one that hangs is the first in the queue, where
    /// there is one; the others come all at once.
    pub(crate) fn in_turn(&self, pod: usize) {
        if pod != self.hung {
            std::thread::sleep(HEAD_START);
        }
    }

    fn parameters(&self) -> Parameters {
        let seconds = |duration: Duration| json!(duration.as_secs_f64());
        Parameters::from([
            ("pods".to_owned(), json!(self.pods)),
            ("hungPodWhichIsFirst".to_owned(), json!(format!("pod-{}", self.hung))),
            ("timeScale".to_owned(), json!(self.time)),
            ("deadlineSeconds".to_owned(), seconds(self.deadline)),
            ("hangSeconds".to_owned(), seconds(self.hang)),
            ("settlingSecondsUnderTheOldLock".to_owned(), seconds(self.settling)),
            ("slowAfterSeconds".to_owned(), seconds(self.slow)),
        ])
    }
}

fn requirements(load: &Load, new: &Ended) -> Vec<Requirement> {
    let (others, deadline) = ((load.pods - 1) as f64, load.deadline.as_secs_f64() * 1e3);
    let mut judge = Judge::of(new);
    judge.exactly("pods set up while one hangs", "setUpWhileHung", others, "pods");
    judge.at_most("their p99 against the same burst with no hang", "p99Ratio", 2.0, "times");
    judge.named_within("the hung one is named with its step", 5000.0);
    judge.at_most("the hung one fails at its deadline", "hungFailedMs", deadline + 1000.0, "ms");
    judge.at_most("a retry while it hangs is refused at once", "retryRefusedMs", 1000.0, "ms");
    judge.exactly("a retry after it succeeds", "retrySucceeded", 1.0, "pods");
    judge.exactly("addresses given twice", "addressesTwice", 0.0, "addresses");
    judge.exactly("addresses left after all are gone", "addressesLeaked", 0.0, "addresses");
    judge.exactly("interfaces left after all are gone", "interfacesLeaked", 0.0, "interfaces");
    judge.exactly("metrics of flight, wait, steps and hangs", "metricsThere", 4.0, "metrics");
    judge.requirements()
}

fn void(load: &Load, old: &Ended, new: &Ended) -> Option<String> {
    if load.pods < LEAST {
        return Some(format!("{} pods are no burst: at least {LEAST}", load.pods));
    }
    let asked = Requirement::new(
        "pods asked for",
        new.figures.get("asked").copied(),
        Relation::AtLeast,
        load.pods as f64,
        "pods",
    );
    if !asked.ok {
        return Some("the load was not made: too few pods were asked for".to_owned());
    }
    let bore = old.figures.get("setUpWithinDeadline").copied().unwrap_or(0.0);
    (bore >= (load.pods - 1) as f64)
        .then(|| "the old design bore this load: it shows nothing".to_owned())
}

#[cfg(test)]
mod tests;
