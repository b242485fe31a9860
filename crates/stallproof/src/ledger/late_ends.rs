//! How many ends of late operations the log can take.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::warn;

use super::LINES;

/// Keeps the late ends of one kind to `LINES` lines a second.
#[derive(Default)]
pub(super) struct LateEnds(Mutex<Told>);

#[derive(Default)]
struct Told {
    second: Option<Instant>,
    told: usize,
    withheld: u64,
}

impl LateEnds {
    /// Whether there is room in the log for one more.
    pub(super) fn may_tell(&self, kind: &str, now: Instant) -> bool {
        self.tell_withheld(kind, now);
        let mut lines = self.0.lock();
        let may = lines.told < LINES;
        if may {
            lines.told += 1;
        } else {
            lines.withheld += 1;
        }
        may
    }

    /// Begins a new second if it is time, and says what was not said in the last.
    pub(super) fn tell_withheld(&self, kind: &str, now: Instant) {
        let withheld = {
            let mut lines = self.0.lock();
            let over = |second| now.saturating_duration_since(second) >= Duration::from_secs(1);
            if !lines.second.is_none_or(over) {
                return;
            }
            std::mem::replace(&mut *lines, Told { second: Some(now), ..Told::default() }).withheld
        };
        if withheld > 0 {
            warn!(kind, more = withheld, "more late operations have ended");
        }
    }
}
