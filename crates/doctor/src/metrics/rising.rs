//! What grows from one scrape to the next: queues, calls in flight, time spent waiting. One dump
//! shows that many wait; a figure that grows meanwhile shows that it lasts.

use super::{Metrics, Series, slug};
use crate::analysis::remedy;
use crate::figures::count;
use crate::report::{
    Confidence, Evidence, FaultClass, Finding, Level, Resource, ResourceKind, Severity, Waiters,
};

/// A queue must grow by so much: less is a moment's work.
const GROWTH: f64 = 20.0;
/// From here on a queue that grows is a finding by itself.
const LONG: f64 = 100.0;
/// Series told in a report.
const LISTED: usize = 8;
/// Waiters from which on a queue that grows is a stall of the process.
const CROWD: u64 = 10;

/// A figure that grew from the first scrape to the last.
#[derive(Debug, Clone)]
pub(crate) struct Rising {
    /// The series with its labels.
    name: String,
    from: f64,
    to: f64,
    /// Whether it is a length: of a queue, of what is in flight. Else it is time spent waiting,
    /// which is counted when the wait has ended.
    is_length: bool,
    evidence: Evidence,
}

impl Rising {
    fn told(&self) -> String {
        if self.is_length {
            return format!(
                "{} grew from {} to {} between the scrapes",
                self.name, self.from, self.to
            );
        }
        let waited = self.to - self.from;
        format!("{}: {waited:.1} s of waiting ended between the scrapes", self.name)
    }
}

impl Metrics {
    /// The figures that grew, the longest queue first.
    pub(crate) fn rising(&self) -> Vec<Rising> {
        let mut rising: Vec<Rising> = self.series.values().filter_map(grown).collect();
        for calls in self.calls() {
            let (from, to) = calls.in_flight;
            if calls.started.points.len() > 1 && to >= 2.0 * from.max(0.0) + GROWTH {
                rising.push(Rising {
                    name: format!("calls of {} in flight", calls.method),
                    from: from.max(0.0),
                    to,
                    is_length: true,
                    evidence: calls.started.evidence.clone(),
                });
            }
        }
        rising.sort_by(|a, b| {
            (b.is_length, b.to)
                .partial_cmp(&(a.is_length, a.to))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        rising.truncate(LISTED);
        rising
    }

    /// Queues that grow, where nothing else says what they wait for.
    pub(super) fn growing_queues(&self) -> Vec<Finding> {
        let rising = self.rising();
        let in_flight =
            |r: &&Rising| r.is_length && r.to >= LONG && !r.name.starts_with("calls of ");
        rising.iter().filter(in_flight).map(finding).collect()
    }
}

/// The series as something that grew; `None`: it did not, or it is no queue.
fn grown(series: &Series) -> Option<Rising> {
    const LENGTHS: [&str; 13] = [
        "_queue_length",
        "_queue_size",
        "_queue_depth",
        "_queued",
        "_backlog",
        "_pending",
        "_in_flight",
        "_inflight",
        "_inflight_requests",
        "_in_flight_requests",
        "_waiting",
        "workqueue_depth",
        "_pending_requests",
    ];
    const WAITS: [&str; 4] = [
        "mutex_wait_total_seconds_total",
        "mutex_wait_seconds_total",
        "_wait_duration_seconds_total",
        "_wait_seconds_total",
    ];
    if series.points.len() < 2 {
        return None;
    }
    let (from, to) = (series.first(), series.last());
    let ends = |names: &[&str]| names.iter().any(|name| series.name.ends_with(name));
    let blocked = series.name.starts_with("jvm_threads_state")
        && series.label(&["state"]).is_some_and(|state| state.eq_ignore_ascii_case("blocked"));
    let is_length = ends(&LENGTHS) || blocked;
    let grew = if is_length { to >= 2.0 * from + GROWTH } else { ends(&WAITS) && to - from >= 1.0 };
    if !grew || !from.is_finite() || !to.is_finite() {
        return None;
    }
    let labels: Vec<String> =
        series.labels.iter().take(4).map(|(name, value)| format!("{name}={value}")).collect();
    let name = match labels.is_empty() {
        true => series.name.clone(),
        false => format!("{}{{{}}}", series.name, labels.join(", ")),
    };
    Some(Rising { name, from, to, is_length, evidence: series.evidence.clone() })
}

fn finding(rising: &Rising) -> Finding {
    Finding {
        id: format!("growing-{}", slug(&rising.name)),
        class: FaultClass::Queue,
        severity: if rising.to >= 1000.0 { Severity::Serious } else { Severity::Minor },
        title: format!(
            "{} grew from {} to {}",
            rising.name,
            count(rising.from.max(0.0) as u64),
            count(rising.to.max(0.0) as u64)
        ),
        resource: Resource {
            kind: ResourceKind::Requests,
            name: rising.name.clone(),
            ..Resource::default()
        },
        waiters: Waiters { total: rising.to.max(0.0) as u64, ..Waiters::default() },
        no_holder: Some("a length does not say what its elements wait for".to_owned()),
        remedy: remedy(FaultClass::Queue).to_owned(),
        collect_next: vec!["two dumps of the process's stacks, some seconds apart".to_owned()],
        evidence: vec![rising.evidence.clone()],
        confidence: Confidence {
            level: Level::Possible,
            why: "it may be a burst of work that is being done".to_owned(),
        },
        ..Finding::default()
    }
}

/// Weighs what dumps show by what grows meanwhile: behind a lock or a pool that does not move, queues
/// grow; waiting that ends shows that locks change hands.
pub(crate) fn weigh(findings: &mut [Finding], rising: &[Rising]) {
    let is_queue = |f: &Finding| {
        let kind = f.resource.kind;
        let waits = matches!(
            kind,
            ResourceKind::Mutex
                | ResourceKind::RwMutex
                | ResourceKind::Lock
                | ResourceKind::Channel
                | ResourceKind::Semaphore
                | ResourceKind::Pool
                | ResourceKind::Once
        );
        waits && !f.waiters.is_empty()
    };
    let ended = rising.iter().find(|r| !r.is_length);
    let growing = rising.iter().find(|r| r.is_length);
    for finding in findings.iter_mut().filter(|f| is_queue(f)) {
        if finding.class == FaultClass::HotLock {
            if let Some(ended) = ended {
                finding.details.push(ended.told());
                finding.evidence.push(ended.evidence.clone());
            }
            continue;
        }
        let Some(growing) = growing else { continue };
        finding.details.push(growing.told());
        finding.evidence.push(growing.evidence.clone());
        let sure = finding.confidence.level <= Level::Likely;
        if sure && finding.severity == Severity::Serious && finding.waiters.total >= CROWD {
            finding.severity = Severity::Critical;
        }
    }
}

#[cfg(test)]
mod tests;
