//! Logs that count what is in flight: many at once, of which those that end do so after a minute or
//! more, or of which lines say again and again that they still run.

use super::stamp::Millis;
use super::{Record, Story};
use crate::analysis::remedy;
use crate::figures::{count, seconds, timestamp};
use crate::report::{
    Confidence, Evidence, FaultClass, Finding, Level as Sure, Resource, ResourceKind, Severity,
    Since, Waiters,
};

/// Requests in flight from which on a log is worth a finding.
const MANY: u64 = 100;
/// What ends after so many seconds has waited.
const LONG: f64 = 60.0;

const KEYS: &[&str] = &[
    "inflight",
    "in_flight",
    "in-flight",
    "requests_in_flight",
    "inflight_requests",
    "in_flight_requests",
    "outstanding",
];

/// What the lines say of requests in flight.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    most: Option<(u64, Option<Millis>, Evidence)>,
    /// The first line with so many.
    first: Option<(Option<Millis>, Evidence)>,
    /// Completions, of them those after a minute, and the slowest with its line.
    ended: u64,
    late: u64,
    slowest: Option<(f64, Evidence)>,
    /// Lines that say that one still runs, and the longest so far.
    running: u64,
    longest: Option<(f64, Evidence)>,
}

impl Flight {
    pub(super) fn line(&mut self, record: &Record<'_>, evidence: impl Fn() -> Evidence) {
        let Some(many) = in_flight(record) else { return };
        if many >= MANY && self.first.is_none() {
            self.first = Some((record.at, evidence()));
        }
        if self.most.as_ref().is_none_or(|(most, ..)| many > *most) {
            self.most = Some((many, record.at, evidence()));
        }
    }

    pub(super) fn ended(&mut self, seconds: f64, evidence: impl Fn() -> Evidence) {
        self.ended += 1;
        self.late += u64::from(seconds >= LONG);
        if self.slowest.as_ref().is_none_or(|(slowest, _)| seconds > *slowest) {
            self.slowest = Some((seconds, evidence()));
        }
    }

    pub(super) fn still_runs(&mut self, seconds: f64, evidence: impl Fn() -> Evidence) {
        self.running += 1;
        if self.longest.as_ref().is_none_or(|(longest, _)| seconds > *longest) {
            self.longest = Some((seconds, evidence()));
        }
    }
}

/// Whether a line with a duration tells of something that goes on: the figure is then when it was
/// reported, and neither how long it took nor anybody's deadline.
pub(super) fn goes_on(message: &[u8]) -> bool {
    let text = String::from_utf8_lossy(message).to_ascii_lowercase();
    ["still ", "in progress", "not finished", "not completed", "has been running", "running for"]
        .iter()
        .chain(&["waiting for", "stuck", "slow request", "taking longer", "unfinished"])
        .any(|words| text.contains(words))
}

/// `inflight=312`, `312 requests in flight`, `in flight: 312`.
fn in_flight(record: &Record<'_>) -> Option<u64> {
    let number = |word: &str| {
        let digits = word.trim_matches(|c: char| !c.is_ascii_digit()).replace(',', "");
        digits.parse::<u64>().ok()
    };
    if let Some(value) = record.fields.get(KEYS) {
        return number(std::str::from_utf8(value).ok()?);
    }
    let has = |words: &[u8]| memchr::memmem::find(record.message, words).is_some();
    if !has(b"in flight") && !has(b"in-flight") {
        return None;
    }
    let text = String::from_utf8_lossy(record.message);
    let at = text.find("in flight").or_else(|| text.find("in-flight"))?;
    let before = text[..at].split_whitespace().rev().take(2).find_map(number);
    before.or_else(|| text[at + 9..].split_whitespace().take(2).find_map(number))
}

impl Story {
    /// Hundreds in flight, and what ends takes minutes: a queue, although some get through.
    pub(super) fn crowded(&self) -> Option<Finding> {
        let flight = &self.flight;
        let (most, _, at_most) = flight.most.as_ref().filter(|(most, ..)| *most >= MANY)?;
        let slowest = flight.slowest.as_ref().filter(|_| flight.late >= 3);
        let longest = flight.longest.as_ref().filter(|(s, _)| *s >= 10.0 && flight.running >= 3);
        if slowest.is_none() && longest.is_none() {
            return None;
        }
        let mut details = Vec::new();
        let mut evidence = vec![at_most.clone()];
        if let Some((slow, at)) = slowest {
            details.push(format!(
                "{} of {} that ended took a minute or more, the slowest {}",
                count(flight.late),
                count(flight.ended),
                seconds(*slow)
            ));
            evidence.push(at.clone());
        }
        if let Some((long, at)) = longest {
            details.push(format!(
                "{} lines say that one still runs, the longest after {}: when they report is set \
                 in the program, and is no client's deadline",
                count(flight.running),
                seconds(*long)
            ));
            evidence.push(at.clone());
        }
        let what = slowest.map_or_else(
            || "and lines say that they still run".to_owned(),
            |(slow, _)| format!("and they take up to {}", seconds(*slow)),
        );
        Some(Finding {
            id: "in-flight-log".into(),
            class: FaultClass::Queue,
            severity: if *most >= 1000 { Severity::Critical } else { Severity::Serious },
            title: format!("{} requests in flight at once, {what}", count(*most)),
            resource: Resource {
                kind: ResourceKind::Requests,
                name: "requests in flight".into(),
                ..Resource::default()
            },
            waiters: Waiters { total: *most, ..Waiters::default() },
            since: flight.first.as_ref().map(|(at, evidence)| Since {
                at: timestamp(*at),
                text: format!("the first line with {MANY} or more in flight"),
                evidence: Some(evidence.clone()),
                ..Since::default()
            }),
            no_holder: Some("a log shows that they wait, not for what".into()),
            remedy: remedy(FaultClass::Queue).into(),
            collect_next: vec!["two goroutine dumps some seconds apart, while they wait".into()],
            evidence,
            confidence: Confidence {
                level: if slowest.is_some() { Sure::Likely } else { Sure::Possible },
                why: "the program counts them itself, and says how long they take".into(),
            },
            details,
            ..Finding::default()
        })
    }
}
