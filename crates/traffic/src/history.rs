//! History: what was said when, for some days, on this replica's disk.
//!
//! ```text
//! View ──growth since the last minute──► Frame ──► HistoryFiles (segments of an hour, compressed) ──► HistoryQuery
//! ```
//!
//! Contract:
//! - A frame has what each conversation grew by within about a minute ([`EVERY`]), under the names that its
//!   ends had then. Frames are synced as they are written.
//! - It is soft state: `kill -9` loses the minute that was not written yet, and nothing that was. What is
//!   half written is passed over when it is read.
//! - Bounded by age and by bytes: the oldest hour goes first.
//! - One task writes ([`record`]); who reads waits for nobody. Each replica has what it recorded while it led.

mod files;
mod frame;
mod query;
mod recorder;

use std::path::PathBuf;
use std::time::Duration;

#[cfg(feature = "fuzzing")]
pub(crate) use frame::fuzz;

pub use files::{HistoryFiles, HistoryPosition, Kept};
pub use frame::{Frame, HistoryLine};
pub use query::{Found, HistoryEnd, HistoryQuery};
pub use recorder::record;

/// How often a frame is written: what `kill -9` may lose.
pub const EVERY: Duration = Duration::from_secs(60);

/// Where and how much history is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistorySettings {
    pub dir: PathBuf,
    /// Zero keeps none.
    pub age: Duration,
    pub bytes: u64,
    /// [`EVERY`], but for tests.
    pub every: Duration,
}

impl HistorySettings {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, age: Duration::from_secs(72 * 3600), bytes: 256 << 20, every: EVERY }
    }
}
