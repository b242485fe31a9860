//! Progress while a cluster is being changed: a line for each step that is done, and on a terminal
//! what is being waited for.

use std::time::{Duration, Instant};

use install::rollout::Progress;
use serde::Serialize;

use crate::cli::terminal;

/// One step that was done. The JSON is a contract.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Step {
    step: &'static str,
    detail: String,
    seconds: f64,
}

/// Prints the steps, and keeps them for the JSON.
pub(super) struct StepPrinter {
    began: Instant,
    /// Whether a person reads along.
    verbose: bool,
    waiting: Option<terminal::Progress>,
    done: Vec<Step>,
}

impl StepPrinter {
    pub(super) fn new(verbose: bool) -> Self {
        Self { began: Instant::now(), verbose, waiting: None, done: Vec::new() }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn done(&self) -> &[Step] {
        &self.done
    }

    pub(super) fn print(&mut self, progress: Progress) {
        match progress {
            Progress::Done { step, detail, took } => {
                self.waiting = None;
                let seconds = took.as_secs_f64();
                if self.verbose {
                    eprintln!("  {step:<26} {detail:<40} {seconds:.1} s");
                }
                self.done.push(Step { step, detail, seconds });
            }
            Progress::Waiting(what) => {
                if self.verbose {
                    let waiting = self.waiting.get_or_insert_with(terminal::Progress::new);
                    waiting.show(|| format!("  {what}"));
                }
            }
            Progress::Note(text) => self.note(&text),
        }
    }

    /// Prints a note, also where no person reads along: stderr is no part of the contract.
    pub(super) fn note(&mut self, text: &str) {
        self.waiting = None;
        eprintln!("  note: {text}");
    }
}
