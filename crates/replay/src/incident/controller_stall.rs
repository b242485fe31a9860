//! controller-stall: one writer is stuck for a minute, while agents report and join, pods are reviewed
//! and people read.
//!
//! The report: 190,359 requests parked behind one mutex, of which 128,846 reports, 47,501 joins, 9,832
//! reviews and 2,573 timers; 109 GB where 6 were allowed; the leader lost; 55 nodes' agents restarting
//! for days.

use std::time::Duration;

use serde_json::json;

use super::Incident;
use crate::outcome::{Ended, Judge, Parameters, Relation, Requirement};
use crate::plan::Plan;
use crate::{new, old};

pub(crate) const INCIDENT: Incident = Incident {
    name: "controller-stall",
    about: "one writer is stuck for 60 s under 128,846 reports, 47,501 joins and 10,176 reviews",
    needs: &[],
    level: "reviews decided",
    limit: |plan| Load::of(plan).hold + 3 * DEADLINE,
    parameters: |plan| Load::of(plan).parameters(),
    old: old::controller_stall::run,
    new: new::controller_stall::run,
    requirements: |plan, new| requirements(&Load::of(plan), new),
    void: |plan, old, new| void(&Load::of(plan), old, new),
};

/// When whoever asked gives up: an API server's patience with a webhook, and an agent's with a report.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);
/// Of one report: what a node has to tell after some seconds.
pub(crate) const RECORDS: usize = 64;
/// What the server may take at its peak, where the report's was allowed 6 GiB and took 109: the budgets
/// of what is read and what waits (160 MiB), and a process with its connections.
const MEMORY: f64 = 512.0 * 1024.0 * 1024.0;
/// Fewer reports than this fill no queue.
const LEAST: usize = 1000;

/// What both designs get, spread evenly over the time in which the writer is stuck.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) reports: usize,
    pub(crate) joins: usize,
    pub(crate) reviews: usize,
    pub(crate) timers: usize,
    /// Of people: a list of conversations.
    pub(crate) reads: usize,
    /// How many nodes report. A hundred times the 55 of the report, because an agent of ours has one
    /// report under way at a time: so few would not make this load.
    pub(crate) agents: usize,
    pub(crate) hold: Duration,
}

impl Load {
    pub(crate) fn of(plan: &Plan) -> Self {
        Self {
            reports: plan.of(128_846, 1),
            joins: plan.of(47_501, 1),
            reviews: plan.of(10_176, 1),
            timers: plan.of(2_573, 1),
            reads: plan.of(3_000, 1),
            agents: plan.of(5_500, 20),
            hold: Duration::from_secs(if plan.scale < 0.5 { 12 } else { 60 }),
        }
    }

    pub(crate) fn all(&self) -> usize {
        self.reports + self.joins + self.reviews + self.reads
    }

    fn parameters(&self) -> Parameters {
        Parameters::from([
            ("reports".to_owned(), json!(self.reports)),
            ("recordsOfAReport".to_owned(), json!(RECORDS)),
            ("joins".to_owned(), json!(self.joins)),
            ("reviews".to_owned(), json!(self.reviews)),
            ("timersOfTheOldDesign".to_owned(), json!(self.timers)),
            ("reads".to_owned(), json!(self.reads)),
            ("agents".to_owned(), json!(self.agents)),
            ("stuckForSeconds".to_owned(), json!(self.hold.as_secs_f64())),
            ("deadlineSeconds".to_owned(), json!(DEADLINE.as_secs_f64())),
        ])
    }
}

/// How many of `all` are due after `elapsed` of `span`.
pub(crate) fn due(all: usize, elapsed: Duration, span: Duration) -> usize {
    let part = elapsed.as_secs_f64() / span.as_secs_f64();
    ((all as f64 * part) as usize).min(all)
}

