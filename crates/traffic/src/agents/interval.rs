//! How often agents should report, as the load is.

use std::time::Duration;

pub const SHORTEST: Duration = Duration::from_secs(5);
/// Still within [`SILENCE`](crate::conversations::SILENCE).
pub const LONGEST: Duration = Duration::from_secs(60);

/// So many batches a second are asked for at most, however many agents there are.
const BATCHES: f64 = 1000.0;
/// Below this share it may go faster, above that it must go slower.
const EASY: f64 = 0.3;
const HARD: f64 = 0.7;

/// What a second was like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    pub agents: usize,
    /// The share in use of what there is for batches, from 0 to 1.
    pub busy: f64,
    /// A batch was told to come back for want of room.
    pub refused: bool,
}

/// The interval after `current`: longer at once when there is too much to do, shorter little by
/// little when there is not.
pub(super) fn next(current: Duration, load: Load) -> Duration {
    let shortest = SHORTEST.as_secs_f64().max(load.agents as f64 / BATCHES);
    let seconds = if load.refused || load.busy > HARD {
        current.as_secs_f64() * 1.5
    } else if load.busy < EASY {
        current.as_secs_f64() * 0.95
    } else {
        current.as_secs_f64()
    };
    Duration::from_secs_f64(
        seconds.max(shortest).clamp(SHORTEST.as_secs_f64(), LONGEST.as_secs_f64()),
    )
}

#[cfg(test)]
mod tests;
