//! Joins the events of all sources into one timeline, and tells what follows from what.
//!
//! What comes first may be the cause; what comes after it in time and follows from it is said to be
//! a consequence: a leader that starves is not why the others wait.

use jiff::Timestamp;

use crate::figures::{seconds, timestamp};
use crate::log::Onset;
use crate::report::{FaultClass, Finding, Report, ResourceKind, Severity, Since};

/// Consequences of a stall, by class: none of them can be what others wait for.
pub(crate) fn is_consequence(class: FaultClass) -> bool {
    use FaultClass::{LeaderLoss, MemoryOverLimit, RetryStorm, UnansweredRequests};
    matches!(class, LeaderLoss | MemoryOverLimit | RetryStorm | UnansweredRequests)
}

/// Connects findings that tell of the same stall, and puts causes before what follows from them.
pub(crate) fn weave(report: &mut Report, onset: Option<&Onset>) {
    connect(report, onset);
    link(report);
    report.findings.sort_by_key(|f| (f.severity, order(f.class)));
}

/// Causes before what follows from them.
fn order(class: FaultClass) -> u8 {
    match class {
        FaultClass::UnansweredRequests => 1,
        FaultClass::MemoryOverLimit => 2,
        FaultClass::RetryStorm => 3,
        FaultClass::LeaderLoss => 4,
        _ => 0,
    }
}

/// When something was first seen, and what.
struct First {
    at: Timestamp,
    what: String,
}

fn connect(report: &mut Report, onset: Option<&Onset>) {
    // A full queue may be anybody's; only what stands still is what the rest can follow from.
    let stalled =
        (report.findings.iter()).any(|f| !is_consequence(f.class) && f.severity < Severity::Minor);
    // The earliest sign of the stall itself: not of a leader, for that is the question.
    let mut first: Option<First> = None;
    let mut consider = |at: Option<Timestamp>, what: &str| {
        if let Some(at) = at
            && first.as_ref().is_none_or(|f| at < f.at)
        {
            first = Some(First { at, what: what.to_owned() });
        }
    };
    for finding in report.findings.iter().filter(|f| f.class != FaultClass::LeaderLoss) {
        consider(finding.since.as_ref().and_then(|s| s.at), &finding.title);
    }
    if stalled && let Some(onset) = onset {
        consider(timestamp(Some(onset.at)), &onset.text);
    }
    let answers: Vec<(String, Option<Since>)> = report
        .findings
        .iter()
        .filter(|f| f.class == FaultClass::UnansweredRequests)
        .map(|f| (f.title.clone(), f.since.clone()))
        .collect();
    let memory: Vec<String> = report
        .findings
        .iter()
        .filter(|f| f.class == FaultClass::MemoryOverLimit)
        .map(|f| f.title.clone())
        .collect();
    for finding in &mut report.findings {
        match finding.class {
            FaultClass::LeaderLoss => follow(finding, first.as_ref(), stalled),
            class if is_consequence(class) => {
                if stalled {
                    finding.details.push("a consequence of the stall above".into());
                }
            }
            _ => {
                // The function that logged the request's first line is on the waiters' stacks.
                for (title, since) in &answers {
                    if !told_of(finding, title) {
                        continue;
                    }
                    finding.details.push(format!("the log agrees: {title}"));
                    if finding.since.is_none() {
                        finding.since.clone_from(since);
                    }
                }
                if finding.resource.kind != ResourceKind::Other && finding.waiters.total >= 1000 {
                    finding.details.extend(memory.iter().cloned());
                }
            }
        }
    }
}

/// Says of a lost leadership what it followed.
fn follow(finding: &mut Finding, first: Option<&First>, stalled: bool) {
    let lost = finding.since.as_ref().and_then(|s| s.at);
    match (first, lost) {
        (Some(first), Some(lost)) if first.at < lost => {
            let gap = lost.duration_since(first.at).as_secs_f64();
            finding.details.insert(
                0,
                format!(
                    "the first sign of the stall came {} earlier: {}",
                    seconds(gap),
                    first.what
                ),
            );
        }
        (_, None) if stalled => {}
        _ => {
            finding.collect_next.push(
                "what the leader did in the minute before: its log, a goroutine dump, its memory"
                    .into(),
            );
            return;
        }
    }
    finding.title = "leadership was lost: a consequence of the stall, not its cause".into();
}

/// Whether the title names a function on the way of this finding's waiters.
fn told_of(finding: &Finding, title: &str) -> bool {
    let words = || title.split([' ', ':']).filter(|w| w.len() > 8 && w.contains('.'));
    let frames = finding.waiters.by_path.iter().flat_map(|p| &p.frames);
    let sites = frames.chain(&finding.resource.sites);
    sites.into_iter().any(|frame| words().any(|word| frame.ends_with(word)))
}

/// Events know the finding whose evidence they are.
fn link(report: &mut Report) {
    for event in &mut report.timeline {
        let Some(evidence) = &event.evidence else {
            continue;
        };
        let mut findings = report.findings.iter();
        let owner = findings.find(|f| f.evidence.iter().any(|e| e == evidence));
        event.finding = owner.map(|f| f.id.clone());
    }
}
