//! `debug=2` text and what a SIGQUIT or a panic prints: one goroutine after the other.
//!
//! Read in one pass over the bytes; a goroutine costs one small record, a stack is kept once.
//! Log prefixes are learned from each header, and a text whose frames stand before their header
//! is read backwards.

use std::borrow::Cow;
use std::hash::BuildHasher as _;

use hashbrown::HashTable;
use memchr::{memchr, memmem, memrchr};
use rustc_hash::FxBuildHasher;

use super::dump::{
    Builder, Draft, Dump, Form, Frame, Goroutine, ProfileKind, Receiver, RuntimeCall,
};
use super::lines::{Lines, Prefix, hex, number, trim, unwrap_json};

/// Frames whose arguments are kept: a lock is taken near the top of a stack.
const ARGUMENTS: usize = 24;

/// The first page is never mapped: a smaller argument is a number, not an address.
const LOWEST_ADDRESS: u64 = 0x1000;

/// A goroutine's header line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header<'a> {
    /// Bytes before `goroutine`: a log's prefix.
    pub(super) before: &'a [u8],
    pub(super) id: u64,
    pub(super) state: &'a [u8],
    pub(super) minutes: u32,
    pub(super) leaked: bool,
    pub(super) labels: &'a [u8],
}

/// `goroutine 7 gp=0x… m=0 [semacquire, 5 minutes, locked to thread]:`, after any prefix.
pub(super) fn header(line: &[u8]) -> Option<Header<'_>> {
    const WORD: &[u8] = b"goroutine ";
    let at = if line.starts_with(WORD) { 0 } else { memmem::find(line, WORD)? };
    let (id, rest) = number(&line[at + WORD.len()..])?;
    let open = memchr(b'[', rest)?;
    if rest.first() != Some(&b' ') || (open > 1 && !rest[1..].starts_with(b"gp=")) {
        return None;
    }
    let inside = &rest[open + 1..];
    // Labels may stand inside the brackets or after them, and may contain anything.
    let brace = memchr(b'{', inside).unwrap_or(inside.len());
    let close = memchr(b']', &inside[..brace]);
    let (facts, labels) = match close {
        Some(close) => {
            let tail = trim(&inside[close + 1..]);
            if !tail.starts_with(b":") && !tail.starts_with(b"{") && !tail.is_empty() {
                return None;
            }
            (&inside[..close], trim(tail.trim_ascii().strip_prefix(b":").unwrap_or(tail)))
        }
        None if brace < inside.len() => (&inside[..brace], &inside[brace..]),
        None => return None,
    };
    let mut parts = facts.split(|&b| b == b',').map(trim);
    let mut state = parts.next().unwrap_or(b"");
    let leaked = state.ends_with(b" (leaked)");
    for suffix in [&b" (leaked)"[..], b" (scan)", b" (durable)"] {
        state = state.strip_suffix(suffix).unwrap_or(state);
    }
    let minutes = parts
        .find_map(|part| number(part).filter(|(_, rest)| rest.starts_with(b" minute")))
        .map_or(0, |(n, _)| u32::try_from(n).unwrap_or(u32::MAX));
    Some(Header { before: &line[..at], id, state, minutes, leaked, labels })
}

pub(super) fn parse(input: &str, bytes: &[u8]) -> Vec<Dump> {
    // Most inputs are something else: one search over the bytes says so.
    if memmem::find(bytes, b"goroutine ").is_none() {
        return Vec::new();
    }
    let Some((reversed, first_line)) = direction(bytes) else {
        return Vec::new();
    };
    let mut reader = Reader {
        input,
        form: if reversed { Form::Debug2Reversed } else { Form::Debug2 },
        dumps: Vec::new(),
        part: Part::new(input, reversed, first_line),
        draft: Draft::default(),
        open: None,
        pending: None,
        args: Vec::new(),
        receivers: Vec::new(),
        parent: 0,
        prefix: Prefix::None,
        quoted: false,
    };
    let lines = if reversed { Lines::backwards(bytes) } else { Lines::forwards(bytes) };
    for (number, line) in lines {
        reader.line(number, line);
    }
    let cut = reader.pending.is_some();
    reader.end();
    let mut dumps = reader.dumps;
    if cut && let Some(last) = dumps.last_mut() {
        last.gaps.push("the last stack is cut off".to_owned());
    }
    if reversed {
        dumps.reverse();
    }
    dumps
}

