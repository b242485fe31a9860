//! What `go tool pprof` prints: `-traces`, and `-text` or `-top`; in a file of its own, in a
//! transcript with prompts, or quoted in a report with remarks behind the names.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::strtime;
use memchr::memmem;

use super::dump::{Builder, Draft, Dump, Form, Frame, ProfileKind, Row};
use super::lines::{Lines, number, trim};

/// The rule between traces.
pub(super) fn is_rule(line: &[u8]) -> bool {
    let line = trim(line);
    line.len() >= 12
        && line.contains(&b'+')
        && line.iter().filter(|&&b| b == b'+').count() == 1
        && line.iter().all(|&b| b == b'-' || b == b'+')
}

/// `flat  flat%   sum%        cum   cum%`
pub(super) fn is_table_header(line: &[u8]) -> bool {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
    ["flat", "flat%", "sum%", "cum", "cum%"].iter().all(|w| words.next() == Some(w.as_bytes()))
}

/// What pprof says before its output.
#[derive(Debug, Clone, Default)]
struct Preamble {
    first_line: u32,
    kind: Option<ProfileKind>,
    other: bool,
    build_id: Option<String>,
    taken: Option<Timestamp>,
    total: Option<u64>,
    dropped: Option<String>,
}

impl Preamble {
    /// Whether the line was part of it.
    fn take(&mut self, line_number: u32, line: &[u8]) -> bool {
        let text = String::from_utf8_lossy(trim(line));
        if text.starts_with("File: ") {
            *self = Self { first_line: line_number, ..Self::default() };
        } else if let Some(id) = text.strip_prefix("Build ID: ") {
            self.build_id = Some(id.trim().to_owned());
        } else if let Some(kind) = text.strip_prefix("Type: ") {
            self.kind = match kind.trim() {
                "goroutine" => Some(ProfileKind::Goroutine),
                "goroutineleak" => Some(ProfileKind::GoroutineLeak),
                "delay" | "contentions" | "mutex" | "block" => Some(ProfileKind::Block),
                _ => None,
            };
            self.other = self.kind.is_none();
            if self.first_line == 0 {
                self.first_line = line_number;
            }
        } else if let Some(time) = text.strip_prefix("Time: ") {
            self.taken = taken(time.trim());
        } else if text.starts_with("Showing nodes accounting for") {
            self.total = text
                .split(" of ")
                .nth(1)
                .and_then(|rest| number(rest.replace(',', "").as_bytes()).map(|(n, _)| n));
        } else if text.starts_with("Dropped ") || text.starts_with("Showing top ") {
            self.dropped = Some(text.into_owned());
        } else {
            return false;
        }
        true
    }
}

/// `Jan 26, 2025 at 5:09am (PST)`; zones by their letters are only known where they are common.
fn taken(text: &str) -> Option<Timestamp> {
    let (time, zone) = text.rsplit_once(" (")?;
    let hours: i32 = match zone.trim_end_matches(')') {
        "UTC" | "GMT" => 0,
        "PST" => -8,
        "PDT" | "MST" => -7,
        "MDT" | "CST" => -6,
        "CDT" | "EST" => -5,
        "EDT" => -4,
        "CET" => 1,
        "CEST" => 2,
        _ => return None,
    };
    let civil: DateTime = ["%b %d, %Y at %I:%M%P", "%Y-%m-%d %H:%M:%S"]
        .iter()
        .find_map(|format| strtime::parse(format, time).ok()?.to_datetime().ok())?;
    let zone = jiff::tz::Offset::from_hours(i8::try_from(hours).ok()?).ok()?;
    zone.to_timestamp(civil).ok()
}

