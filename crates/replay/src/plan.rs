//! What is asked of a replay: which load, how much of it, and how long the old design may take.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Decides everything that is left to chance, for both designs alike.
    pub seed: u64,
    /// 1.0 is the report's own numbers.
    pub scale: f64,
    /// When the old design is stopped; none: what the incident says.
    pub limit: Option<Duration>,
    /// The most memory that either design may take before it is stopped.
    pub memory: u64,
    /// Empty, and gone after the run.
    pub dir: PathBuf,
    /// The CNI plugin's executable.
    pub plugin: PathBuf,
    /// This program, to be run again as one design or as a server.
    pub program: PathBuf,
}

/// More than this is not waited for, whatever the design: something is wrong.
pub const LONGEST: Duration = Duration::from_secs(1800);
/// Where the report's machines had 6 GiB, a laptop should survive the replay.
pub const MEMORY: u64 = 2 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Design {
    Old,
    New,
}

impl Design {
    pub const BOTH: [Self; 2] = [Self::Old, Self::New];

    pub fn name(self) -> &'static str {
        match self {
            Self::Old => "old",
            Self::New => "new",
        }
    }
}

impl Plan {
    /// So many of the report's `full`, and never fewer than `least`.
    pub(crate) fn of(&self, full: usize, least: usize) -> usize {
        ((full as f64 * self.scale).round() as usize).max(least)
    }

    pub(crate) fn random(&self) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed)
    }
}