/// One dump of those in a text.
#[derive(Debug)]
struct Part {
    builder: Builder,
    /// Indices of the dump's goroutines, by their numbers.
    seen: HashTable<u32>,
    marks: Marks,
    unavailable: u64,
    elided: u64,
}

fn hash(id: u64) -> u64 {
    FxBuildHasher.hash_one(id)
}

impl Part {
    fn new(input: &str, reversed: bool, first_line: u32) -> Self {
        let form = if reversed { Form::Debug2Reversed } else { Form::Debug2 };
        Self {
            builder: Builder::new(input, form, ProfileKind::Goroutine, first_line),
            seen: HashTable::new(),
            marks: Marks::default(),
            unavailable: 0,
            elided: 0,
        }
    }

    /// Whether a goroutine of this number was read.
    fn has(&self, id: u64) -> bool {
        let goroutines = self.builder.goroutines();
        self.seen.find(hash(id), |&index| goroutines[index as usize].id == id).is_some()
    }

    fn add(&mut self, goroutine: Goroutine, receivers: &[Receiver]) {
        let index = u32::try_from(self.builder.goroutines().len()).unwrap_or(u32::MAX);
        self.builder.goroutine(goroutine, receivers);
        let goroutines = self.builder.goroutines();
        self.seen
            .insert_unique(hash(goroutine.id), index, |&other| hash(goroutines[other as usize].id));
    }

    fn finish(self, quoted: bool) -> Option<Dump> {
        let has_first = self.has(1);
        let mut dump = self.builder.finish();
        if dump.goroutines.is_empty() {
            return None;
        }
        if self.marks.unreliable() {
            dump.distrust_receivers();
        }
        if dump.goroutines.len() == 1 {
            dump.gaps.push("only one goroutine is shown: set GOTRACEBACK=all".to_owned());
        } else if !has_first {
            dump.gaps.push("goroutine 1 is missing, so this is an excerpt".to_owned());
        } else if quoted {
            dump.gaps.push("the stacks are quoted in a text, which may leave some out".to_owned());
        }
        if self.unavailable > 0 {
            let count = self.unavailable;
            dump.gaps.push(format!("{count} goroutines were running and show no stack"));
        }
        if self.elided > 0 {
            let count = self.elided;
            dump.gaps.push(format!("{count} stacks have frames left out by the runtime"));
        }
        Some(dump)
    }
}

/// Whether frames stand before their header, judged by the neighbours of the first headers; and
/// the line of the first header.
fn direction(bytes: &[u8]) -> Option<(bool, u32)> {
    let (mut after, mut before, mut first) = (0u32, 0u32, None);
    let mut previous: Cow<'_, [u8]> = Cow::Borrowed(b"");
    let mut prefix: Option<Prefix> = None;
    for (number, raw) in Lines::forwards(bytes) {
        let line = unwrap_json(raw);
        if let Some(prefix) = prefix.take() {
            after += u32::from(is_call(&line) || is_call(prefix.strip(&line)));
        }
        if let Some(header) = header(&line) {
            first.get_or_insert(number);
            let learned = Prefix::learn(header.before);
            before += u32::from(is_call(&previous) || is_call(learned.strip(&previous)));
            prefix = Some(learned);
            if after + before >= 64 {
                break;
            }
        }
        if !trim(&line).is_empty() {
            previous = line;
        }
    }
    Some((before > after, first?))
}

/// `pkg.F(0x1, …)`: the name and the arguments.
fn call(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.trim_ascii_end();
    let args = line.strip_suffix(b")")?;
    let open = memrchr(b'(', args)?;
    let (name, args) = (&args[..open], &args[open + 1..]);
    let plain = !name.is_empty()
        && !name[0].is_ascii_whitespace()
        && memchr(b'.', name).is_some()
        && memchr(b' ', name).is_none();
    plain.then_some((name, args))
}

fn is_call(line: &[u8]) -> bool {
    line.starts_with(b"created by ") || call(line).is_some()
}

