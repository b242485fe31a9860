//! `Event`: something that happened, as receivers are told of it.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use jiff::Timestamp;
use objects::kinds::{EventKind, EventLevel};
use serde::{Deserialize, Serialize};

/// The most characters of a message: what a server of syslog or a chat takes in one piece.
const LONGEST_MESSAGE: usize = 1500;
const LONGEST_VALUE: usize = 512;
const MOST_DETAILS: usize = 24;
const MOST_GROUPS: usize = 32;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Tells deliveries of one event from those of another: what comes twice has one id.
    pub id: String,
    pub kind: EventKind,
    /// What happened, as `violation.denied`.
    pub name: String,
    pub level: EventLevel,
    pub at: Timestamp,
    /// As the fleet names it; `-` is the cluster that Fairlead runs in.
    pub cluster: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// `namespace/Kind/name` of the workload that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// The pod that it is about, if it is one pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Groups of the workload, made or learned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// One sentence.
    pub message: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<String, String>,
    /// How often it has happened so far.
    pub count: u64,
}

impl Event {
    pub fn new(kind: EventKind, what: &str, level: EventLevel, message: impl Into<String>) -> Self {
        Self {
            id: next_id(),
            kind,
            name: format!("{kind}.{what}"),
            level,
            at: Timestamp::now(),
            cluster: "-".to_owned(),
            namespace: None,
            workload: None,
            pod: None,
            groups: Vec::new(),
            message: message.into(),
            details: BTreeMap::new(),
            count: 1,
        }
    }

    /// Adds a detail, unless it is empty.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        let value = value.into();
        if !value.is_empty() {
            self.details.insert(name.to_owned(), value);
        }
        self
    }

    /// Whom it is about: the workload, else what its details name, else the cluster.
    pub fn subject(&self) -> &str {
        let named = self.details.get("node").or_else(|| self.details.get("subject"));
        self.workload.as_ref().or(named).unwrap_or(&self.cluster)
    }

    /// Cuts everything to what fits: an event's size is bounded whoever made its texts.
    pub(crate) fn fit(&mut self) {
        cut(&mut self.message, LONGEST_MESSAGE);
        let texts = [Some(&mut self.cluster), self.namespace.as_mut(), self.workload.as_mut()];
        for text in texts.into_iter().flatten().chain(self.pod.as_mut()) {
            cut(text, LONGEST_VALUE);
        }
        self.groups.truncate(MOST_GROUPS);
        for group in &mut self.groups {
            cut(group, LONGEST_VALUE);
        }
        while self.details.len() > MOST_DETAILS {
            self.details.pop_last();
        }
        for value in self.details.values_mut() {
            cut(value, LONGEST_VALUE);
        }
    }
}

/// Cuts a text after so many characters, and shows that it was cut.
pub(crate) fn cut(text: &mut String, most: usize) {
    if let Some((at, _)) = text.char_indices().nth(most) {
        text.truncate(at);
        text.push('…');
    }
}

/// An id that no other event of any process has: its start to the nanosecond, its number, a count.
fn next_id() -> String {
    static START: LazyLock<i128> = LazyLock::new(|| Timestamp::now().as_nanosecond());
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Relaxed);
    format!("{:x}-{:x}-{number:x}", *START, std::process::id())
}
