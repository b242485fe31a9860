//! One line of a log, whatever wrote it: when, how bad, who, what.
//!
//! First the wrappings come off (docker's JSON, CRI, `kubectl --timestamps` and `--prefix`,
//! compose, journald), then the dialect is read: NeuVector's bars, klog, zap and logrus JSON,
//! logfmt, hclog's `[ERROR]`, zap's console, Go's standard log. Nothing is allocated but for lines
//! that docker escaped.

use super::fields::{Fields, unescape};
use super::stamp::{self, Millis, dated, stamp};

/// Who wrote the line, by its shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Dialect {
    NeuVector,
    Klog,
    Json,
    Logfmt,
    Hclog,
    Journald,
    Dated,
}

impl Dialect {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NeuVector => "NeuVector log",
            Self::Klog => "klog log",
            Self::Json => "JSON log",
            Self::Logfmt => "logfmt log",
            Self::Hclog => "Consul/hclog log",
            Self::Journald => "journald log",
            Self::Dated => "log with times",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Level {
    #[default]
    Unsaid,
    Info,
    Warn,
    Error,
    Fatal,
}

/// What a line says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a> {
    pub(crate) at: Option<Millis>,
    pub(crate) level: Level,
    pub(crate) dialect: Dialect,
    /// The function or component that logged it.
    pub(crate) source: &'a [u8],
    /// The message; in dialects that put fields behind it, with them.
    pub(crate) message: &'a [u8],
    /// Where to look for fields.
    pub(crate) fields: Fields<'a>,
}

/// Reads one line. `None`: not a line that a logger wrote. `scratch` is for lines that must be
/// unescaped.
pub(crate) fn record<'a>(
    line: &'a [u8],
    reference: Option<Millis>,
    scratch: &'a mut Vec<u8>,
) -> Option<Record<'a>> {
    let line = ornament(line);
    if let Some((inner, at)) = docker(line, scratch) {
        return Some(match inside(inner, at.or(reference)) {
            Some(found) => Record {
                at: found.at.or(at),
                ..found
            },
            None => plain(inner, at, Dialect::Json),
        });
    }
    let line = named(line);
    if let Some((at, rest)) = dated(line) {
        // CRI and `kubectl --timestamps` put a time before whatever the program wrote.
        let inner = cri(rest).or_else(|| rest.strip_prefix(b" "));
        if let Some(found) = inner.and_then(|inner| inside(ornament(inner), Some(at))) {
            return Some(Record {
                at: found.at.or(Some(at)),
                ..found
            });
        }
    }
    inside(line, reference).or_else(|| journald(line, reference))
}

/// The dialects themselves.
fn inside(line: &[u8], reference: Option<Millis>) -> Option<Record<'_>> {
    match line.first()? {
        b'{' => json(line, reference),
        b'I' | b'W' | b'E' | b'F' => klog(line, reference).or_else(|| logfmt(line)),
        b'0'..=b'9' => with_date(line),
        b'[' => hclog(line).map(|(level, rest)| component(rest, None, level, Dialect::Hclog)),
        _ => logfmt(line),
    }
}

fn with_date(line: &[u8]) -> Option<Record<'_>> {
    let (at, rest) = dated(line)?;
    let rest = rest.trim_ascii_start();
    if let Some(rest) = rest.strip_prefix(b"|") {
        return Some(bars(rest, at));
    }
    if let Some((level, rest)) = hclog(rest) {
        return Some(component(rest, Some(at), level, Dialect::Hclog));
    }
    let (level, rest) = leading_level(rest);
    // zap's console: level, logger, caller, message, then one JSON object; by tabs.
    if let Some(tab) = memchr::memchr(b'\t', rest) {
        let (first, tail) = (&rest[..tab], &rest[tab + 1..]);
        let object = memchr::memrchr(b'{', tail).filter(|_| tail.ends_with(b"}"));
        let message = object.map_or(tail, |at| &tail[..at]);
        let fields = object.map_or(Fields::pairs(tail), |at| Fields::json(&tail[at..]));
        return Some(Record {
            at: Some(at),
            level,
            dialect: Dialect::Dated,
            source: first,
            message: message.trim_ascii(),
            fields,
        });
    }
    Some(Record {
        at: Some(at),
        level,
        ..plain(rest, Some(at), Dialect::Dated)
    })
}

