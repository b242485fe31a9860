//! `Conversation`: what one client and one server say to each other about one service.

use std::sync::Arc;

use super::{End, Moment, Protocol, Totals, Verdict};

/// One conversation and its verdict, as the learner hears of it and as a violation keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    pub client: End,
    pub server: End,
    pub protocol: Protocol,
    /// The server's.
    pub port: u16,
    pub application: Option<Arc<str>>,
    pub verdict: Verdict,
    /// The rule that decided; none if it was for want of one.
    pub rule: Option<Arc<str>>,
    pub totals: Totals,
    pub first: Moment,
    pub last: Moment,
}
