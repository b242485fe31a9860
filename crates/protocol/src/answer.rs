//! `Answer`: what a controller says to a report.

use std::time::Duration;

use crate::proto::answer::Answer as Wire;
use crate::{Malformed, proto};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Counted {
        /// All reports of this incarnation up to here are counted,
        through: u64,
        /// and up to here on disk.
        durable: u64,
        /// When to send the next one.
        interval: Duration,
    },
    /// The report was not counted: send it again, or a newer one with the same totals.
    ComeBack { after: Duration },
}

impl From<Answer> for proto::Answer {
    fn from(answer: Answer) -> Self {
        let answer = match answer {
            Answer::Counted { through, durable, interval } => {
                Wire::Counted(proto::Counted { through, durable, interval_ms: millis(interval) })
            }
            Answer::ComeBack { after } => {
                Wire::ComeBack(proto::ComeBack { after_ms: millis(after).max(1) })
            }
        };
        Self { answer: Some(answer) }
    }
}

impl TryFrom<proto::Answer> for Answer {
    type Error = Malformed;

    fn try_from(answer: proto::Answer) -> Result<Self, Malformed> {
        Ok(match answer.answer.ok_or(Malformed("an answer says nothing"))? {
            Wire::Counted(proto::Counted { through, durable, interval_ms }) => {
                let interval = Duration::from_millis(interval_ms.into());
                Self::Counted { through, durable, interval }
            }
            Wire::ComeBack(proto::ComeBack { after_ms }) => {
                Self::ComeBack { after: Duration::from_millis(after_ms.into()) }
            }
        })
    }
}

/// Milliseconds, as messages have them.
pub fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}
