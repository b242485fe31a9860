//! Logs in, a story out: the onset, the first anomalies in order, loops folded, requests begun and
//! never ended, leader changes, restarts, memory against its limit.
//!
//! ```text
//! line ─► record (dialect) ─► template ─┬─► requests by id
//!                                       ├─► signs: leader, exit, queue full, …
//!                                       └─► counts over time
//! ```
//!
//! Lines come one at a time and are not kept: memory follows what is distinct, not what is long.

pub(crate) mod fields;
mod findings;
mod flight;
pub(crate) mod line;
mod requests;
mod signs;
pub(crate) mod stamp;
mod template;

use std::collections::BTreeMap;

pub(crate) use self::findings::Onset;
use self::flight::Flight;
use self::line::{Dialect, Level, Record};
use self::requests::{Begun, Requests};
use self::signs::{DURATION_KEYS, ID_KEYS, LIMIT_KEYS, Sign, USED_KEYS};
use self::stamp::Millis;
use self::template::{Seen, Templates};
use crate::metrics::{Latency, MemoryFact, duration_ms};
use crate::report::Evidence;

/// Events kept of a kind; beyond that they are counted only.
const MOST_EVENTS: usize = 256;
/// Points of the curve of errors over time.
const MOST_BUCKETS: usize = 1024;

/// A line as it is handed over: where it stands, and its bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) input: &'a str,
    pub(crate) line: u64,
    pub(crate) bytes: &'a [u8],
}

impl At<'_> {
    pub(crate) fn evidence(&self) -> Evidence {
        Evidence { input: self.input.to_owned(), line: Some(self.line), text: readable(self.bytes) }
    }
}

/// Text for a person, of a length that fits a line or two.
pub(crate) fn readable(bytes: &[u8]) -> String {
    const LONGEST: usize = 280;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * LONGEST)]);
    cut(text.trim(), LONGEST)
}

fn cut(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[derive(Debug, Clone)]
struct Event {
    sign: Sign,
    /// The line without its time and level.
    text: String,
    seen: Seen,
}

/// Collects lines.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    templates: Templates,
    requests: Requests,
    events: Vec<Event>,
    memory: Vec<MemoryFact>,
    latency: BTreeMap<String, (Latency, Evidence)>,
    flight: Flight,
    curve: Curve,
    lines: u64,
    first: Option<Millis>,
    last: Option<Millis>,
    /// The time of the line before, which a line without one inherits.
    now: Option<Millis>,
    /// Lines of the document already seen: reports quote the same excerpt twice.
    quoted: Option<std::collections::HashSet<u64>>,
    scratch: Vec<u8>,
}

impl Logs {
    /// Another input begins, written at `reference` as far as is known.
    pub(crate) fn begin(&mut self, reference: Option<Millis>) {
        self.now = reference;
        self.quoted = None;
    }

    /// The input quotes logs rather than being one: a line that stands there twice counts once.
    pub(crate) fn quoting(&mut self) {
        self.quoted.get_or_insert_default();
    }

    /// Takes one line; tells whether a logger wrote it, and how.
    pub(crate) fn line(&mut self, at: At<'_>) -> Option<Dialect> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let dialect = line::record(at.bytes, self.now, &mut scratch).map(|record| {
            self.take(&record, at);
            record.dialect
        });
        self.scratch = scratch;
        dialect
    }

    /// Takes a line that no logger wrote but that stands among those that one did: a reporter's
    /// remark such as `(28034 hits)`.
    pub(crate) fn remark(&mut self, at: At<'_>) {
        if self.lines == 0 {
            return;
        }
        let text = String::from_utf8_lossy(at.bytes);
        if let Some(count) = hits(&text) {
            let quotation = text.split('"').nth(1).filter(|q| q.len() > 8);
            self.templates.told(quotation, count, at.evidence());
        }
    }

    fn take(&mut self, record: &Record<'_>, at: At<'_>) {
        if let Some(quoted) = &mut self.quoted {
            use std::hash::{BuildHasher, BuildHasherDefault};
            let hash = BuildHasherDefault::<rustc_hash::FxHasher>::default().hash_one(at.bytes);
            if record.at.is_some() && quoted.len() < 1 << 20 && !quoted.insert(hash) {
                return;
            }
        }
        self.lines += 1;
        if let Some(time) = record.at {
            self.now = Some(time);
            self.first = Some(self.first.map_or(time, |t| t.min(time)));
            self.last = Some(self.last.map_or(time, |t| t.max(time)));
        }
        // A line without a time happened when the one before did.
        let record =
            &Record { at: record.at.or(self.now.filter(|_| self.first.is_some())), ..*record };
        let Some(number) = self.templates.count(record, || at.evidence()) else {
            return;
        };
        let template = self.templates.get(number);
        let traits = template.traits;
        if let Some(time) = record.at {
            let bad = record.level >= Level::Error || traits.sign.is_some_and(Sign::is_anomaly);
            self.curve.add(time, bad);
        }
        if traits.has_id
            && let Some(id) = record.fields.get(ID_KEYS)
        {
            self.requests.line(number, traits.begins, id, record.at);
        }
        if let Some(sign) = traits.sign
            && self.events.len() < MOST_EVENTS
        {
            let sign = match sign {
                Sign::LeaderMoved
                    if record.fields.get(&["newlead"]).is_none_or(<[u8]>::is_empty) =>
                {
                    Sign::LeaderLost
                }
                Sign::LeaderMoved => Sign::LeaderWon,
                sign => sign,
            };
            let seen = Seen { at: record.at, evidence: at.evidence() };
            let source = String::from_utf8_lossy(record.source);
            let text = cut(&format!("{source}: {}", readable(record.message)), 160);
            self.events.push(Event { sign, text, seen });
        }
        if traits.has_memory {
            self.take_memory(record, at);
        }
        self.flight.line(record, || at.evidence());
        if traits.has_duration {
            self.take_duration(record, at);
        }
    }

    fn take_memory(&mut self, record: &Record<'_>, at: At<'_>) {
        let number = |keys| {
            let value = record.fields.get(keys)?;
            std::str::from_utf8(value).ok()?.parse::<f64>().ok().filter(|v| *v > 0.0)
        };
        let Some(used) = number(USED_KEYS) else {
            return;
        };
        let Some(limit) = number(LIMIT_KEYS) else {
            return;
        };
        let fact = MemoryFact { used, limit: Some(limit), at: record.at, evidence: at.evidence() };
        // The highest is what matters; a few more draw the curve.
        if self.memory.len() < MOST_EVENTS {
            self.memory.push(fact);
        } else if let Some(least) = self.memory.iter_mut().min_by(|a, b| a.used.total_cmp(&b.used))
            && least.used < used
        {
            *least = fact;
        }
    }

    fn take_duration(&mut self, record: &Record<'_>, at: At<'_>) {
        let found = DURATION_KEYS.iter().find_map(|(key, unit)| {
            let value = record.fields.get(&[key])?;
            duration_ms(std::str::from_utf8(value).ok()?, *unit)
        });
        let Some(ms) = found else { return };
        if flight::goes_on(record.message) {
            return self.flight.still_runs(ms / 1000.0, || at.evidence());
        }
        self.flight.ended(ms / 1000.0, || at.evidence());
        let what = record
            .fields
            .get(&["grpc.method", "method", "rpc", "handler", "url", "path"])
            .unwrap_or(record.message);
        let mut what = readable(&what[..what.len().min(64)]);
        if let Some(code) = record.fields.get(&["grpc.code", "code", "status"]) {
            what = format!("{what} {}", String::from_utf8_lossy(&code[..code.len().min(24)]));
        }
        if self.latency.len() < MOST_EVENTS || self.latency.contains_key(&what) {
            let entry = self.latency.entry(what);
            entry.or_insert_with(|| (Latency::default(), at.evidence())).0.add(ms / 1000.0);
        }
    }

    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }

    /// Ends the collection.
    pub(crate) fn finish(self) -> Story {
        let requests = self.requests.finish(self.last);
        Story {
            requests,
            templates: self.templates,
            events: self.events,
            memory: self.memory,
            latency: self.latency,
            flight: self.flight,
            curve: self.curve,
            first: self.first,
            last: self.last,
        }
    }
}

