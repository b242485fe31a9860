//! What the lines, taken together, prove.

use super::requests::Begun;
use super::signs::{Begins, Sign};
use super::stamp::Millis;
use super::template::Template;
use super::{Event, Level, Story, cut};
use crate::analysis::remedy;
use crate::figures::{count, many, seconds, timestamp};
use crate::metrics::{LatencyRow, slug};
use crate::report::{
    Confidence, EventKind, Evidence, FaultClass, Finding, Level as Sure, Resource, ResourceKind,
    Severity, Since, TimelineEvent, Waiters,
};

/// Findings from single templates.
const MOST_TOLD: usize = 64;

/// The first sign that something is wrong.
#[derive(Debug, Clone)]
pub(crate) struct Onset {
    pub(crate) at: Millis,
    pub(crate) text: String,
    pub(crate) evidence: Evidence,
}

impl Onset {
    pub(crate) fn event(&self) -> TimelineEvent {
        TimelineEvent {
            at: timestamp(Some(self.at)),
            kind: EventKind::Onset,
            text: self.text.clone(),
            count: 1,
            evidence: Some(self.evidence.clone()),
            ..TimelineEvent::default()
        }
    }
}

impl Story {
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (number, begun) in &self.requests {
            let template = self.templates.get(*number);
            if believable(template, begun) {
                findings.push(self.unanswered(template, begun));
            }
        }
        findings.extend(self.crowded());
        findings.extend(self.leader_loss());
        findings.extend(self.killed_for_memory());
        let told = self.templates.iter().filter_map(|(_, t)| match t.sign()? {
            Sign::LimitExceeded if t.total() >= 10 => Some(storm(t)),
            Sign::QueueFull => Some(queue_full(t)),
            Sign::NoSuchKind => stale(t),
            _ => None,
        });
        // A log that says the same in ever new words tells no more with the hundredth.
        findings.extend(told.take(MOST_TOLD));
        findings
    }

    pub(crate) fn latencies(&self) -> Vec<LatencyRow> {
        self.latency.iter().map(|(what, (latency, at))| latency.row(what, at)).collect()
    }

    fn unanswered(&self, template: &Template, begun: &Begun) -> Finding {
        let total = begun.open.max(template.total() - begun.ended.min(template.total()));
        let mut details = vec![match begun.ended {
            0 => "none of them was answered".to_owned(),
            ended => format!(
                "{} others were answered, the slowest after {}",
                count(ended),
                seconds(begun.longest as f64 / 1000.0)
            ),
        }];
        let mut evidence = vec![template.first.evidence.clone()];
        if let Some((told, at)) = &template.told {
            details.push(format!(
                "{} is what the input says; {} of the lines are shown",
                count(*told),
                count(template.count)
            ));
            evidence.push(at.clone());
        }
        if begun.untracked > 0 {
            details.push(format!("{} more were too many to follow", count(begun.untracked)));
        }
        let confidence = match begun.ended_by {
            Some(end) => Confidence {
                level: Sure::Likely,
                why: format!(
                    "matched by id; others like them were followed by `{}`",
                    self.templates.get(end).text
                ),
            },
            None => Confidence {
                level: Sure::Likely,
                why: "matched by id; not one of them is mentioned again, so it may be that this \
                      program never logs the end"
                    .into(),
            },
        };
        Finding {
            id: format!("unanswered-{}", slug(&template.text)),
            class: FaultClass::UnansweredRequests,
            severity: Severity::Critical,
            title: format!(
                "{} begun and never answered: {}",
                many(total, "request", "requests"),
                short(&template.text)
            ),
            resource: Resource {
                kind: ResourceKind::Requests,
                name: short(&template.text),
                ..Resource::default()
            },
            waiters: Waiters { total, ..Waiters::default() },
            since: begun.open_since.map(|at| Since {
                at: timestamp(Some(at)),
                text: "the first that was never answered, of those shown".into(),
                evidence: Some(template.first.evidence.clone()),
                ..Since::default()
            }),
            no_holder: Some("a log shows that they wait, not for what".into()),
            remedy: remedy(FaultClass::UnansweredRequests).into(),
            collect_next: vec!["a goroutine dump taken while requests hang".into()],
            evidence,
            confidence,
            details,
            ..Finding::default()
        }
    }

    fn signs(&self, wanted: impl Fn(Sign) -> bool) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(move |e| wanted(e.sign))
    }

    fn leader_loss(&self) -> Option<Finding> {
        let gone = |sign| matches!(sign, Sign::LeaderLost | Sign::LeaderAbsent);
        let first = self.signs(gone).min_by_key(|e| (e.seen.at.is_none(), e.seen.at))?;
        let elected = self.signs(|s| s == Sign::LeaderWon).count() as u64;
        let lost = self.signs(|s| s == Sign::LeaderLost).count() as u64;
        let absent = self.templates.iter().filter(|(_, t)| t.sign() == Some(Sign::LeaderAbsent));
        let last = absent.filter_map(|(_, t)| t.last).max();
        let mut details = vec![format!(
            "{}, {}",
            many(lost, "line tells of a loss", "lines tell of losses"),
            many(elected, "of an election", "of elections")
        )];
        let lasting = last.zip(first.seen.at).map(|(last, first)| last - first);
        if let Some(gap) = lasting.filter(|gap| *gap >= 60_000) {
            details.push(format!(
                "still without a leader {} after the first loss",
                seconds(gap as f64 / 1000.0)
            ));
        }
        let mut shown: Vec<&Event> = self.signs(gone).collect();
        shown.sort_by_key(|e| (e.seen.at.is_none(), e.seen.at));
        shown.dedup_by(|a, b| a.sign == b.sign);
        Some(Finding {
            id: "leader-loss".into(),
            class: FaultClass::LeaderLoss,
            severity: if lasting >= Some(60_000) { Severity::Critical } else { Severity::Serious },
            title: "leadership was lost".into(),
            resource: Resource {
                kind: ResourceKind::Leadership,
                name: "leadership".into(),
                ..Resource::default()
            },
            since: Some(Since {
                at: timestamp(first.seen.at),
                text: "the first line that tells of it".into(),
                evidence: Some(first.seen.evidence.clone()),
                ..Since::default()
            }),
            remedy: remedy(FaultClass::LeaderLoss).into(),
            evidence: shown.into_iter().take(4).map(|e| e.seen.evidence.clone()).collect(),
            confidence: Confidence { level: Sure::Certain, why: "the members say so".into() },
            details,
            ..Finding::default()
        })
    }

    fn killed_for_memory(&self) -> Option<Finding> {
        let first = self.signs(|s| s == Sign::OutOfMemory).next()?;
        Some(Finding {
            id: "out-of-memory".into(),
            class: FaultClass::MemoryOverLimit,
            severity: Severity::Critical,
            title: "a process was killed for lack of memory".into(),
            resource: Resource {
                kind: ResourceKind::Memory,
                name: "memory".into(),
                ..Resource::default()
            },
            since: Some(Since {
                at: timestamp(first.seen.at),
                text: "the first line that tells of it".into(),
                evidence: Some(first.seen.evidence.clone()),
                ..Since::default()
            }),
            remedy: remedy(FaultClass::MemoryOverLimit).into(),
            evidence: vec![first.seen.evidence.clone()],
            confidence: Confidence { level: Sure::Certain, why: "the log says so".into() },
            ..Finding::default()
        })
    }

    /// The first sign that something is wrong, as far as the lines go.
    pub(crate) fn onset(&mut self) -> Option<Onset> {
        let jump = self.curve.jump();
        let chronic = |t: &Template| match (t.first.at, self.first, self.last) {
            // What is there from the start of a long log was so before; it is not the onset.
            (Some(at), Some(first), Some(last)) => {
                t.count >= 20 && self.curve.buckets.len() >= 50 && at - first < (last - first) / 50
            }
            _ => false,
        };
        let mut signs: Vec<Onset> =
            self.anomalies().filter(|t| !chronic(t)).filter_map(onset_of).collect();
        signs.extend(self.requests.iter().filter_map(|(number, begun)| {
            let template = self.templates.get(*number);
            let at = begun.open_since.filter(|_| believable(template, begun))?;
            Some(Onset {
                at,
                text: format!("never answered from here on: {}", short(&template.text)),
                evidence: template.first.evidence.clone(),
            })
        }));
        let mut onset = signs.into_iter().min_by_key(|o| o.at);
        if onset.is_none()
            && let Some(at) = jump
        {
            let worst = self.anomalies().max_by_key(|t| t.count);
            onset = worst.map(|t| Onset {
                at,
                text: format!("errors became ten times as many, mostly: {}", short(&t.text)),
                evidence: t.first.evidence.clone(),
            });
        }
        onset
    }

    fn anomalies(&self) -> impl Iterator<Item = &Template> {
        self.templates
            .iter()
            .map(|(_, t)| t)
            .filter(|t| t.level >= Level::Error || t.sign().is_some_and(Sign::is_anomaly))
    }

    pub(crate) fn events(&self) -> Vec<TimelineEvent> {
        const FIRST: usize = 12;
        const LOOPS: usize = 8;
        let mut events = Vec::new();
        let mut anomalies: Vec<&Template> =
            self.anomalies().filter(|t| kind(t.sign()) == EventKind::Anomaly).collect();
        anomalies.sort_by_key(|t| (t.first.at.is_none(), t.first.at));
        for template in anomalies.into_iter().take(FIRST) {
            events.push(TimelineEvent {
                at: timestamp(template.first.at),
                until: timestamp(template.last.filter(|last| Some(*last) != template.first.at)),
                kind: EventKind::Anomaly,
                text: short(&template.text),
                count: template.total(),
                evidence: Some(template.first.evidence.clone()),
                ..TimelineEvent::default()
            });
        }
        let loops = self.templates.loops();
        let notable = loops
            .iter()
            .filter(|(path, rounds)| *rounds >= 10 && path.iter().any(|n| self.notable(*n)));
        for (path, rounds) in notable.take(LOOPS) {
            let steps: Vec<String> =
                path.iter().map(|n| short(&self.templates.get(*n).text)).collect();
            let first = self.templates.get(path[0]);
            let last = path.iter().filter_map(|n| self.templates.get(*n).last).max();
            events.push(TimelineEvent {
                at: timestamp(path.iter().filter_map(|n| self.templates.get(*n).first.at).min()),
                until: timestamp(last),
                kind: EventKind::Loop,
                text: steps.join(" → "),
                count: *rounds,
                evidence: Some(first.first.evidence.clone()),
                ..TimelineEvent::default()
            });
        }
        let mut turns: Vec<&Event> = self
            .signs(|sign| matches!(kind(Some(sign)), EventKind::Leader | EventKind::Restart))
            .collect();
        turns.sort_by_key(|e| (e.seen.at.is_none(), e.seen.at));
        // Of lines that say the same again, the first.
        turns.dedup_by(|a, b| a.sign == b.sign && a.sign != Sign::Exit);
        for event in turns.into_iter().take(2 * FIRST) {
            events.push(TimelineEvent {
                at: timestamp(event.seen.at),
                kind: kind(Some(event.sign)),
                text: format!("{}: {}", turn(event.sign), event.text),
                count: 1,
                evidence: Some(event.seen.evidence.clone()),
                ..TimelineEvent::default()
            });
        }
        events
    }

    fn notable(&self, number: u32) -> bool {
        let template = self.templates.get(number);
        template.level >= Level::Warn
            || template.sign().is_some()
            || template.told.is_some()
            || template.traits.begins == Begins::Request
    }

    /// Remarks on the reading itself.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.templates.beyond > 0 {
            notes.push(format!(
                "{} log lines were of more kinds than are kept apart; they are counted only",
                count(self.templates.beyond)
            ));
        }
        notes
    }
}