pub(super) fn parse(input: &str, bytes: &[u8]) -> Vec<Dump> {
    let present =
        memmem::find(bytes, b"flat%").is_some() || memmem::find(bytes, b"--+--").is_some();
    let mut dumps = Vec::new();
    if !present {
        return dumps;
    }
    let mut state = State::Outside;
    let mut preamble = Preamble::default();
    let mut foreign = false;
    for (number, raw) in Lines::forwards(bytes) {
        let line = without_prompt(raw);
        if preamble.take(number, line) {
            if !line.starts_with(b"Dropped") && !line.starts_with(b"Showing") {
                dumps.extend(state.end());
            }
        } else if is_table_header(line) && !preamble.other {
            dumps.extend(state.end());
            state = State::Text(preamble.builder(input, Form::Text, number));
        } else if is_rule(line) && !preamble.other {
            state = match state {
                State::Traces(mut traces) => {
                    traces.close();
                    State::Traces(traces)
                }
                mut other => {
                    dumps.extend(other.end());
                    State::Traces(Traces::new(preamble.builder(input, Form::Traces, number)))
                }
            };
        } else if !state.take(number, line) {
            foreign |= !trim(line).is_empty() && !is_prompt(raw);
            dumps.extend(state.end());
        }
    }
    dumps.extend(state.end());
    // A table of the same profile in the same text states the total for the traces.
    let stated: Vec<_> = dumps
        .iter()
        .filter_map(|d| Some((d.kind, d.build_id.clone(), d.taken, d.stated_total?)))
        .collect();
    for dump in dumps.iter_mut().filter(|d| d.form == Form::Traces && d.stated_total.is_none()) {
        // A preamble that is pasted in part says less, but nothing else.
        let same = stated.iter().find(|(kind, build, taken, _)| {
            let agree = |a: bool, b: bool, same: bool| same || !a || !b;
            *kind == dump.kind
                && agree(build.is_some(), dump.build_id.is_some(), *build == dump.build_id)
                && agree(taken.is_some(), dump.taken.is_some(), *taken == dump.taken)
        });
        dump.stated_total = same.map(|s| s.3);
    }
    if foreign {
        let partial =
            |d: &&mut Dump| d.form == Form::Traces && d.stated_total.is_none_or(|t| t > d.shown());
        for dump in dumps.iter_mut().filter(partial) {
            dump.gaps.push("the traces are quoted in a text, which may leave some out".to_owned());
        }
    }
    for dump in &mut dumps {
        if let Some(total) = dump.stated_total.filter(|&t| t > dump.shown())
            && dump.form == Form::Traces
        {
            dump.gaps.push(format!("{} of {total} goroutines are shown", dump.shown()));
        }
    }
    dumps
}

impl Preamble {
    fn builder(&self, input: &str, form: Form, line: u32) -> Builder {
        let kind = self.kind.unwrap_or(ProfileKind::Goroutine);
        let first_line = if self.first_line == 0 { line } else { self.first_line };
        let mut builder = Builder::new(input, form, kind, first_line);
        let dump = builder.dump();
        dump.build_id.clone_from(&self.build_id);
        dump.taken = self.taken;
        dump.stated_total = self.total;
        if form == Form::Text {
            let dropped = self.dropped.as_deref().unwrap_or("rare stacks are left out");
            dump.gaps
                .push(format!("a -text table has no stacks, only sums by function ({dropped})"));
        }
        builder
    }
}

#[derive(Debug)]
enum State {
    Outside,
    Text(Builder),
    Traces(Traces),
}

impl State {
    /// Whether the line belongs to what is being read.
    fn take(&mut self, number: u32, line: &[u8]) -> bool {
        match self {
            Self::Outside => false,
            Self::Text(builder) => row(builder, number, line),
            Self::Traces(traces) => traces.line(number, line),
        }
    }

    fn end(&mut self) -> Option<Dump> {
        match std::mem::replace(self, Self::Outside) {
            Self::Outside => None,
            Self::Text(builder) => Some(builder.finish()).filter(|d| !d.rows.is_empty()),
            Self::Traces(mut traces) => {
                traces.close();
                Some(traces.builder.finish()).filter(|d| !d.stacks.is_empty())
            }
        }
    }
}

