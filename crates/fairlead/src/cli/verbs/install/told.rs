//! What is told while a cluster is being changed: a line for each step that is done, and on a terminal
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

pub(super) struct Teller {
    began: Instant,
    /// Whether a person reads along.
    aloud: bool,
    waiting: Option<terminal::Progress>,
    steps: Vec<Step>,
}

impl Teller {
    pub(super) fn new(aloud: bool) -> Self {
        Self { began: Instant::now(), aloud, waiting: None, steps: Vec::new() }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    pub(super) fn tell(&mut self, progress: Progress) {
        match progress {
            Progress::Done { step, detail, took } => {
                self.waiting = None;
                let seconds = took.as_secs_f64();
                if self.aloud {
                    eprintln!("  {step:<26} {detail:<40} {seconds:.1} s");
                }
                self.steps.push(Step { step, detail, seconds });
            }
            Progress::Waiting(what) => {
                if self.aloud {
                    let waiting = self.waiting.get_or_insert_with(terminal::Progress::new);
                    waiting.tell(|| format!("  {what}"));
                }
            }
            Progress::Note(text) => self.note(&text),
        }
    }

    /// Also without a person: stderr is no part of the contract.
    pub(super) fn note(&mut self, text: &str) {
        self.waiting = None;
        eprintln!("  note: {text}");
    }
}