/// A line that begins something owes another only where that is plain from its words or was seen.
fn believable(template: &Template, begun: &Begun) -> bool {
    let told = template.told.is_some();
    match (template.traits.begins, begun.ended) {
        (Begins::Request, 0) => begun.open >= 5 || told,
        (_, 0) => false,
        _ => begun.open >= 5 && begun.open * 100 >= begun.begun,
    }
}

fn onset_of(template: &Template) -> Option<Onset> {
    Some(Onset {
        at: template.first.at?,
        text: short(&template.text),
        evidence: template.first.evidence.clone(),
    })
}

fn kind(sign: Option<Sign>) -> EventKind {
    match sign {
        Some(Sign::LeaderLost | Sign::LeaderAbsent | Sign::LeaderWon | Sign::LeaderMoved) => {
            EventKind::Leader
        }
        Some(Sign::Exit | Sign::Crash | Sign::OutOfMemory) => EventKind::Restart,
        _ => EventKind::Anomaly,
    }
}

fn turn(sign: Sign) -> &'static str {
    match sign {
        Sign::LeaderLost => "leader lost",
        Sign::LeaderAbsent => "no leader",
        Sign::LeaderWon | Sign::LeaderMoved => "leader elected",
        Sign::OutOfMemory => "killed for lack of memory",
        Sign::Crash => "crashed",
        _ => "process ended",
    }
}

