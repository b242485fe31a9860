//! Where a node's connections come from.

use std::io;
use std::time::Duration;

use crate::sensor::Flow;

/// Lists connections and hears of their ends. Calls block, each with a time limit.
pub(crate) trait Source: Send {
    /// Gives every connection to `each`, perhaps twice; says whether the listing was whole.
    fn list(&mut self, each: &mut dyn FnMut(&Flow)) -> io::Result<bool>;

    /// Waits for connections to end, for at most `wait`, and gives them to `each`; says whether some
    /// were lost.
    fn ends(&mut self, wait: Duration, each: &mut dyn FnMut(&Flow)) -> io::Result<bool>;

    /// Takes back what was changed for it.
    fn close(&mut self) {}
}
