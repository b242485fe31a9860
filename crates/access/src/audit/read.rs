//! Reads the audit, the newest record first. Blocking.
//!
//! Contract: a page costs no more than what it shows ([`stallproof::line_log`]). The two lines of a write are
//! one record, at the place of the newer one. A line that cannot be parsed (half a line, after a crash) is
//! skipped. Memory is bounded by the page and by the number of writes that were in flight at once.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use stallproof::Deadline;
use stallproof::line_log::{self, LogPosition};

use super::{Entry, NAME};
use crate::secret::Fingerprint;

/// The most records of a page.
pub const MOST: usize = 1000;
/// The most bytes of lines in a part of an export.
const PART: usize = 1 << 20;
/// Longer than any name of Kubernetes.
const WORD: usize = 512;
/// The most bytes of a record's details, and of what was before and after. A longer one is a digest.
const VALUE: usize = 16 * 1024;

/// What somebody did, and its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub id: String,
    pub phase: Phase,
    /// When it began.
    pub time: Timestamp,
    pub who: String,
    /// `local`, `token/<id>` or `session/<id>`.
    pub via: String,
    pub from: Option<String>,
    /// A verb of roles, or [`LOGIN`](super::LOGIN).
    pub verb: String,
    pub cluster: String,
    pub namespace: Option<String>,
    pub resource: String,
    pub name: Option<String>,
    pub request_id: Option<String>,
    pub dry_run: bool,
    /// How often it happened until `ended`, where it is more than one act.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// What was asked for, and what else is known of it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub details: Map<String, Value>,
    /// The subject before a change, and after it; without secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    /// `ok` or the code of an error; `None` while it is under way, or if its process died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Begun,
    Ended,
    /// The only line: a read or a login.
    Noted,
}

impl Record {
    pub(super) fn begun(entry: Entry, id: String, time: Timestamp) -> Self {
        let Entry { who, from, verb, cluster, namespace, resource, name, request_id, .. } = entry;
        let details = bounded(Value::Object(entry.details));
        let details = details.as_object().cloned().unwrap_or_default();
        Self {
            id,
            phase: Phase::Begun,
            time,
            who: who.user.to_string(),
            via: who.via.to_string(),
            from: from.map(|from| from.to_string()),
            verb: verb.as_str().to_owned(),
            cluster: clipped(cluster),
            namespace: namespace.map(clipped),
            resource: clipped(resource),
            name: name.map(clipped),
            request_id: request_id.map(clipped),
            dry_run: entry.dry_run,
            count: None,
            details,
            before: None,
            after: None,
            outcome: None,
            ended: None,
            took_ms: None,
        }
    }

    pub(super) fn end(&mut self, outcome: &str, ended: Timestamp, took: Duration) {
        self.phase = Phase::Ended;
        self.outcome = Some(outcome.to_owned());
        self.ended = Some(ended);
        self.took_ms = u64::try_from(took.as_millis()).ok();
    }

    /// The time of its newer line in milliseconds. Records are read in about this order.
    pub fn written(&self) -> Timestamp {
        let took = Duration::from_millis(self.took_ms.unwrap_or_default());
        self.time.checked_add(took).unwrap_or(self.time)
    }

    pub(super) fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("strings and numbers are JSON");
        line.push(b'\n');
        line
    }
}

/// The value, or its size and digest where it is too long for a line.
pub(super) fn bounded(value: Value) -> Value {
    let text = value.to_string();
    if text.len() <= VALUE {
        return value;
    }
    json!({ "bytes": text.len(), "sha256": Fingerprint::of(&text).to_hex() })
}

/// Cuts a caller's text at a length that no name exceeds.
pub(super) fn clipped(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(WORD));
    text
}

/// Selects records; a field that is `None` does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub id: Option<String>,
    pub who: Option<String>,
    pub cluster: Option<String>,
    pub namespace: Option<String>,
    pub resource: Option<String>,
    pub name: Option<String>,
    pub verb: Option<String>,
    pub outcome: Option<String>,
    /// Selects writes that began at this time or later.
    pub since: Option<Timestamp>,
    /// Selects what began before this time.
    pub until: Option<Timestamp>,
    /// The last record of a page selects the next page. A write that has ended meanwhile may be shown
    /// again, and so may one that was written in the same milliseconds as the last; ids tell.
    pub older_than: Option<OlderThan>,
}

