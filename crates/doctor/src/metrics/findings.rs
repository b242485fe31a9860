//! What the figures prove.

use std::collections::HashMap;

use super::calls::Calls;
use super::{LatencyRow, MemoryFact, Metrics, Series};
use crate::analysis::remedy;
use crate::excerpt::QuotedLock;
use crate::figures::{self, count, seconds};
use crate::report::{
    Confidence, EventKind, Evidence, FaultClass, Finding, Level, Resource, ResourceKind, Severity,
    TimelineEvent,
};

/// Methods whose figures go into the timeline.
const MOST_EVENTS: usize = 64;

impl Metrics {
    /// `logged` are latencies that the logs tell; `quoted` is the lock that the report's own
    /// source excerpt takes, if it is one.
    pub(crate) fn findings(
        &self,
        logged: &[LatencyRow],
        quoted: Option<&QuotedLock>,
    ) -> Vec<Finding> {
        let calls = self.calls();
        let mut findings = self.pinned(logged, quoted, &calls);
        for calls in &calls {
            let told = findings.iter().any(|f| f.resource.sites.contains(&calls.method));
            findings.extend(calls.piling_up().filter(|_| !told));
        }
        findings.extend(self.stuck_workers());
        findings.extend(self.leaderless());
        findings.extend(self.growing_queues());
        if findings.is_empty() {
            findings.extend(self.many_goroutines());
        }
        findings
    }

    pub(super) fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Series> {
        self.series
            .range(name.to_owned()..)
            .map(|(_, s)| s)
            .take_while(move |s| s.name.starts_with(name))
            .filter(move |s| s.name == name)
    }

    /// Latency pinned at a deadline, by call.
    fn pinned(
        &self,
        logged: &[LatencyRow],
        quoted: Option<&QuotedLock>,
        calls: &[Calls<'_>],
    ) -> Vec<Finding> {
        let histograms = self.histograms();
        let rows = self.rows.iter().chain(logged).chain(&histograms);
        let mut groups: Vec<(String, f64, Vec<&LatencyRow>)> = Vec::new();
        for (row, deadline) in rows.filter_map(|row| Some((row, row.pinned()?))) {
            let (call, _) = outcome(&row.what);
            match groups.iter_mut().find(|(c, d, _)| *c == call && *d == deadline) {
                Some((_, _, rows)) => rows.push(row),
                None => groups.push((call, deadline, vec![row])),
            }
        }
        groups
            .into_iter()
            .map(|(call, deadline, rows)| {
                let calls = calls.iter().find(|c| call.contains(&c.method));
                self.pinned_finding(&call, deadline, &rows, calls, quoted)
            })
            .collect()
    }

    fn pinned_finding(
        &self,
        call: &str,
        deadline: f64,
        rows: &[&LatencyRow],
        calls: Option<&Calls<'_>>,
        quoted: Option<&QuotedLock>,
    ) -> Finding {
        let successes = rows.iter().any(|row| outcome(&row.what).1);
        let shown = seconds(deadline);
        let mut evidence: Vec<Evidence> = rows.iter().map(|row| row.evidence.clone()).collect();
        let mut details: Vec<String> = rows
            .iter()
            .map(|row| {
                let many = if row.count.is_finite() { count(row.count as u64) } else { "?".into() };
                let p95 = row.p95.or(row.max).unwrap_or(row.p50);
                format!(
                    "{}: {many} calls, p50 {}, p95 {}",
                    row.what,
                    seconds(row.p50),
                    seconds(p95)
                )
            })
            .collect();
        let mut waiting = 0;
        if let Some(calls) = calls {
            waiting = calls.in_flight.1.max(0.0) as u64;
            details.push(calls.figures());
            evidence.extend(calls.evidence.iter().cloned());
        }
        for series in self.named("go_goroutines").take(1) {
            details.push(format!("{} goroutines", count(series.last() as u64)));
            evidence.push(series.evidence.clone());
        }
        let resource = match quoted {
            Some(lock) => {
                let kept = if lock.deferred { "until the function returns" } else { "for a while" };
                details.push(format!(
                    "the report quotes {}, which takes {} and keeps it {kept}: a hint, not a proof",
                    lock.function, lock.name
                ));
                evidence.push(lock.evidence.clone());
                Resource {
                    kind: ResourceKind::Lock,
                    name: lock.name.clone(),
                    type_name: lock.type_name.clone(),
                    field: lock.field.clone(),
                    sites: vec![call.to_owned(), lock.function.clone()],
                    ..Resource::default()
                }
            }
            None => Resource {
                kind: ResourceKind::Requests,
                name: call.to_owned(),
                sites: vec![call.to_owned()],
                ..Resource::default()
            },
        };
        let (what, confidence) = if successes {
            (
                format!(
                    "{call}: a queue behind one lock, latency pinned at the client's deadline of {shown}"
                ),
                Confidence {
                    level: Level::Likely,
                    why: format!(
                        "even the calls that succeed take {shown}: they wait for their turn, one \
                         after the other; slow work of their own would spread"
                    ),
                },
            )
        } else {
            (
                format!("{call}: every call fails at a deadline of {shown}"),
                Confidence {
                    level: Level::Possible,
                    why: "no call that succeeded is seen, so it may be a queue behind one lock as \
                          well as a peer that never answers"
                        .into(),
                },
            )
        };
        Finding {
            id: format!("pinned-latency-{}", slug(call)),
            class: FaultClass::Queue,
            severity: Severity::Critical,
            title: what,
            resource,
            waiters: crate::report::Waiters { total: waiting, ..Default::default() },
            no_holder: Some(
                "metrics show that calls wait for their turn, not for whom: take two goroutine \
                 dumps some seconds apart"
                    .into(),
            ),
            remedy: remedy(FaultClass::Queue).into(),
            collect_next: vec![
                "two goroutine dumps some seconds apart: `/debug/pprof/goroutine?debug=2`; where \
                 there is no such endpoint, SIGQUIT writes one to the log (and ends the process)"
                    .into(),
            ],
            evidence,
            confidence,
            details,
            ..Finding::default()
        }
    }

    /// Latencies from histograms: their quantiles as far as the buckets tell them.
    fn histograms(&self) -> Vec<LatencyRow> {
        type Key<'a> = (&'a str, Vec<(&'a str, &'a str)>);
        let mut groups: std::collections::BTreeMap<Key<'_>, Vec<(f64, f64, &Series)>> =
            std::collections::BTreeMap::new();
        for series in self.series.values() {
            let Some(name) = series.name.strip_suffix("_seconds_bucket") else {
                continue;
            };
            let Some(le) = series.label(&["le"]).and_then(|le| le.parse::<f64>().ok()) else {
                continue;
            };
            let labels = series.labels.iter().filter(|(name, _)| name != "le");
            let labels = labels.map(|(a, b)| (a.as_str(), b.as_str())).collect();
            groups.entry((name, labels)).or_default().push((le, series.last(), series));
        }
        let mut rows = Vec::new();
        for ((name, labels), mut buckets) in groups {
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            let total = buckets.last().map_or(0.0, |(_, n, _)| *n);
            let at = |q: f64| buckets.iter().position(|(_, n, _)| *n >= q * total);
            // With all between one bound and the next, the figure lies somewhere between; the
            // lower bound is the safer claim.
            let (Some(low), Some(high)) = (at(0.02), at(0.95)) else {
                continue;
            };
            if low != high || low == 0 || total < 20.0 {
                continue;
            }
            let bound = buckets[low - 1].0;
            let what =
                labels.iter().find(|(l, _)| matches!(*l, "grpc_method" | "method" | "handler"));
            rows.push(LatencyRow {
                what: what.map_or(name, |(_, value)| value).to_owned(),
                count: total,
                min: Some(bound),
                p50: bound,
                p95: Some(bound),
                max: None,
                evidence: buckets[low].2.evidence.clone(),
            });
        }
        rows
    }