/// `0     0%   100%     128846 67.69%  sync.(*RWMutex).RLock (inline)`
fn row(builder: &mut Builder, line: u32, text: &[u8]) -> bool {
    let mut rest = trim(text);
    let mut word = || {
        let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        rest = tail.trim_ascii_start();
        word
    };
    let (flat, percent, sum, cum, cum_percent) = (word(), word(), word(), word(), word());
    let is_percent = |w: &[u8]| w.ends_with(b"%");
    if !is_percent(percent) || !is_percent(sum) || !is_percent(cum_percent) {
        return false;
    }
    let (Some((flat, _)), Some((cum, _))) = (number(flat), number(cum)) else {
        return false;
    };
    let symbol = symbol(rest);
    if symbol.is_empty() {
        return false;
    }
    let function = builder.function(symbol);
    builder.dump().rows.push(Row { flat, cum, function, line });
    true
}

/// The symbol at the start; `(inline)` and remarks behind it are left off.
fn symbol(text: &[u8]) -> &[u8] {
    let mut depth = 0usize;
    let end = text.iter().position(|&b| {
        match b {
            b'[' => depth += 1,
            b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        b.is_ascii_whitespace() && depth == 0
    });
    &text[..end.unwrap_or(text.len())]
}

/// Traces: a count and the innermost function, then the callers, indented.
#[derive(Debug)]
struct Traces {
    builder: Builder,
    draft: Draft,
    open: bool,
    labels: Vec<String>,
}

impl Traces {
    fn new(builder: Builder) -> Self {
        Self { builder, draft: Draft::default(), open: false, labels: Vec::new() }
    }

    fn line(&mut self, line: u32, text: &[u8]) -> bool {
        if !text.first().is_some_and(u8::is_ascii_whitespace) {
            return false;
        }
        let trimmed = trim(text);
        if let Some((count, rest)) = number(trimmed)
            && rest.first().is_some_and(u8::is_ascii_whitespace)
        {
            self.close();
            self.draft.clear();
            (self.draft.count, self.draft.line) = (count, Some(line));
            self.draft.labels =
                (!self.labels.is_empty()).then(|| std::mem::take(&mut self.labels).join(", "));
            self.open = true;
            self.frame(line, trim(rest));
            return true;
        }
        if self.open {
            self.frame(line, trimmed);
            return !trimmed.is_empty();
        }
        // Labels stand before the count: `key:[value]`, or `bytes:` with a figure.
        if let Some(at) = memmem::find(trimmed, b":[") {
            let value = trimmed[at + 2..].strip_suffix(b"]").unwrap_or(&trimmed[at + 2..]);
            let text = |bytes| String::from_utf8_lossy(bytes);
            self.labels.push(format!("{}={}", text(trim(&trimmed[..at])), text(value)));
            return true;
        }
        memmem::find(trimmed, b":").is_some()
    }

    fn frame(&mut self, line: u32, text: &[u8]) {
        let symbol = symbol(text);
        if symbol.contains(&b'.') {
            let function = self.builder.function(symbol);
            self.draft.frames.push(Frame { function, source: 0 });
            self.draft.lines.push(line);
        }
    }

    fn close(&mut self) {
        if std::mem::take(&mut self.open) && !self.draft.frames.is_empty() {
            let dump = self.builder.dump();
            self.draft.leaked = dump.kind == ProfileKind::GoroutineLeak;
            self.draft.parked = Some(
                self.draft.frames.iter().any(|f| dump.function(f.function) == "runtime.gopark"),
            );
            self.builder.fold(&self.draft);
        }
    }
}

fn is_prompt(line: &[u8]) -> bool {
    line.starts_with(b"(pprof)")
        || line.starts_with(b"$ ")
        || line.starts_with(b"Entering interactive")
}

fn without_prompt(line: &[u8]) -> &[u8] {
    line.strip_prefix(b"(pprof) ").unwrap_or(line)
}

#[cfg(test)]
mod tests;