fn storm(template: &Template) -> Finding {
    let text = short(&template.text);
    Finding {
        id: format!("retry-storm-{}", slug(&text)),
        class: FaultClass::RetryStorm,
        severity: Severity::Serious,
        title: format!("{} refused: {text}", count(template.total())),
        resource: Resource { kind: ResourceKind::Pool, name: text, ..Resource::default() },
        no_holder: Some("the log names who is refused, not who holds the places".into()),
        remedy: remedy(FaultClass::RetryStorm).into(),
        confidence: Confidence {
            level: Sure::Likely,
            why: "the same refusal comes again and again; clients do not back off".into(),
        },
        ..told_by(template)
    }
}

fn queue_full(template: &Template) -> Finding {
    let text = short(&template.text);
    Finding {
        id: format!("queue-full-{}", slug(&text)),
        class: FaultClass::SlowConsumer,
        severity: if template.total() >= 100 { Severity::Serious } else { Severity::Minor },
        title: format!("a queue is full: {text}"),
        resource: Resource { kind: ResourceKind::Channel, name: text, ..Resource::default() },
        no_holder: Some("the log names who finds the queue full, not who should empty it".into()),
        remedy: remedy(FaultClass::SlowConsumer).into(),
        confidence: Confidence {
            level: Sure::Possible,
            why: "a full queue may be a slow consumer or a burst".into(),
        },
        ..told_by(template)
    }
}