/// Selects records that are older than this one: `ID`, or `ID@TIME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OlderThan {
    pub id: String,
    /// The time that record was [`written`](Record::written). An audit that does not have the record finds
    /// the older ones by it; without it, it shows none.
    pub written: Option<Timestamp>,
}

impl OlderThan {
    /// Whether this is the record itself, after which the records to show begin.
    fn is(&self, record: &Record) -> bool {
        self.id == record.id
    }

    fn is_younger_than(&self, record: &Record) -> bool {
        let than = self.written.map(|written| (written, &self.id));
        than.is_some_and(|than| (record.written(), &record.id) < than)
    }
}

impl FromStr for OlderThan {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        let (id, written) = match text.split_once('@') {
            Some((id, written)) => (id, Some(written.parse()?)),
            None => (text, None),
        };
        Ok(Self { id: id.to_owned(), written })
    }
}

impl fmt::Display for OlderThan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.written {
            Some(written) => write!(f, "{}@{written}", self.id),
            None => f.write_str(&self.id),
        }
    }
}

impl Filter {
    fn matches(&self, record: &Record) -> bool {
        fn is<T: PartialEq>(wanted: Option<&T>, found: Option<&T>) -> bool {
            wanted.is_none() || wanted == found
        }
        is(self.id.as_ref(), Some(&record.id))
            && is(self.who.as_ref(), Some(&record.who))
            && is(self.cluster.as_ref(), Some(&record.cluster))
            && is(self.namespace.as_ref(), record.namespace.as_ref())
            && is(self.resource.as_ref(), Some(&record.resource))
            && is(self.name.as_ref(), record.name.as_ref())
            && is(self.verb.as_ref(), Some(&record.verb))
            && is(self.outcome.as_ref(), record.outcome.as_ref())
            && self.since.is_none_or(|since| record.time >= since)
            && self.until.is_none_or(|until| record.time < until)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Page {
    pub records: Vec<Record>,
    /// `false` means that there may be more: the limit or the deadline came first.
    pub complete: bool,
}

pub(super) fn newest(
    dir: &Path,
    filter: &Filter,
    limit: usize,
    deadline: Deadline,
) -> io::Result<Page> {
    let limit = limit.clamp(1, MOST);
    let mut page = Page { records: Vec::new(), complete: true };
    // The records whose newer line was read and whose older line was not.
    let mut ended = HashSet::new();
    let mut reached = filter.older_than.is_none();
    page.complete = line_log::newest_first(dir, NAME, |line| {
        if page.records.len() == limit || deadline.has_passed() {
            return false;
        }
        let Ok(record) = serde_json::from_slice::<Record>(line) else {
            return true;
        };
        let seen = match record.phase {
            Phase::Ended => !ended.insert(record.id.clone()),
            Phase::Begun => ended.remove(&record.id),
            Phase::Noted => false,
        };
        if seen {
            return true;
        }
        if !reached && let Some(than) = &filter.older_than {
            let is_it = than.is(&record);
            reached = is_it || than.is_younger_than(&record);
            if is_it || !reached {
                return true;
            }
        }
        if filter.matches(&record) {
            page.records.push(record);
        }
        true
    })?;
    Ok(page)
}

/// A part of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// A record for each line: of a write that has ended, the one that begun it as well.
    pub lines: Vec<Record>,
    /// Where the next part begins; none after the last.
    pub next: Option<LogPosition>,
}

/// Reads the lines that match, the oldest first.
pub(super) fn export(
    dir: &Path,
    filter: &Filter,
    after: Option<LogPosition>,
    deadline: Deadline,
) -> io::Result<Part> {
    let (mut lines, mut bytes) = (Vec::new(), 0);
    let next = line_log::oldest_first(dir, NAME, after, |line| {
        if let Ok(record) = serde_json::from_slice::<Record>(line)
            && filter.matches(&record)
        {
            bytes += line.len();
            lines.push(record);
        }
        lines.len() < MOST && bytes < PART && !deadline.has_passed()
    })?;
    Ok(Part { lines, next })
}

#[cfg(test)]
mod tests;
