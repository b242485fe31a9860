//! `WriteBackoff`: how a cluster's latest writes went, and when the next may begin.

use std::time::Duration;

use stallproof::Backoff;
use stallproof::backoff::Curve;
use tokio::time::Instant;

/// Between attempts to write to a cluster, and to the store.
pub(super) const RETRY: Curve =
    Curve { first: Duration::from_millis(500), most: Duration::from_secs(30) };
/// After how many batches in a row a cluster is written to with pauses: somebody may be undoing the
/// writes.
const MAX_BATCHES_IN_A_ROW: u32 = 64;

pub(super) struct WriteBackoff {
    backoff: Backoff,
    pub(super) until: Instant,
    pub(super) error: Option<String>,
    batches_in_a_row: u32,
}

impl WriteBackoff {
    pub(super) fn new() -> Self {
        let backoff = Backoff::new(RETRY);
        Self { backoff, until: Instant::now(), error: None, batches_in_a_row: 0 }
    }

    /// Takes in how a batch ended; returns the error if it is not the one before.
    pub(super) fn finished(&mut self, error: Option<String>) -> Option<&str> {
        self.batches_in_a_row += 1;
        if error.is_some() || self.batches_in_a_row > MAX_BATCHES_IN_A_ROW {
            self.until = Instant::now() + self.backoff.failed().wait;
        } else {
            self.backoff.succeeded();
        }
        let is_new = self.error != error;
        self.error = error;
        self.error.as_deref().filter(|_| is_new)
    }
}
