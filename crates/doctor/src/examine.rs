//! The whole way from arguments to a report.

use jiff::Timestamp;

use crate::input::{Case, Intake, Progress};
use crate::live::{self, LiveOptions};
use crate::metrics::over_limit;
use crate::report::{Note, Report};
use crate::timeline;

/// What the examination needs besides its inputs.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The present, for logs that leave out the year and have no other date.
    pub now: Option<Timestamp>,
    /// How running processes are asked.
    pub live: LiveOptions,
}

/// What an examination came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything was read; no stall.
    Nothing,
    /// At least one finding.
    Found,
    /// No finding, and an input could not be read, so that one may be hidden there.
    Unread,
}

impl Outcome {
    /// As a process says it: 0, 1, 2.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Nothing => 0,
            Self::Found => 1,
            Self::Unread => 2,
        }
    }
}

/// Reads paths, directories, `-` and addresses, in any mixture, and says what is wrong.
pub fn examine(
    inputs: &[String],
    options: &Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> (Report, Outcome) {
    let now = options.now.map(Timestamp::as_millisecond);
    let mut unread = inputs.is_empty();
    // Asked before the intake borrows `progress` for good.
    let mut answers: Vec<_> = inputs
        .iter()
        .map(|input| {
            live::is_address(input).then(|| {
                live::ask(input, &options.live, &mut |url| {
                    progress(Progress { input: url, read: 0, size: None });
                })
            })
        })
        .collect();
    let mut intake = Intake::new(now, progress);
    for (input, answers) in inputs.iter().zip(&mut answers) {
        let before = intake.case.inputs.len();
        match answers.take() {
            Some(answers) => {
                for (name, bytes) in &answers.pieces {
                    intake.bytes(name, bytes);
                }
                for (name, why) in answers.refused {
                    intake.refuse(&name, why);
                }
            }
            None => intake.path(input),
        }
        // A directory may hold a picture; an argument of which nothing can be read is unread.
        let pieces = &intake.case.inputs[before..];
        unread |= pieces.iter().all(|piece| piece.taken_for.is_empty());
    }
    let report = conclude(intake.case);
    let outcome = match (report.findings.is_empty(), unread) {
        (false, _) => Outcome::Found,
        (true, true) => Outcome::Unread,
        (true, false) => Outcome::Nothing,
    };
    (report, outcome)
}

/// The same for bytes that are already here: for a page, an endpoint, a test.
pub fn examine_bytes<'a>(inputs: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Report {
    let mut silent = |_: Progress<'_>| {};
    let mut intake = Intake::new(None, &mut silent);
    for (name, bytes) in inputs {
        intake.bytes(name, bytes);
    }
    conclude(intake.case)
}

fn conclude(case: Case) -> Report {
    let Case { dumps, logs, metrics, ledgers, excerpts, pods, inputs } = case;
    let mut report = crate::analysis::examine(&dumps);
    report.inputs = inputs;
    let mut story = logs.finish();
    let onset = story.onset();
    report.findings.extend(story.findings());
    report.timeline.extend(story.events());
    report.notes.extend(story.notes().into_iter().map(|text| Note { text, input: None }));
    report.findings.extend(metrics.findings(&story.latencies(), excerpts.only()));
    report.timeline.extend(metrics.events());
    report.findings.extend(pods.findings());
    for ledger in &ledgers {
        let (findings, graph) = ledger.findings();
        report.findings.extend(findings);
        report.graph.nodes.extend(graph.nodes);
        report.graph.edges.extend(graph.edges);
    }
    let mut memory = metrics.memory();
    memory.extend(story.memory.iter().cloned());
    report.findings.extend(over_limit(&memory));
    timeline::weave(&mut report, onset.as_ref(), &story.memory);
    report
}

#[cfg(test)]
mod tests;
