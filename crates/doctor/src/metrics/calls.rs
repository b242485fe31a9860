//! Calls started against calls handled.

use std::collections::HashMap;

use super::{Metrics, Series, slug};
use crate::analysis::remedy;
use crate::figures::count;
use crate::report::{
    Confidence, Evidence, FaultClass, Finding, Level, Resource, ResourceKind, Severity, Waiters,
};

const METHODS: &[&str] = &["grpc_method", "method"];
const CODES: &[&str] = &["grpc_code", "code", "status", "status_code"];

/// Calls of one method: how many were taken in, and how many were answered with what.
#[derive(Debug)]
pub(super) struct Calls<'a> {
    pub(super) method: String,
    pub(super) started: &'a Series,
    handled: f64,
    failed: f64,
    /// Started and not handled, in the first and in the last scrape.
    pub(super) in_flight: (f64, f64),
    pub(super) evidence: Vec<Evidence>,
}

impl Metrics {
    pub(super) fn calls(&self) -> Vec<Calls<'_>> {
        // By family and method, so that the cost follows the series and not their square.
        let mut answered: HashMap<(&str, Option<&str>), Vec<&Series>> = HashMap::new();
        for series in self.series.values() {
            if let Some(family) = series.name.strip_suffix("_handled_total") {
                answered.entry((family, series.label(METHODS))).or_default().push(series);
            }
        }
        let mut all = Vec::new();
        for started in self.series.values() {
            let Some(family) = started.name.strip_suffix("_started_total") else {
                continue;
            };
            let same = answered.get(&(family, started.label(METHODS)));
            let handled: Vec<&Series> =
                same.into_iter().flatten().copied().filter(|s| s.covers(&started.labels)).collect();
            if handled.is_empty() {
                continue;
            }
            let sum = |at: fn(&Series) -> f64| handled.iter().map(|s| at(s)).sum::<f64>();
            let is_bad = |s: &&&Series| {
                s.label(CODES).is_some_and(|code| code != "OK" && !code.starts_with('2'))
            };
            let method = started.label(METHODS).unwrap_or(family);
            let mut evidence = vec![started.evidence.clone()];
            evidence.extend(handled.iter().take(4).map(|s| s.evidence.clone()));
            all.push(Calls {
                method: method.to_owned(),
                started,
                handled: sum(Series::last),
                failed: handled.iter().filter(is_bad).map(|s| s.last()).sum(),
                in_flight: (
                    started.first() - sum(Series::first),
                    started.last() - sum(Series::last),
                ),
                evidence,
            });
        }
        all
    }
}

impl Series {
    pub(super) fn first(&self) -> f64 {
        self.points.first().map_or(0.0, |(_, value)| *value)
    }
}

impl Calls<'_> {
    pub(super) fn figures(&self) -> String {
        let started = self.started.last();
        let share = if self.handled > 0.0 { 100.0 * self.failed / self.handled } else { 0.0 };
        // An empty sum is minus zero.
        let share = share + 0.0;
        format!(
            "{}: {} started, {} handled, of these {} failed ({share:.0} %), {} in flight",
            self.method,
            count(started as u64),
            count(self.handled as u64),
            count(self.failed as u64),
            count(self.in_flight.1.max(0.0) as u64),
        )
    }

    /// More and more are started than handled.
    pub(super) fn piling_up(&self) -> Option<Finding> {
        let (first, last) = self.in_flight;
        let grows = self.started.points.len() > 1 && last >= 2.0 * first.max(0.0) + 20.0;
        let many = last >= 1000.0 && last >= 0.2 * self.started.last();
        if !grows && !many {
            return None;
        }
        let title = if grows {
            format!(
                "{}: calls in flight grew from {} to {}",
                self.method,
                count(first.max(0.0) as u64),
                count(last as u64)
            )
        } else {
            format!("{}: {} calls begun and not answered", self.method, count(last as u64))
        };
        Some(Finding {
            id: format!("in-flight-{}", slug(&self.method)),
            class: FaultClass::UnansweredRequests,
            severity: Severity::Serious,
            title,
            resource: Resource {
                kind: ResourceKind::Requests,
                name: self.method.clone(),
                ..Resource::default()
            },
            waiters: Waiters { total: last.max(0.0) as u64, ..Default::default() },
            no_holder: Some("counters do not say what the calls wait for".into()),
            remedy: remedy(FaultClass::UnansweredRequests).into(),
            collect_next: vec!["two goroutine dumps some seconds apart".into()],
            evidence: self.evidence.clone(),
            confidence: Confidence {
                level: if grows { Level::Likely } else { Level::Possible },
                why: "started and handled are counted by the server itself".into(),
            },
            details: vec![self.figures()],
            ..Finding::default()
        })
    }
}
