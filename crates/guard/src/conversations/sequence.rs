//! `Window`: which batches of an incarnation have been counted, in a few words of memory.
//!
//! Totals are safe without it. It spares the work of batches that come again, and it is what an
//! acknowledgement says: everything through `n` has been counted.

/// How far ahead of a gap a batch is remembered. One further ahead is counted, and counted again
/// for nothing when it comes again.
const AHEAD: u64 = 128;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    through: u64,
    /// Bit `i` is batch `through + 1 + i`.
    ahead: u128,
}

impl Window {
    /// As it was remembered: everything through `n`.
    pub fn through_only(n: u64) -> Self {
        Self { through: n, ahead: 0 }
    }

    /// All batches up to this one were counted.
    pub fn through(&self) -> u64 {
        self.through
    }

    pub fn has(&self, sequence: u64) -> bool {
        match self.offset(sequence) {
            None => true,
            Some(i) => i < AHEAD && self.ahead >> i & 1 == 1,
        }
    }

    /// To be called when every shard has counted the batch.
    pub fn mark(&mut self, sequence: u64) {
        let Some(i) = self.offset(sequence).filter(|i| *i < AHEAD) else { return };
        self.ahead |= 1 << i;
        let run = self.ahead.trailing_ones();
        self.through += u64::from(run);
        self.ahead = self.ahead.checked_shr(run).unwrap_or(0);
    }

    /// Its bit; none if it is behind.
    fn offset(&self, sequence: u64) -> Option<u64> {
        sequence.checked_sub(self.through)?.checked_sub(1)
    }
}

#[cfg(test)]
mod tests;
