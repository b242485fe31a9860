//! What first bytes told of conversations, as far as it is used.
//!
//! Contract: it has no more than its bound; those that were used longest ago make room, and are counted. One that
//! nobody used for [`KEPT`] is forgotten.

use std::collections::HashMap;
use std::time::Duration;

use traffic::conversations::Moment;

use super::ConversationKey;
use super::room::PART;

/// A connection may say nothing for hours, and goes on under the same name.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Default)]
pub(super) struct NamedConversations {
    pub(super) known: HashMap<ConversationKey, Name>,
    pub(super) forgotten: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) application: &'static str,
    pub(super) used: Moment,
}

impl NamedConversations {
    /// Takes in what the latest bytes told; none takes back what was told before.
    pub(super) fn tell(
        &mut self,
        key: ConversationKey,
        application: Option<&'static str>,
        now: Moment,
        most: usize,
    ) {
        let Some(application) = application else {
            self.known.remove(&key);
            return;
        };
        if self.known.len() >= most && !self.known.contains_key(&key) {
            self.make_room(most);
        }
        self.known.insert(key, Name { application, used: now });
    }

    /// The application of a conversation that goes on.
    pub(super) fn of(&mut self, key: &ConversationKey, now: Moment) -> Option<&'static str> {
        let name = self.known.get_mut(key)?;
        name.used = now;
        Some(name.application)
    }

    pub(super) fn forget(&mut self, now: Moment) {
        self.known.retain(|_, name| now.since(name.used) < KEPT);
    }

    fn make_room(&mut self, most: usize) {
        let mut used: Vec<_> = self.known.iter().map(|(key, name)| (name.used, *key)).collect();
        let count = used.len().min(most.div_ceil(PART));
        let Some(last) = count.checked_sub(1) else { return };
        let oldest = *used.select_nth_unstable(last).1;
        self.known.retain(|key, name| (name.used, *key) > oldest);
        self.forgotten += count as u64;
    }
}