fn requirements(load: &Load, new: &Ended) -> Vec<Requirement> {
    let mut judge = Judge::of(new);
    let late = DEADLINE.as_secs_f64() * 1e3 + 1000.0;
    judge.exactly(
        "requests neither answered nor refused with a time",
        "unanswered",
        0.0,
        "requests",
    );
    judge.at_most("the longest wait of any request", "longestMs", late, "ms");
    let reviews = load.reviews as f64;
    judge.exactly("reviews decided", "reviewsDecided", reviews, "reviews");
    judge.at_most(
        "a review's p99 against the same load with nothing stuck",
        "reviewRatio",
        2.0,
        "times",
    );
    judge.exactly("reads answered", "readsAnswered", load.reads as f64, "reads");
    judge.at_most(
        "a read's p99 against the same load with nothing stuck",
        "readRatio",
        2.0,
        "times",
    );
    let peak = new.peak_memory_bytes as f64;
    judge.value("peak memory of the server", Some(peak), Relation::AtMost, MEMORY, "bytes");
    judge.named_within("the stuck writer is named with its step", 5000.0);
    judge.exactly("terms of the leader that ended", "termsEnded", 0.0, "terms");
    judge.exactly("restarts of the server", "restarts", 0.0, "restarts");
    judge.exactly(
        "agents whose reports count afterwards",
        "countedAfter",
        load.agents as f64,
        "agents",
    );
    judge.exactly("sessions counted too often or not at all", "sessionsWrong", 0.0, "sessions");
    judge.requirements()
}

fn void(load: &Load, old: &Ended, new: &Ended) -> Option<String> {
    if load.reports < LEAST {
        return Some(format!("{} reports are no flood: at least {LEAST}", load.reports));
    }
    let figure = |name: &str| new.figures.get(name).copied().unwrap_or(0.0);
    // A report that an agent merged into its next one was due all the same.
    let made = figure("asked") + figure("reportsMerged");
    let each = figure("reportsSent") >= load.agents as f64;
    if made < load.all() as f64 || !each {
        return Some(format!("the load was not made: {made} of {} requests", load.all()));
    }
    let bore = old.stopped.is_none() && old.failed == 0;
    bore.then(|| "the old design bore this load: it shows nothing".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::tests::{can_each_fail, ended, plan};

    fn good(load: &Load) -> Ended {
        ended(&[
            ("asked", load.all() as f64),
            ("reportsSent", load.reports as f64),
            ("unanswered", 0.0),
            ("longestMs", 10_000.0),
            ("reviewsDecided", load.reviews as f64),
            ("reviewRatio", 1.0),
            ("readsAnswered", load.reads as f64),
            ("readRatio", 1.0),
            ("termsEnded", 0.0),
            ("restarts", 0.0),
            ("countedAfter", load.agents as f64),
            ("sessionsWrong", 0.0),
        ])
    }

    #[test]
    fn each_requirement_can_fail() {
        let load = Load::of(&plan(1.0));
        can_each_fail(&good(&load), |ended| requirements(&load, ended));
    }

    #[test]
    fn a_run_that_shows_nothing_is_void() {
        let load = Load::of(&plan(1.0));
        let stuck = Ended { failed: 1, ..Ended::default() };
        assert_eq!(void(&load, &stuck, &good(&load)), None);
        assert!(void(&Load::of(&plan(0.001)), &stuck, &good(&load)).unwrap().contains("no flood"));
        assert!(void(&load, &stuck, &ended(&[("asked", 5.0)])).unwrap().contains("not made"));
        assert!(void(&load, &Ended::default(), &good(&load)).unwrap().contains("bore"));
    }

    #[test]
    fn the_load_is_the_reports_own() {
        let load = Load::of(&plan(1.0));
        assert_eq!((load.reports, load.joins, load.reviews), (128_846, 47_501, 10_176));
        let span = Duration::from_secs(60);
        assert_eq!(due(600, Duration::from_secs(6), span), 60);
        assert_eq!(due(600, Duration::from_secs(70), span), 600);
    }
}
