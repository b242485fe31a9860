//! The acknowledgements of an ingest without its threads: whoever simulates counts reports by shards of its own.

use std::time::Instant;

use super::acks::{Acks, InFlightReport};
use super::{Counted, NotCounted};
use crate::conversations::{Progress, Report};

/// How far each agent's reports were counted, in one life of a controller.
#[derive(Debug)]
pub struct SimulatedAcks(Acks);

/// A report that is being counted. Dropping it says that it was not.
#[derive(Debug)]
pub struct Counting<'a>(InFlightReport<'a>);

impl SimulatedAcks {
    pub fn of(progress: &[Progress], now: Instant) -> Self {
        Self(Acks::of(progress, now))
    }

    pub fn begin(&self, report: &Report, now: Instant) -> Result<Counting<'_>, NotCounted> {
        self.0.begin(report, now).map(Counting)
    }

    /// How far each has come, for a checkpoint.
    pub fn progress(&self, now: Instant) -> Vec<Progress> {
        self.0.progress(now)
    }

    /// A checkpoint with this progress is on disk.
    pub fn kept(&self, progress: &[Progress]) {
        self.0.kept(progress);
    }
}

impl Counting<'_> {
    /// Every shard has counted it.
    pub fn counted(self) -> Counted {
        self.0.counted()
    }
}