/// `\t/src/a.go:12 +0x1d`: the position without the offset. Tabs may have become blanks.
#[inline]
fn position(line: &[u8]) -> Option<&[u8]> {
    if !line.first()?.is_ascii_whitespace() && memchr(b'/', line).is_none() {
        return None;
    }
    let line = trim(line);
    let colon = memrchr(b':', line)?;
    let (_, rest) = number(&line[colon + 1..])?;
    let position = &line[..line.len() - rest.len()];
    let file = &line[..colon];
    let ends = |suffix: &[u8]| file.ends_with(suffix);
    (ends(b".go") || ends(b".s") || ends(b".c") || ends(b".cgo") || ends(b">")).then_some(position)
}

/// How this runtime prints arguments.
#[derive(Debug, Default)]
struct Marks {
    stale: bool,
    grouped: bool,
}

impl Marks {
    /// Go 1.17 passes arguments in registers and groups them in braces, but does not yet mark the
    /// stale ones: none of them can be trusted.
    fn unreliable(&self) -> bool {
        self.grouped && !self.stale
    }
}

/// A goroutine whose lines are being read.
#[derive(Debug)]
struct Open {
    id: u64,
    minutes: u32,
    line: u32,
}

/// A call that waits for its position; only together are they a frame.
#[derive(Debug, Clone, Copy)]
struct Pending {
    function: u32,
    line: u32,
    creator: bool,
    parent: u64,
    arg: Option<(u64, bool)>,
}

#[derive(Debug)]
struct Reader<'a> {
    input: &'a str,
    form: Form,
    dumps: Vec<Dump>,
    part: Part,
    draft: Draft,
    open: Option<Open>,
    pending: Option<Pending>,
    /// The first argument of the first frames and whether it is exact.
    args: Vec<Option<(u64, bool)>>,
    receivers: Vec<Receiver>,
    parent: u64,
    prefix: Prefix,
    /// Whether the text is a report that quotes a dump.
    quoted: bool,
}

