//! `debug=1` text: stacks with a count and program counters, of goroutine, goroutineleak, mutex
//! and block profiles.
//!
//! The runtime's own frames have addresses here but no names. That a goroutine is parked is
//! learned: stacks that end in a semaphore show the address of `runtime.gopark`. How many of them
//! come before the first name tells a `select` from a channel operation.

use memchr::{memchr, memmem};

use super::dump::{Builder, Draft, Dump, Form, Frame, ProfileKind, RuntimeCall};
use super::lines::{Lines, Prefix, hex, number, trim, unwrap_json};

const HEADERS: [(&[u8], ProfileKind); 4] = [
    (b"goroutine profile: total ", ProfileKind::Goroutine),
    (b"goroutineleak profile: total ", ProfileKind::GoroutineLeak),
    (b"--- mutex:", ProfileKind::Mutex),
    (b"--- contention:", ProfileKind::Block),
];

pub(super) fn is_header(line: &[u8]) -> bool {
    header(line).is_some()
}

/// Where the header begins, what it heads, and what follows it.
fn header(line: &[u8]) -> Option<(usize, ProfileKind, &[u8])> {
    memmem::find(line, b"profile: total ").or_else(|| memmem::find(line, b"--- "))?;
    HEADERS.iter().find_map(|&(text, kind)| {
        let at = memmem::find(line, text)?;
        // "goroutineleak profile" ends like "goroutine profile" begins, not the other way round.
        Some((at, kind, &line[at + text.len()..]))
    })
}

pub(super) fn parse(input: &str, bytes: &[u8]) -> Vec<Dump> {
    let present = [&b"profile: total "[..], b"--- mutex:", b"--- contention:"]
        .iter()
        .any(|needle| memmem::find(bytes, needle).is_some());
    let mut dumps = Vec::new();
    if !present {
        return dumps;
    }
    let mut reader: Option<Reader> = None;
    for (number, raw) in Lines::forwards(bytes) {
        let line = unwrap_json(raw);
        if let Some((at, kind, rest)) = header(&line) {
            dumps.extend(reader.take().and_then(Reader::finish));
            let mut builder = Builder::new(input, Form::Debug1, kind, number);
            builder.dump().stated_total = super::lines::number(rest).map(|(n, _)| n);
            reader = Some(Reader {
                builder,
                prefix: Prefix::learn(&line[..at]),
                draft: Draft::default(),
                open: false,
                addresses: Vec::new(),
                first_named: None,
                pcs: Vec::new(),
            });
        } else if let Some(reader) = &mut reader {
            reader.line(number, reader.prefix.clone().strip(&line));
        }
    }
    dumps.extend(reader.and_then(Reader::finish));
    dumps
}

#[derive(Debug)]
struct Reader {
    builder: Builder,
    prefix: Prefix,
    draft: Draft,
    open: bool,
    /// The addresses of the stack at hand, innermost first.
    addresses: Vec<u64>,
    /// The first of them that has a name.
    first_named: Option<u64>,
    /// The innermost address of each stack, by stack.
    pcs: Vec<u64>,
}

impl Reader {
    fn line(&mut self, line: u32, text: &[u8]) {
        if let Some(rest) = text.strip_prefix(b"#") {
            if self.open {
                self.comment(line, rest);
            }
            return;
        }
        self.close();
        if let Some(count) = head(text, &mut self.addresses) {
            self.draft.clear();
            (self.draft.count, self.draft.line) = (count, Some(line));
            (self.open, self.first_named) = (true, None);
        }
    }

    /// `#\t0x477d24\tsync.runtime_SemacquireRWMutexR+0x24\t/src/sema.go:100` or labels.
    fn comment(&mut self, line: u32, text: &[u8]) {
        if let Some(labels) = trim(text).strip_prefix(b"labels:") {
            self.draft.labels = Some(String::from_utf8_lossy(trim(labels)).into());
            return;
        }
        let Some((address, rest)) = hex(trim(text)) else {
            return;
        };
        self.first_named.get_or_insert(address);
        let rest = trim(rest);
        let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        let (symbol, position) = (&rest[..end], trim(&rest[end..]));
        let symbol = match memmem::rfind(symbol, b"+0x") {
            Some(at) => &symbol[..at],
            None => symbol,
        };
        if symbol.is_empty() {
            return;
        }
        let function = self.builder.function(symbol);
        let source = self.builder.source(position);
        self.draft.frames.push(Frame { function, source });
        self.draft.lines.push(line);
    }

    fn close(&mut self) {
        if !std::mem::take(&mut self.open) || self.draft.frames.is_empty() {
            return;
        }
        self.draft.leaked = self.builder.dump().kind == ProfileKind::GoroutineLeak;
        // Names stand beside the calls, the head lists where they return to: one further.
        self.draft.hidden = self
            .first_named
            .and_then(|named| self.addresses.iter().position(|&a| a == named.wrapping_add(1)))
            .and_then(|hidden| u8::try_from(hidden).ok());
        let index = self.builder.fold(&self.draft) as usize;
        if index == self.pcs.len() {
            self.pcs.push(self.addresses.first().copied().unwrap_or(0));
        }
    }

    fn finish(mut self) -> Option<Dump> {
        self.close();
        let mut dump = self.builder.finish();
        if dump.stacks.is_empty() {
            return None;
        }
        let is_sema = |known| {
            matches!(
                known,
                RuntimeCall::SemaMutex
                    | RuntimeCall::SemaRw
                    | RuntimeCall::SemaRwR
                    | RuntimeCall::Sema
            ) || matches!(known, RuntimeCall::Netpoll | RuntimeCall::Sleep | RuntimeCall::Cond)
        };
        let gopark = dump
            .stacks
            .iter()
            .position(|s| s.frames.first().is_some_and(|f| is_sema(dump.known(f.function))))
            .and_then(|i| self.pcs.get(i).copied());
        for (stack, &pc) in dump.stacks.iter_mut().zip(&self.pcs) {
            stack.parked = gopark.map(|gopark| pc == gopark);
        }
        if matches!(dump.kind, ProfileKind::Goroutine | ProfileKind::GoroutineLeak) {
            let shown = dump.shown();
            match dump.stated_total {
                // Stacks of the runtime alone are listed without names.
                Some(total) if shown < total => {
                    dump.gaps.push(format!("{shown} of {total} goroutines are shown with names"));
                }
                Some(_) => {}
                None => dump.gaps.push("the header states no total".to_owned()),
            }
        }
        Some(dump)
    }
}

/// `4 @ 0x476d0e …`, or in mutex and block profiles `cycles count @ 0x…`: the count, and the
/// addresses into `addresses`.
fn head(line: &[u8], addresses: &mut Vec<u64>) -> Option<u64> {
    let at = memchr(b'@', line)?;
    let mut words = line[..at].split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
    let (mut count, rest) = number(words.next()?)?;
    if !rest.is_empty() {
        return None;
    }
    if let Some(second) = words.next() {
        count = number(second).filter(|(_, rest)| rest.is_empty())?.0;
    }
    if words.next().is_some() {
        return None;
    }
    addresses.clear();
    let mut rest = trim(&line[at + 1..]);
    let is_empty = rest.is_empty();
    while let Some((address, after)) = hex(rest) {
        addresses.push(address);
        rest = trim(after);
    }
    (is_empty || !addresses.is_empty()).then_some(count)
}