/// `INFO|CTL|cache.AgentAdmissionRequest: Receive connect request - host=… id=…`; the monitor's
/// lines have no level: `MON|Process ctrl exit status -1, pid=19402`.
fn bars(text: &[u8], at: Millis) -> Record<'_> {
    let cut = |text| memchr::memchr(b'|', text).filter(|at| *at <= 8);
    let Some(first) = cut(text) else {
        return plain(text, Some(at), Dialect::NeuVector);
    };
    let (head, rest) = (&text[..first], &text[first + 1..]);
    let level = word_level(head);
    match (level, cut(rest)) {
        (Some(level), Some(second)) => {
            component(&rest[second + 1..], Some(at), level, Dialect::NeuVector)
        }
        (level, _) => Record {
            source: head,
            level: level.unwrap_or_default(),
            ..plain(rest, Some(at), Dialect::NeuVector)
        },
    }
}

/// `I0126 13:09:02.525123       1 controller.go:42] message`.
fn klog(line: &[u8], reference: Option<Millis>) -> Option<Record<'_>> {
    let level = match line.first()? {
        b'I' => Level::Info,
        b'W' => Level::Warn,
        b'E' => Level::Error,
        _ => Level::Fatal,
    };
    let shaped = line.len() > 10 && line[1..5].iter().all(u8::is_ascii_digit) && line[5] == b' ';
    if !shaped || line[8] != b':' {
        return None;
    }
    let read = stamp::klog(&line[1..], reference);
    let end = memchr::memmem::find(line.get(..200).unwrap_or(line), b"] ")?;
    let head = &line[..end];
    let source = head.rsplit(|b| *b == b' ').next().unwrap_or_default();
    let message = &line[end + 2..];
    Some(Record {
        at: read.map(|(at, _)| at),
        level,
        dialect: Dialect::Klog,
        source,
        message,
        fields: Fields::pairs(message),
    })
}

fn json(line: &[u8], reference: Option<Millis>) -> Option<Record<'_>> {
    let fields = Fields::json(line);
    let mut found = Record {
        at: None,
        level: Level::Unsaid,
        dialect: Dialect::Json,
        source: b"",
        message: b"",
        fields,
    };
    let mut told = false;
    for (key, value) in fields {
        match key {
            b"ts" | b"time" | b"timestamp" | b"@timestamp" | b"t" if found.at.is_none() => {
                found.at = stamp(value, reference)
                    .map(|(at, _)| at)
                    .or_else(|| stamp::epoch(value));
                told |= found.at.is_some();
            }
            b"level" | b"lvl" | b"severity" | b"@level" => {
                found.level = word_level(value).unwrap_or_default();
                told |= found.level != Level::Unsaid;
            }
            b"msg" | b"message" | b"@message" | b"event" if found.message.is_empty() => {
                found.message = value;
                told = true;
            }
            b"logger" | b"component" | b"module" | b"@module" if found.source.is_empty() => {
                found.source = value;
            }
            b"caller" | b"func" if found.source.is_empty() => found.source = value,
            _ => {}
        }
    }
    told.then_some(found)
}

/// `time="…" level=error msg="…" key=value`, in any order.
fn logfmt(line: &[u8]) -> Option<Record<'_>> {
    let key = line
        .iter()
        .position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'_' | b'@')))?;
    if line[key] != b'=' || key == 0 {
        return None;
    }
    let mut found = Record {
        fields: Fields::pairs(line),
        ..plain(b"", None, Dialect::Logfmt)
    };
    let mut told = 0;
    for (key, value) in Fields::pairs(line) {
        match key {
            b"ts" | b"time" | b"t" | b"timestamp" => {
                found.at = stamp(value, None)
                    .map(|(at, _)| at)
                    .or_else(|| stamp::epoch(value));
                told += 1;
            }
            b"level" | b"lvl" | b"severity" => {
                found.level = word_level(value).unwrap_or_default();
                told += 1;
            }
            b"msg" | b"message" => {
                found.message = value;
                told += 1;
            }
            b"caller" | b"component" | b"logger" | b"source" if found.source.is_empty() => {
                found.source = value;
            }
            _ => {}
        }
    }
    if found.message.is_empty() {
        found.message = line;
    }
    (told >= 2).then_some(found)
}

/// `[ERROR] agent.server.raft: …`.
fn hclog(text: &[u8]) -> Option<(Level, &[u8])> {
    let text = text.strip_prefix(b"[")?;
    let end = memchr::memchr(b']', text.get(..12).unwrap_or(text))?;
    Some((
        word_level(&text[..end])?,
        text[end + 1..].trim_ascii_start(),
    ))
}

/// `Jan 26 13:09:02 host unit[1234]: inner`.
fn journald(line: &[u8], reference: Option<Millis>) -> Option<Record<'_>> {
    let (at, rest) = stamp(line, reference)?;
    let rest = rest.trim_ascii_start();
    let host = memchr::memchr(b' ', rest)?;
    let rest = &rest[host + 1..];
    let colon = memchr::memmem::find(rest.get(..96).unwrap_or(rest), b": ")?;
    let (unit, inner) = (&rest[..colon], &rest[colon + 2..]);
    let unit = unit.split(|b| *b == b'[').next().unwrap_or_default();
    // What the unit wrote has a dialect of its own; journald's time is then only the second best.
    if let Some(found) = inside(inner, Some(at)) {
        return Some(Record {
            at: found.at.or(Some(at)),
            ..found
        });
    }
    let (level, message) = leading_level(inner);
    Some(Record {
        source: unit,
        level,
        ..plain(message, Some(at), Dialect::Journald)
    })
}