impl Reader<'_> {
    #[inline]
    fn line(&mut self, number: u32, raw: &[u8]) {
        if raw.is_empty() {
            return;
        }
        // The two commonest lines of a plain dump need no look at prefixes.
        if self.prefix == Prefix::None && self.open.is_some() {
            if raw[0] == b'\t' {
                return self.place(raw);
            }
            if raw[0].is_ascii_alphabetic() && raw.ends_with(b")") {
                return self.element(number, raw);
            }
        }
        self.quoted |= raw.starts_with(b"```") || raw.starts_with(b"<details");
        let line = unwrap_json(raw);
        if let Some(header) = header(&line) {
            return self.begin(number, &header);
        }
        if self.open.is_none() {
            return;
        }
        let stripped = self.prefix.strip(&line);
        // Some loggers prefix only the first line of a message.
        let text =
            if stripped.len() != line.len() && !self.is_part(stripped) { &line } else { stripped };
        self.element(number, text);
    }

    fn is_part(&self, text: &[u8]) -> bool {
        is_call(text) || (self.pending.is_some() && position(text).is_some())
    }

    fn begin(&mut self, line: u32, header: &Header<'_>) {
        self.close();
        // A number that comes again belongs to another dump.
        if self.part.has(header.id) {
            self.end();
            self.part = Part::new(self.input, self.form == Form::Debug2Reversed, line);
        }
        self.draft.clear();
        self.args.clear();
        (self.pending, self.parent) = (None, 0);
        self.prefix = Prefix::learn(header.before);
        self.draft.line = Some(line);
        self.draft.state = Some(self.part.builder.source(header.state));
        self.draft.leaked = header.leaked;
        self.draft.parked = Some(!matches!(
            header.state,
            b"running" | b"runnable" | b"syscall" | b"idle" | b"dead" | b"copystack" | b"preempted"
        ));
        if !header.labels.is_empty() {
            self.draft.labels = Some(String::from_utf8_lossy(header.labels).into());
        }
        self.open = Some(Open { id: header.id, minutes: header.minutes, line });
    }

    fn element(&mut self, line: u32, text: &[u8]) {
        if let Some(rest) = text.strip_prefix(b"created by ") {
            let (symbol, parent) = match memmem::find(rest, b" in goroutine ") {
                Some(at) => (&rest[..at], number(&rest[at + 14..]).map_or(0, |(n, _)| n)),
                None => (rest, 0),
            };
            let symbol = trim(symbol);
            // Before 1.21 a creator had its arguments' parentheses too.
            let symbol = call(symbol).map_or(symbol, |(name, _)| name);
            let function = self.part.builder.function(symbol);
            self.pending = Some(Pending { function, line, creator: true, parent, arg: None });
        } else if self.pending.is_some() && position(text).is_some() {
            self.place(text);
        } else if let Some((name, args)) = call(text) {
            let function = self.part.builder.function(name);
            let arg = hex(args).map(|(value, rest)| (value, rest.first() != Some(&b'?')));
            if !self.part.marks.stale {
                self.part.marks.stale = memchr(b'?', args).is_some();
                self.part.marks.grouped |= memchr(b'{', args).is_some();
            }
            self.pending = Some(Pending { function, line, creator: false, parent: 0, arg });
        } else if memmem::find(text, b"frames elided").is_some() {
            self.part.elided += 1;
        } else if memmem::find(text, b"stack unavailable").is_some() {
            self.part.unavailable += 1;
        }
    }

    #[inline]
    fn place(&mut self, text: &[u8]) {
        let Some(pending) = self.pending.take() else {
            // `\tgoroutine running on other thread; stack unavailable`
            if self.open.is_some() && memmem::find(text, b"stack unavailable").is_some() {
                self.part.unavailable += 1;
            }
            return;
        };
        let Some(position) = position(text) else {
            return;
        };
        if pending.creator {
            self.draft.created_by = Some(pending.function);
            self.parent = pending.parent;
            return;
        }
        let source = self.part.builder.source(position);
        self.draft.frames.push(Frame { function: pending.function, source });
        self.draft.lines.push(pending.line);
        if self.args.len() < ARGUMENTS {
            self.args.push(pending.arg);
        }
    }

    /// Ends the dump that is being read.
    fn end(&mut self) {
        self.close();
        let next = Part::new(self.input, false, 0);
        self.dumps.extend(std::mem::replace(&mut self.part, next).finish(self.quoted));
    }

    /// Folds the goroutine that was open.
    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let stack = self.part.builder.fold(&self.draft);
        let mut goroutine = Goroutine::new(open.id, stack, open.line);
        goroutine.minutes = open.minutes;
        goroutine.parent = self.parent;
        goroutine.waits_for(self.lock_address().unwrap_or(0));
        self.receivers.clear();
        for (i, (arg, frame)) in (0u16..).zip(self.args.iter().zip(&self.draft.frames)) {
            if let Some((address, exact)) = *arg
                && address >= LOWEST_ADDRESS
                && self.part.builder.is_pointer_method(frame.function)
            {
                self.receivers.extend(Receiver::new(i, exact, address));
            }
        }
        self.part.add(goroutine, &self.receivers);
    }

    /// The address of what the goroutine waits for, from an argument that is not marked stale.
    fn lock_address(&self) -> Option<u64> {
        let mut semaphore = None;
        let mut fallback = None;
        for (arg, frame) in self.args.iter().zip(&self.draft.frames) {
            let known = self.part.builder.known(frame.function);
            let arg = arg.and_then(|(address, exact)| {
                (exact && address >= LOWEST_ADDRESS).then_some(address)
            });
            match known {
                RuntimeCall::LockSlow if arg.is_some() => return arg,
                RuntimeCall::SemaMutex | RuntimeCall::SemaRw | RuntimeCall::SemaRwR => {
                    semaphore = arg;
                }
                // Where arguments are passed on the stack, the semaphore's own address shows the
                // lock: `Mutex{state, sema}`, `RWMutex{w Mutex, writerSem, readerSem, …}`.
                RuntimeCall::LockSlow | RuntimeCall::MutexLock => {
                    fallback = fallback.or(arg).or(semaphore.map(|a| a - 4));
                }
                RuntimeCall::RwLock => fallback = fallback.or(arg).or(semaphore.map(|a| a - 8)),
                RuntimeCall::RwRLock => fallback = fallback.or(arg).or(semaphore.map(|a| a - 12)),
                RuntimeCall::WaitGroup | RuntimeCall::Cond | RuntimeCall::Once => {
                    fallback = fallback.or(arg);
                }
                RuntimeCall::Runtime | RuntimeCall::Sync | RuntimeCall::Sema => {}
                _ => break,
            }
        }
        fallback
    }
}

#[cfg(test)]
mod tests;
