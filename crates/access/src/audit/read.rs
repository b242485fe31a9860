//! Reads the audit, the newest record first. Blocking.
//!
//! Contract: files are read from their ends in pieces, so that a page costs no more than what it shows.
//! The two lines of a write are one record, at the place of the newer one. A line that cannot be parsed
//! (half a line, after a crash) is skipped. Memory is bounded by the page and by the number of writes
//! that were in flight at once.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stallproof::Deadline;

use super::{Entry, log};
use crate::role::Verb;

/// The most records of a page.
pub const MOST: usize = 1000;
const PIECE: usize = 64 * 1024;
/// The longest line, even if every character is escaped. A longer one is not ours.
const LONGEST: usize = 64 * 1024;
/// Longer than any name of Kubernetes.
const WORD: usize = 512;

/// A write and its outcome.
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
    pub verb: Verb,
    pub cluster: String,
    pub namespace: Option<String>,
    pub resource: String,
    pub name: Option<String>,
    pub request_id: Option<String>,
    pub dry_run: bool,
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
}

impl Record {
    pub(super) fn begun(entry: Entry, id: String, time: Timestamp) -> Self {
        let Entry { who, from, verb, cluster, namespace, resource, name, request_id, dry_run } =
            entry;
        Self {
            id,
            phase: Phase::Begun,
            time,
            who: who.user.to_string(),
            via: who.via.to_string(),
            from: from.map(|from| from.to_string()),
            verb,
            cluster: clipped(cluster),
            namespace: namespace.map(clipped),
            resource: clipped(resource),
            name: name.map(clipped),
            request_id: request_id.map(clipped),
            dry_run,
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

/// Cuts a caller's text at a length that no name exceeds.
fn clipped(mut text: String) -> String {
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
    pub verb: Option<Verb>,
    pub outcome: Option<String>,
    /// Selects writes that began at this time or later.
    pub since: Option<Timestamp>,
    /// The last record of a page selects the next page. A write that has ended meanwhile may be shown
    /// again; none is left out.
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
    for n in 0.. {
        let file = match File::open(log::path(dir, n)) {
            Ok(file) => file,
            // A rotation that is under way or was interrupted leaves a gap of one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if log::path(dir, n + 1).exists() {
                    continue;
                }
                break;
            }
            Err(error) => return Err(error),
        };
        let went_on = backwards(file, |line| {
            if page.records.len() == limit || deadline.has_passed() {
                return false;
            }
            let Ok(record) = serde_json::from_slice::<Record>(line) else {
                return true;
            };
            let seen = match record.phase {
                Phase::Ended => !ended.insert(record.id.clone()),
                Phase::Begun => ended.remove(&record.id),
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
        if !went_on {
            page.complete = false;
            break;
        }
    }
    Ok(page)
}

/// Calls `take` with the lines of a file, the last first, until it has enough.
fn backwards(mut file: File, mut take: impl FnMut(&[u8]) -> bool) -> io::Result<bool> {
    let mut at = file.metadata()?.len();
    // The end of a line that begins in the piece before.
    let mut rest: Vec<u8> = Vec::new();
    while at > 0 {
        let piece = at.min(PIECE as u64);
        at -= piece;
        file.seek(SeekFrom::Start(at))?;
        let mut buffer = vec![0; usize::try_from(piece).unwrap_or(PIECE)];
        file.read_exact(&mut buffer)?;
        buffer.extend_from_slice(&rest);
        let mut end = buffer.len();
        while let Some(newline) = buffer[..end].iter().rposition(|byte| *byte == b'\n') {
            let line = &buffer[newline + 1..end];
            if !line.is_empty() && !take(line) {
                return Ok(false);
            }
            end = newline;
        }
        buffer.truncate(end);
        rest = if buffer.len() > LONGEST { Vec::new() } else { buffer };
    }
    Ok(rest.is_empty() || take(&rest))
}

#[cfg(test)]
mod tests;