/// `{"log":"…\n","stream":"stderr","time":"…"}`.
fn docker<'a>(line: &'a [u8], scratch: &'a mut Vec<u8>) -> Option<(&'a [u8], Option<Millis>)> {
    if !line.starts_with(b"{\"log\":") && !line.starts_with(b"{\"stream\":") {
        return None;
    }
    let mut log = None;
    let mut at = None;
    for (key, value) in Fields::json(line) {
        match key {
            b"log" => log = Some(value),
            b"time" => at = dated(value).map(|(at, _)| at),
            _ => {}
        }
    }
    unescape(log?, scratch);
    Some((scratch.trim_ascii_end(), at))
}

/// `2025-01-26T13:09:02.525123456Z stderr F inner`, after its time.
fn cri(rest: &[u8]) -> Option<&[u8]> {
    let rest = rest.strip_prefix(b" std")?;
    let rest = rest
        .strip_prefix(b"out")
        .or_else(|| rest.strip_prefix(b"err"))?;
    rest.strip_prefix(b" F ")
        .or_else(|| rest.strip_prefix(b" P "))
}

/// `[pod/name/container] inner` and `name-1  | inner`.
fn named(line: &[u8]) -> &[u8] {
    if line.starts_with(b"[pod/")
        && let Some(end) = memchr::memmem::find(line, b"] ")
    {
        return &line[end + 2..];
    }
    let head = line.get(..48).unwrap_or(line);
    if let Some(bar) = memchr::memchr(b'|', head)
        && head[..bar].ends_with(b" ")
        && head[bar + 1..].starts_with(b" ")
        && !head[0].is_ascii_digit()
        && head[..bar]
            .trim_ascii_end()
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
    {
        return &line[bar + 2..];
    }
    line
}

/// People mark lines before they paste them: arrows, emoji, quote signs.
fn ornament(line: &[u8]) -> &[u8] {
    let skip = line
        .iter()
        .take(33)
        .take_while(|b| !b.is_ascii() || matches!(b, b' ' | b'\t' | b'>' | b'*' | b'+' | b'!'))
        .count();
    if skip > 32 { line } else { &line[skip..] }
}

fn component(text: &[u8], at: Option<Millis>, level: Level, dialect: Dialect) -> Record<'_> {
    // The name before the colon is one word, so nothing behind the first blank matters.
    let word = memchr::memchr(b' ', text).unwrap_or(0);
    let (source, message) = match text[..word].strip_suffix(b":") {
        Some(source) => (source, &text[word + 1..]),
        None => (&b""[..], text),
    };
    let message = message.strip_prefix(b"- ").unwrap_or(message);
    Record {
        at,
        level,
        dialect,
        source,
        message,
        fields: Fields::pairs(message),
    }
}

fn plain(message: &[u8], at: Option<Millis>, dialect: Dialect) -> Record<'_> {
    Record {
        at,
        level: Level::Unsaid,
        dialect,
        source: b"",
        message,
        fields: Fields::pairs(message),
    }
}

/// A level as the first word, with what people put around it.
fn leading_level(text: &[u8]) -> (Level, &[u8]) {
    let end = text
        .iter()
        .position(|b| matches!(b, b' ' | b'\t'))
        .unwrap_or(text.len());
    if end <= 10
        && let Some(level) = word_level(&text[..end])
    {
        return (level, text[end..].trim_ascii_start());
    }
    (Level::Unsaid, text)
}

fn word_level(word: &[u8]) -> Option<Level> {
    let is_letter = |b: &u8| b.is_ascii_alphabetic();
    let start = word.iter().position(is_letter)?;
    let end = word.iter().rposition(is_letter)? + 1;
    let word = &word[start..end];
    let any = |names: &[&str]| {
        names
            .iter()
            .any(|n| word.eq_ignore_ascii_case(n.as_bytes()))
    };
    if any(&["info", "debug", "trace", "debu", "notice", "dbug", "trac"]) {
        Some(Level::Info)
    } else if any(&["warn", "warning", "wrn"]) {
        Some(Level::Warn)
    } else if any(&["error", "erro", "err", "eror"]) {
        Some(Level::Error)
    } else if any(&[
        "fatal", "fata", "panic", "critical", "crit", "emerg", "alert", "dpanic",
    ]) {
        Some(Level::Fatal)
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