    /// A controller's worker that has been at one item for minutes.
    fn stuck_workers(&self) -> Vec<Finding> {
        const LONG: f64 = 120.0;
        self.named("workqueue_longest_running_processor_seconds")
            .filter(|s| s.last() >= LONG)
            .map(|series| {
                let queue = series.label(&["name", "controller"]).unwrap_or("a work queue");
                Finding {
                    id: format!("stuck-worker-{}", slug(queue)),
                    class: FaultClass::SlowConsumer,
                    severity: Severity::Serious,
                    title: format!(
                        "a worker of {queue} has been at one item for {}",
                        seconds(series.last())
                    ),
                    resource: Resource {
                        kind: ResourceKind::Pool,
                        name: queue.to_owned(),
                        ..Resource::default()
                    },
                    no_holder: Some("the metric does not say which item".into()),
                    remedy: remedy(FaultClass::SlowConsumer).into(),
                    collect_next: vec![
                        "a goroutine dump: the worker's stack names the call".into(),
                    ],
                    evidence: vec![series.evidence.clone()],
                    confidence: Confidence {
                        level: Level::Certain,
                        why: "the work queue measures this itself".into(),
                    },
                    ..Finding::default()
                }
            })
            .collect()
    }

    fn leaderless(&self) -> Option<Finding> {
        let series = self.named("etcd_server_has_leader").find(|s| s.last() == 0.0)?;
        Some(Finding {
            id: "leader-loss-etcd".into(),
            class: FaultClass::LeaderLoss,
            severity: Severity::Critical,
            title: "etcd has no leader".into(),
            resource: Resource {
                kind: ResourceKind::Leadership,
                name: "etcd".into(),
                ..Resource::default()
            },
            no_holder: Some("nobody leads".into()),
            remedy: remedy(FaultClass::LeaderLoss).into(),
            evidence: vec![series.evidence.clone()],
            confidence: Confidence { level: Level::Certain, why: "the member says so".into() },
            ..Finding::default()
        })
    }

