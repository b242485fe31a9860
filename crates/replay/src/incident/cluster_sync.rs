//! cluster-sync: many clusters, some of which refuse, hang, are slow or change, under readers that ask
//! for them without pause.
//!
//! The report: three maps, read by every HTTP request, written by one background sync that builds
//! clients one after the other, TCP and TLS included, while it changes them.

use std::time::Duration;

use serde_json::json;

use super::Incident;
use crate::outcome::{Ended, Judge, Parameters, Requirement};
use crate::plan::Plan;
use crate::stage::stand_in::{FAR, Manner, SLOW};
use crate::{new, old};

pub(crate) const INCIDENT: Incident = Incident {
    name: "cluster-sync",
    about: "500 clusters, some dead, slow or rotating credentials, under readers at full speed",
    needs: &[],
    level: "usable clusters",
    limit: |plan| if plan.scale < 0.5 { Duration::from_secs(10) } else { Duration::from_secs(60) },
    parameters: |plan| Load::of(plan).parameters(),
    old: old::cluster_sync::run,
    new: new::cluster_sync::run,
    requirements: |plan, new| requirements(&Load::of(plan), new),
    void: |plan, old, new| void(&Load::of(plan), old, new),
};

/// Fewer clusters than this do not wait for each other noticeably.
const LEAST: usize = 20;

/// What both designs get: first one set of clusters, then another.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) clusters: Vec<(String, Manner)>,
    /// How many of the last ones, which are well, leave in the second generation.
    pub(crate) leaving: usize,
    /// Who come in their stead.
    pub(crate) coming: Vec<(String, Manner)>,
    /// Requests of users under way at once.
    pub(crate) callers: usize,
}

impl Load {
    pub(crate) fn of(plan: &Plan) -> Self {
        let count = plan.of(500, 1);
        let manner = |i: usize| match i % 10 {
            0 => Manner::Refuses,
            1 => Manner::BlackHole,
            2 => Manner::SlowToShakeHands,
            3 => Manner::Rotates,
            _ => Manner::Well,
        };
        let mut manners: Vec<Manner> = (0..count).map(manner).collect();
        plan.random().shuffle(&mut manners);
        let leaving = (count / 50).max(1);
        // Those that leave are well, so that somebody uses them: they are put last.
        for last in (count.saturating_sub(leaving)..count).rev() {
            if let Some(well) = (0..=last).rev().find(|i| manners[*i] == Manner::Well) {
                manners.swap(last, well);
            }
        }
        let named = |i: usize, manner| (format!("cluster-{i:03}"), manner);
        let clusters = manners.into_iter().enumerate().map(|(i, m)| named(i, m)).collect();
        let coming = (count..count + leaving).map(|i| named(i, Manner::Well)).collect();
        Self { clusters, leaving, coming, callers: 8 }
    }

    /// What there is in a generation: in the second some have left and others have come.
    pub(crate) fn generation(&self, second: bool) -> Vec<(String, Manner)> {
        if !second {
            return self.clusters.clone();
        }
        let staying = &self.clusters[..self.clusters.len() - self.leaving];
        [staying, &self.coming].concat()
    }

    pub(crate) fn count(&self, manners: &[Manner]) -> usize {
        self.clusters.iter().filter(|(_, manner)| manners.contains(manner)).count()
    }

    pub(crate) fn left(&self) -> &[(String, Manner)] {
        &self.clusters[self.clusters.len() - self.leaving..]
    }

    fn parameters(&self) -> Parameters {
        let count = |manner| json!(self.count(&[manner]));
        Parameters::from([
            ("clusters".to_owned(), json!(self.clusters.len())),
            ("well".to_owned(), count(Manner::Well)),
            ("rotating".to_owned(), count(Manner::Rotates)),
            ("slowToShakeHands".to_owned(), count(Manner::SlowToShakeHands)),
            ("refusing".to_owned(), count(Manner::Refuses)),
            ("blackHoles".to_owned(), count(Manner::BlackHole)),
            ("leavingAndComing".to_owned(), json!(self.leaving)),
            ("callers".to_owned(), json!(self.callers)),
            ("answersLateBySeconds".to_owned(), json!(FAR.as_secs_f64())),
            ("slowHandshakeSeconds".to_owned(), json!(SLOW.as_secs_f64())),
        ])
    }
}

fn requirements(load: &Load, new: &Ended) -> Vec<Requirement> {
    let well = load.count(&[Manner::Well, Manner::Rotates]) as f64;
    let slow = load.count(&[Manner::SlowToShakeHands]) as f64;
    let dead = load.count(&[Manner::Refuses, Manner::BlackHole]) as f64;
    let mut judge = Judge::of(new);
    judge.exactly("clusters that are well and usable", "wellUsable", well, "clusters");
    judge.at_most("their p99 against one alone", "connectRatio", 2.5, "times");
    judge.exactly("clusters that are slow and usable", "slowUsable", slow, "clusters");
    judge.exactly("dead clusters with the reason said", "deadNamed", dead, "clusters");
    judge.exactly("views of more than one generation", "tornViews", 0.0, "views");
    judge.at_least("views that were looked at", "views", 1000.0, "views");
    judge.at_most("a look-up during the sync against idle, p50", "lookUpRatio", 2.0, "times");
    judge.exactly("users' calls that failed", "callsFailed", 0.0, "calls");
    let rotating = load.count(&[Manner::Rotates]) as f64;
    judge.exactly("clusters whose credentials rotated", "rotated", rotating, "clusters");
    let left = load.leaving as f64;
    judge.exactly(
        "removed clusters that served their last user",
        "servedAfterRemoval",
        left,
        "clusters",
    );
    judge.exactly("removed clusters still to be had", "foundAfterRemoval", 0.0, "clusters");
    judge.requirements()
}

fn void(load: &Load, old: &Ended, new: &Ended) -> Option<String> {
    if load.clusters.len() < LEAST {
        return Some(format!("{} clusters are no fleet: at least {LEAST}", load.clusters.len()));
    }
    let calls = new.figures.get("calls").copied().unwrap_or(0.0);
    if calls < 20.0 {
        return Some(format!("{calls} calls of users are no load: at least 20"));
    }
    let well = load.count(&[Manner::Well, Manner::Rotates]) as f64;
    let torn = old.figures.get("tornViews").copied().unwrap_or(0.0);
    let usable = old.figures.get("wellUsable").copied().unwrap_or(0.0);
    (usable >= well && torn == 0.0)
        .then(|| "the old design bore this load: it shows nothing".to_owned())
}

#[cfg(test)]
mod tests;