/// What the logs say, all lines read.
#[derive(Debug)]
pub(crate) struct Story {
    templates: Templates,
    requests: Vec<(u32, Begun)>,
    events: Vec<Event>,
    pub(crate) memory: Vec<MemoryFact>,
    pub(crate) latency: BTreeMap<String, (Latency, Evidence)>,
    flight: Flight,
    curve: Curve,
    first: Option<Millis>,
    last: Option<Millis>,
}

/// Lines and bad lines over time, in buckets that double in width when there are too many.
#[derive(Debug)]
struct Curve {
    width: Millis,
    buckets: BTreeMap<Millis, (u32, u32)>,
    /// The bucket being filled: most lines fall into the same as the one before.
    current: Option<(Millis, u32, u32)>,
}

impl Default for Curve {
    fn default() -> Self {
        Self { width: 1_000, buckets: BTreeMap::new(), current: None }
    }
}

impl Curve {
    fn add(&mut self, at: Millis, bad: bool) {
        let key = at.div_euclid(self.width);
        match &mut self.current {
            Some((current, lines, worse)) if *current == key => {
                *lines = lines.saturating_add(1);
                *worse = worse.saturating_add(u32::from(bad));
            }
            _ => {
                self.flush();
                // The width may have changed.
                self.current = Some((at.div_euclid(self.width), 1, u32::from(bad)));
            }
        }
    }

    fn flush(&mut self) {
        let Some((key, lines, bad)) = self.current.take() else {
            return;
        };
        merge(&mut self.buckets, key, lines, bad);
        while self.buckets.len() > MOST_BUCKETS {
            self.width *= 2;
            let mut wider = BTreeMap::new();
            for (key, (lines, bad)) in std::mem::take(&mut self.buckets) {
                merge(&mut wider, key.div_euclid(2), lines, bad);
            }
            self.buckets = wider;
        }
    }

    /// When bad lines became ten times as many as was usual until then.
    fn jump(&mut self) -> Option<Millis> {
        self.flush();
        let mut before: Vec<u32> = Vec::new();
        for (key, (_, bad)) in &self.buckets {
            if before.len() >= 8 {
                let mut sorted = before.clone();
                sorted.sort_unstable();
                let usual = sorted[sorted.len() / 2];
                if *bad >= 10 && *bad >= usual.saturating_mul(10) {
                    return Some(key * self.width);
                }
            }
            before.push(*bad);
        }
        None
    }
}

fn merge(buckets: &mut BTreeMap<Millis, (u32, u32)>, key: Millis, lines: u32, bad: u32) {
    let bucket = buckets.entry(key).or_default();
    bucket.0 = bucket.0.saturating_add(lines);
    bucket.1 = bucket.1.saturating_add(bad);
}

/// `(28034 hits)`, `(88,736 times)`.
fn hits(text: &str) -> Option<u64> {
    for word in [" hits", " times", " occurrences"] {
        for (end, _) in text.match_indices(word) {
            let digits = text[..end].rfind('(').map(|open| text[open + 1..end].trim());
            let count = digits.and_then(|d| d.replace([',', '_'], "").parse().ok());
            if count.is_some() {
                return count;
            }
        }
    }
    None
}

#[cfg(test)]
mod tests;