    fn many_goroutines(&self) -> Option<Finding> {
        let series = self.named("go_goroutines").max_by(|a, b| a.last().total_cmp(&b.last()))?;
        let (first, last) = (series.first(), series.last());
        let grows = series.points.len() > 1 && last >= 2.0 * first && last - first >= 1000.0;
        if !grows && last < 50_000.0 {
            return None;
        }
        let title = if grows {
            format!("goroutines grew from {} to {}", count(first as u64), count(last as u64))
        } else {
            format!("{} goroutines", count(last as u64))
        };
        Some(Finding {
            id: "goroutines".into(),
            class: FaultClass::Queue,
            severity: Severity::Serious,
            title,
            resource: Resource {
                kind: ResourceKind::Other,
                name: "goroutines".into(),
                ..Resource::default()
            },
            no_holder: Some("a count does not say what they wait for".into()),
            remedy: remedy(FaultClass::Queue).into(),
            collect_next: vec!["two goroutine dumps some seconds apart".into()],
            evidence: vec![series.evidence.clone()],
            confidence: Confidence {
                level: Level::Possible,
                why: "the count alone does not tell a stall from a busy time".into(),
            },
            ..Finding::default()
        })
    }

    /// Memory in use and its limit, as far as the samples name both for the same container.
    pub(crate) fn memory(&self) -> Vec<MemoryFact> {
        let container = |s: &Series| {
            let label = |name: &str| s.label(&[name]).map(str::to_owned);
            (label("namespace"), label("pod"), label("container"))
        };
        let limits: HashMap<_, f64> = [
            "container_spec_memory_limit_bytes",
            "container_memory_limit_bytes",
            "cgroup_memory_limit_bytes",
        ]
        .iter()
        .flat_map(|name| self.named(name))
        .filter(|s| s.last() > 0.0)
        .map(|s| (container(s), s.last()))
        .collect();
        let mut facts = Vec::new();
        for name in ["container_memory_working_set_bytes", "process_resident_memory_bytes"] {
            for used in self.named(name) {
                let limit = limits.get(&container(used)).copied();
                facts.extend(used.finite().map(|(at, value)| MemoryFact {
                    used: *value,
                    limit,
                    at: *at,
                    evidence: used.evidence.clone(),
                }));
            }
        }
        facts
    }

    /// Figures with a time, for the plot.
    pub(crate) fn events(&self) -> Vec<TimelineEvent> {
        let mut events = Vec::new();
        for (name, unit) in [
            ("go_goroutines", "goroutines"),
            ("process_resident_memory_bytes", "bytes"),
            ("container_memory_working_set_bytes", "bytes"),
        ] {
            for series in self.named(name).take(4) {
                for (at, value) in series.finite() {
                    let shown = if unit == "bytes" {
                        figures::bytes(*value)
                    } else {
                        format!("{} {unit}", count(*value as u64))
                    };
                    events.push(TimelineEvent {
                        at: figures::timestamp(*at),
                        kind: if unit == "bytes" { EventKind::Memory } else { EventKind::Metric },
                        text: format!("{name}: {shown}"),
                        count: 1,
                        value: Some(*value),
                        unit: Some(unit.into()),
                        evidence: Some(series.evidence.clone()),
                        ..TimelineEvent::default()
                    });
                }
            }
        }
        for calls in self.calls().into_iter().take(MOST_EVENTS) {
            events.push(TimelineEvent {
                at: figures::timestamp(calls.started.points.last().and_then(|(at, _)| *at)),
                kind: EventKind::Metric,
                text: calls.figures(),
                count: 1,
                value: Some(calls.in_flight.1),
                unit: Some("calls in flight".into()),
                evidence: Some(calls.started.evidence.clone()),
                ..TimelineEvent::default()
            });
        }
        events
    }
}

/// The call without the words for how it went, and whether it went well.
fn outcome(what: &str) -> (String, bool) {
    const BAD: &[&str] = &[
        "failed",
        "fail",
        "error",
        "errors",
        "internal",
        "deadlineexceeded",
        "unavailable",
        "canceled",
        "cancelled",
        "timeout",
        "unknown",
        "aborted",
        "resourceexhausted",
    ];
    const GOOD: &[&str] = &["ok", "success", "successful", "succeeded", "200", "0"];
    let mut good = true;
    let call: Vec<&str> = what
        .split_whitespace()
        .filter(|word| {
            let word = word.to_ascii_lowercase();
            let bad = BAD.contains(&word.as_str())
                || (word.len() == 3 && word.starts_with(['4', '5']) && word.parse::<u16>().is_ok());
            good &= !bad;
            !bad && !GOOD.contains(&word.as_str())
        })
        .collect();
    (if call.is_empty() { "calls".into() } else { call.join(" ") }, good)
}

/// A name that can stand in an id.
pub(crate) fn slug(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().take(60) {
        if c.is_ascii_alphanumeric() {
            out.push(c.to_ascii_lowercase());
        } else if !out.ends_with('-') && !out.is_empty() {
            out.push('-');
        }
    }
    out.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests;