/// "No such kind" is an answer like another; only kept for long is it a fault.
fn stale(template: &Template) -> Option<Finding> {
    let span = template.last? - template.first.at?;
    if template.total() < 3 || span < 60_000 {
        return None;
    }
    Some(Finding {
        id: "stale-discovery".into(),
        class: FaultClass::StaleCache,
        severity: Severity::Serious,
        title: format!(
            "\"no such kind\" for {} and {} times: a negative answer kept in a cache",
            seconds(span as f64 / 1000.0),
            count(template.total())
        ),
        resource: Resource {
            kind: ResourceKind::Cache,
            name: "API discovery".into(),
            ..Resource::default()
        },
        remedy: remedy(FaultClass::StaleCache).into(),
        collect_next: vec!["`kubectl api-resources` now: is the kind there by this time?".into()],
        confidence: Confidence {
            level: Sure::Possible,
            why: "the kind may also be missing in truth".into(),
        },
        ..told_by(template)
    })
}

/// What every finding from one template has: since when, how often, where.
fn told_by(template: &Template) -> Finding {
    let mut evidence = vec![template.first.evidence.clone()];
    let mut details = vec![format!("{} seen", many(template.count, "line", "lines"))];
    if let Some((told, at)) = &template.told {
        details.push(format!("{} is what the input says", count(*told)));
        evidence.push(at.clone());
    }
    Finding {
        since: Some(Since {
            at: timestamp(template.first.at),
            text: "the first such line".into(),
            evidence: Some(template.first.evidence.clone()),
            ..Since::default()
        }),
        evidence,
        details,
        ..Finding::default()
    }
}

/// A template in a title: without the fields behind it.
fn short(text: &str) -> String {
    let mut text = text.split(" - ").next().unwrap_or(text).trim();
    while let Some((head, last)) = text.rsplit_once(' ')
        && last.contains('=')
        && head.contains(' ')
    {
        text = head.trim_end_matches([' ', ':', ',']);
    }
    cut(text, 110)
}
