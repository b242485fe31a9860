//! `RunningTotal`: what was seen of one conversation, and which controllers know it.

use std::sync::Arc;

use super::ConversationKey;
use super::controllers::Holders;
use traffic::conversations::{Moment, Record, Totals};

/// What was seen of a conversation since its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunningTotal {
    pub(super) totals: Totals,
    pub(super) first: Moment,
    pub(super) last: Moment,
    /// What the last report with it said.
    pub(super) told: Totals,
    /// The number of that report; 0 if there was none.
    pub(super) sent: u64,
    /// It is to be told, again or for the first time.
    pub(super) changed: bool,
    /// Controllers that were told something of it.
    pub(super) told_to: Holders,
    /// Controllers that are told nothing of it again, unless it grows: they have it on disk.
    pub(super) kept_by: Holders,
    /// It is against the rules.
    pub(super) alarming: bool,
    /// What its first bytes were of, if that is known.
    pub(super) application: Option<&'static str>,
}

impl RunningTotal {
    /// Whether the controller that was joined last has it on disk.
    pub(super) fn is_on_disk(&self, durable: u64) -> bool {
        !self.changed && self.sent <= durable
    }

    pub(super) fn is_kept(&self, durable: u64, controller: Option<usize>) -> bool {
        self.is_on_disk(durable) || self.kept_by.has(controller)
    }

    /// Whether no controller ever heard of it.
    pub(super) fn is_untold(&self) -> bool {
        self.sent == 0 && self.told_to.is_empty()
    }

    pub(super) fn record(&self, key: &ConversationKey) -> Record {
        Record {
            client: key.client,
            server: key.server,
            port: key.port,
            protocol: key.protocol,
            application: self.application.map(Arc::from),
            totals: self.totals,
            first: self.first,
            last: self.last,
        }
    }
}
