//! The whole way from arguments to a report.

use jiff::Timestamp;

use crate::case::Case;
use crate::input::{Gathered, Intake, Progress};
use crate::live::{self, Live};
use crate::log::Onset;
use crate::metrics::{memory_events, over_limit};
use crate::own::Ledger;
use crate::report::{Note, Report};
use crate::timeline;

/// What the examination needs besides its inputs.
#[derive(Debug, Clone, Default)]
pub struct Options<'a> {
    /// The present, for logs that leave out the year and have no other date.
    pub now: Option<Timestamp>,
    /// How running processes are asked; None where no address is expected.
    pub live: Option<Live<'a>>,
}

/// The result of an examination in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conclusion {
    /// Everything was read; no stall.
    Nothing,
    /// At least one finding.
    Found,
    /// No finding, and an input could not be read, so that one may be hidden there.
    Unread,
}

impl Conclusion {
    /// Returns the exit code of the command line: 0, 1 or 2.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Nothing => 0,
            Self::Found => 1,
            Self::Unread => 2,
        }
    }
}

/// Reads paths, directories, `-` and addresses, in any mixture, and says what is wrong.
pub fn examine_inputs(
    inputs: &[String],
    options: &Options<'_>,
    progress: &mut dyn FnMut(Progress<'_>),
) -> (Report, Conclusion) {
    let now = options.now.map(Timestamp::as_millisecond);
    let mut unread = inputs.is_empty();
    // Asked before the intake borrows `progress` for good.
    let mut answers: Vec<_> = inputs
        .iter()
        .map(|input| {
            live::is_address(input).then(|| {
                live::ask(input, options.live, &mut |url| {
                    progress(Progress { input: url, read: 0, size: None });
                })
            })
        })
        .collect();
    let mut intake = Intake::new(now, progress);
    for (input, answers) in inputs.iter().zip(&mut answers) {
        let before = intake.gathered.inputs.len();
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
        let pieces = &intake.gathered.inputs[before..];
        unread |= pieces.iter().all(|piece| piece.taken_for.is_empty());
    }
    let report = conclude(intake.gathered);
    let outcome = match (report.findings.is_empty(), unread) {
        (false, _) => Conclusion::Found,
        (true, true) => Conclusion::Unread,
        (true, false) => Conclusion::Nothing,
    };
    (report, outcome)
}

/// Examines bytes that are in memory: for a page, an endpoint, a test. They may be anything that a
/// file may be, an archive too.
pub fn examine(name: &str, bytes: &[u8]) -> Report {
    examine_all([(name, bytes)])
}

/// Examines several inputs that may belong together: two dumps of one process, a dump and its log.
/// Whoever sent them, time and memory follow their size: archives may unpack to 1 GiB in all.
pub fn examine_all<'a>(inputs: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Report {
    let mut silent = |_: Progress<'_>| {};
    let mut intake = Intake::of_uploads(&mut silent);
    for (name, bytes) in inputs {
        intake.bytes(name, bytes);
    }
    conclude(intake.gathered)
}

fn conclude(gathered: Gathered) -> Report {
    let Gathered { dumps, threads, logs, metrics, ledgers, excerpts, pods, inputs } = gathered;
    let mut story = logs.finish();
    let onset = story.onset();
    let mut case = Case { inputs, dumps, threads, ..Case::default() };
    case.findings.extend(story.findings());
    case.rising = metrics.rising();
    case.findings.extend(metrics.findings(&story.latencies(), excerpts.only()));
    case.findings.extend(pods.findings());
    case.findings.extend(ledgers.iter().flat_map(Ledger::findings));
    let mut memory = metrics.memory();
    memory.extend(story.memory.iter().cloned());
    case.findings.extend(over_limit(&memory));
    case.timeline.extend(onset.as_ref().map(Onset::event));
    case.timeline.extend(story.events());
    case.timeline.extend(metrics.events());
    case.timeline.extend(memory_events(&story.memory));
    case.notes.extend(story.notes().into_iter().map(|text| Note { text, input: None }));
    let mut report = case.conclude();
    timeline::weave(&mut report, onset.as_ref());
    report
}

#[cfg(test)]
mod tests;
