//! How often a node may enrol: so many times at once, then one every so often. All that is kept of a node
//! is one instant, and only while it says anything.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// An agent that is started anew enrols anew, if it has lost its certificate.
const AT_ONCE: u32 = 10;
const THEN_EVERY: Duration = Duration::from_secs(60);
/// Nodes that enrolled within the last minutes; a token for any node has any name.
const MOST: usize = 16_384;

#[derive(Debug, Default)]
pub(super) struct Enrolments {
    /// When the next one of a node would be due at an even pace. Written by every enrolment.
    due: Mutex<HashMap<String, Instant>>,
}

impl Enrolments {
    /// Counts one; or says when the next may be.
    pub(super) fn take(&self, node: &str, now: Instant) -> Result<(), Duration> {
        let ahead = THEN_EVERY * (AT_ONCE - 1);
        let mut due = self.due.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if due.len() >= MOST && !due.contains_key(node) {
            due.retain(|_, due| *due > now);
            if due.len() >= MOST {
                return Err(THEN_EVERY);
            }
        }
        let of_node = due.get(node).map_or(now, |due| (*due).max(now));
        let early = of_node.saturating_duration_since(now);
        if early > ahead {
            return Err(early - ahead);
        }
        due.insert(node.to_owned(), of_node + THEN_EVERY);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_enrols_again_and_again_is_told_to_wait_and_no_other_is() {
        let (enrolments, now) = (Enrolments::default(), Instant::now());
        for _ in 0..AT_ONCE {
            enrolments.take("loop", now).unwrap();
        }
        assert_eq!(enrolments.take("loop", now), Err(THEN_EVERY));
        enrolments.take("other", now).unwrap();
        enrolments.take("loop", now + THEN_EVERY).unwrap();
        assert_eq!(enrolments.take("loop", now + THEN_EVERY), Err(THEN_EVERY));
        enrolments.take("loop", now + 20 * THEN_EVERY).unwrap();
    }

    #[test]
    fn names_that_somebody_makes_up_take_bounded_memory_and_are_forgotten() {
        let (enrolments, now) = (Enrolments::default(), Instant::now());
        for name in 0..MOST {
            enrolments.take(&name.to_string(), now).unwrap();
        }
        assert_eq!(enrolments.take("one-more", now), Err(THEN_EVERY));
        enrolments.take("1", now).unwrap();
        enrolments.take("one-more", now + 2 * THEN_EVERY).unwrap();
        assert!(enrolments.due.lock().unwrap().len() < 8);
    }
}
