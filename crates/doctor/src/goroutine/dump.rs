//! The one model that every form is read into: stacks folded, functions interned, and facts of
//! single goroutines only where the form has them.

use std::fmt;

use jiff::Timestamp;
use rustc_hash::FxHashMap;

use super::Name;
use crate::words::thousands;

/// One profile.
#[derive(Debug, Clone)]
pub struct Dump {
    /// The name of the input it came from.
    pub input: String,
    /// The form it was in.
    pub form: Form,
    /// What was profiled.
    pub kind: ProfileKind,
    /// When it was taken, where the form says so.
    pub taken: Option<Timestamp>,
    /// The binary's build, where the form says so.
    pub build_id: Option<String>,
    /// The line it begins on, counted from one; zero in binary forms.
    pub first_line: u32,
    /// The total that the form states, which may be more than what it shows.
    pub stated_total: Option<u64>,
    /// Why this may not be every goroutine of the process. Empty: it is the whole truth, and what
    /// is not in it does not exist.
    pub gaps: Vec<String>,
    /// Distinct stacks.
    pub stacks: Vec<Stack>,
    /// Single goroutines: only from `debug=2`, in order of appearance.
    pub goroutines: Vec<Goroutine>,
    /// Rows of a `-text` table, which has no stacks.
    pub rows: Vec<Row>,
    symbols: Symbols,
    receivers: Vec<Receiver>,
}

/// The form in which a profile was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// pprof protobuf.
    Protobuf,
    /// `debug=1`: counted stacks with program counters.
    Debug1,
    /// `debug=2`: one goroutine after the other.
    Debug2,
    /// `debug=2` with its lines in reversed order.
    Debug2Reversed,
    /// `go tool pprof -traces`.
    Traces,
    /// `go tool pprof -text` or `-top`.
    Text,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Protobuf => "pprof protobuf",
            Self::Debug1 => "debug=1 text",
            Self::Debug2 => "debug=2 text",
            Self::Debug2Reversed => "debug=2 text in reversed line order",
            Self::Traces => "pprof -traces",
            Self::Text => "pprof -text table",
        })
    }
}

/// What was profiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProfileKind {
    /// All goroutines.
    Goroutine,
    /// Goroutines that the garbage collector proved can never proceed (Go 1.26 and later).
    GoroutineLeak,
    /// Time that others waited, by where the lock was released.
    Mutex,
    /// Time waited, by where.
    Block,
}

impl fmt::Display for ProfileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Goroutine => "goroutine profile",
            Self::GoroutineLeak => "goroutineleak profile",
            Self::Mutex => "mutex profile",
            Self::Block => "block profile",
        })
    }
}

/// Goroutines that stand in the same place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// Innermost first.
    pub frames: Box<[Frame]>,
    /// The line of each frame in the input, where the input is text; else empty.
    pub lines: Box<[u32]>,
    /// How many goroutines; in a mutex or block profile, how many events.
    pub count: u64,
    /// The line it begins on, where the input is text.
    pub line: Option<u32>,
    /// The header's state without minutes: `semacquire`, `chan receive (nil chan)`.
    pub state: Option<u32>,
    /// The function that started it.
    pub created_by: Option<u32>,
    /// Parked, running, or not said by this form.
    pub parked: Option<bool>,
    /// How many of the runtime's frames stand above these without a name, where the form says so.
    pub hidden: Option<u8>,
    /// pprof labels of the first of them, as text: requests differ in labels, not in where they stand.
    pub labels: Option<String>,
    /// The garbage collector proved that it can never proceed.
    pub leaked: bool,
}

/// A call: what, and where in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Index for [`Dump::function`].
    pub function: u32,
    /// Index for [`Dump::source`]; zero: not said.
    pub source: u32,
}

/// One goroutine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Goroutine {
    /// Its number.
    pub id: u64,
    /// The number of the goroutine that started it; zero: not said.
    pub parent: u64,
    /// The address of the lock it waits for in 48 bits, above it how many receivers it has: a dump has
    /// hundreds of thousands of goroutines, and every eight bytes of one count.
    lock_and_receivers: u64,
    /// Index into [`Dump::stacks`].
    pub stack: u32,
    /// Minutes in this state; zero proves nothing.
    pub minutes: u32,
    /// The line of its header.
    pub line: u32,
    /// Where its receivers begin in [`Dump`]'s.
    first_receiver: u32,
}

/// The receiver that a frame was called with, in one word: a dump has several hundred thousand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Receiver(u64);

impl Receiver {
    /// Bits of an address that a process can have.
    const ADDRESS: u32 = 48;
    const EXACT: u64 = 1 << 63;

    /// `None`: no process has such an address.
    pub(super) fn new(frame: u16, exact: bool, address: u64) -> Option<Self> {
        let fits = address >> Self::ADDRESS == 0 && frame < 1 << 15;
        let exact = if exact { Self::EXACT } else { 0 };
        fits.then_some(Self(exact | u64::from(frame) << Self::ADDRESS | address))
    }

    /// The index into the stack's frames.
    pub fn frame(self) -> usize {
        (self.0 >> Self::ADDRESS & 0x7fff) as usize
    }

    /// Whether the argument is exact, not marked `?`.
    pub fn exact(self) -> bool {
        self.0 & Self::EXACT != 0
    }

    /// The address of the value.
    pub fn address(self) -> u64 {
        self.0 & ((1 << Self::ADDRESS) - 1)
    }
}

/// A row of a `-text` table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Goroutines whose innermost frame this is.
    pub flat: u64,
    /// Goroutines with this function anywhere.
    pub cum: u64,
    /// The symbol.
    pub function: u32,
    /// Its line in the input.
    pub line: u32,
}

/// What a function of the runtime or of `sync` says about a stack that contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RuntimeCall {
    /// Nothing: it is the program's.
    Program,
    /// `sync.(*Mutex).lockSlow`.
    LockSlow,
    /// `sync.(*Mutex).Lock`.
    MutexLock,
    /// `sync.(*RWMutex).Lock`.
    RwLock,
    /// `sync.(*RWMutex).RLock`.
    RwRLock,
    /// The semaphore of a mutex or, before 1.20, of a RWMutex.
    SemaMutex,
    /// The semaphore of a RWMutex for its head writer.
    SemaRw,
    /// The semaphore of a RWMutex for its readers.
    SemaRwR,
    /// A semaphore of another kind.
    Sema,
    /// The lock of a file descriptor.
    FdLock,
    /// `sync.(*WaitGroup).Wait`.
    WaitGroup,
    /// `sync.(*Cond).Wait`.
    Cond,
    /// `sync.(*Once).doSlow` and `Do`.
    Once,
    /// A send on a channel.
    ChanSend,
    /// A receive from a channel.
    ChanRecv,
    /// `select` with cases.
    Select,
    /// `select {}`.
    Block,
    /// Waiting for the network or a pipe.
    Netpoll,
    /// In a system call.
    Syscall,
    /// `time.Sleep`.
    Sleep,
    /// Anything else of `sync`.
    Sync,
    /// Anything else of the runtime.
    Runtime,
}

impl RuntimeCall {
    fn of(symbol: &str) -> Self {
        let name = Name::of(symbol);
        match (name.package, name.receiver, name.function) {
            ("sync" | "internal/sync", Some("Mutex"), "lockSlow") => Self::LockSlow,
            ("sync" | "internal/sync", Some("Mutex"), "Lock") => Self::MutexLock,
            ("sync", Some("RWMutex"), "Lock") => Self::RwLock,
            ("sync", Some("RWMutex"), "RLock") => Self::RwRLock,
            ("sync", Some("WaitGroup"), "Wait") => Self::WaitGroup,
            ("sync", Some("Cond"), "Wait") => Self::Cond,
            ("sync", Some("Once"), _) => Self::Once,
            (_, None, "runtime_SemacquireMutex") => Self::SemaMutex,
            (_, None, "runtime_SemacquireRWMutex") => Self::SemaRw,
            (_, None, "runtime_SemacquireRWMutexR") => Self::SemaRwR,
            (_, None, "runtime_Semacquire" | "runtime_SemacquireWaitGroup") => Self::Sema,
            ("internal/poll", Some("fdMutex"), "rwlock") => Self::FdLock,
            ("internal/poll", None, "runtime_pollWait") => Self::Netpoll,
            ("runtime", None, "netpollblock") => Self::Netpoll,
            ("runtime", None, "chansend" | "chansend1") => Self::ChanSend,
            ("runtime", None, "chanrecv" | "chanrecv1" | "chanrecv2") => Self::ChanRecv,
            ("runtime", None, "selectgo") => Self::Select,
            ("runtime", None, "block") => Self::Block,
            ("time", None, "Sleep") | ("runtime", None, "timeSleep") => Self::Sleep,
            ("syscall" | "internal/runtime/syscall" | "runtime/internal/syscall", ..) => {
                Self::Syscall
            }
            ("golang.org/x/sys/unix", None, function)
                if function.to_ascii_lowercase().contains("syscall") =>
            {
                Self::Syscall
            }
            ("runtime", None, "notetsleepg" | "cgocall") => Self::Syscall,
            ("sync" | "internal/sync", ..) => Self::Sync,
            ("runtime" | "runtime/internal/atomic" | "internal/runtime/atomic", ..) => {
                Self::Runtime
            }
            _ => Self::Program,
        }
    }
}

impl Dump {
    /// A symbol.
    pub fn function(&self, index: u32) -> &str {
        self.symbols.functions.get(index as usize).map_or("", |s| s)
    }

    /// What is known of a symbol.
    pub fn known(&self, index: u32) -> RuntimeCall {
        self.symbols.known.get(index as usize).copied().unwrap_or(RuntimeCall::Program)
    }

    /// `file.go:12`, or nothing where the form does not say.
    pub fn source(&self, index: u32) -> &str {
        self.symbols.sources.get(index as usize).map_or("", |s| s)
    }

    /// A header's state.
    pub fn state(&self, stack: &Stack) -> Option<&str> {
        stack.state.map(|index| self.source(index))
    }

    /// The receivers that a goroutine's frames show.
    pub fn receivers(&self, goroutine: &Goroutine) -> &[Receiver] {
        let start = goroutine.first_receiver as usize;
        let count = (goroutine.lock_and_receivers >> Receiver::ADDRESS) as usize;
        self.receivers.get(start..start + count).unwrap_or(&[])
    }

    pub(super) fn distrust_receivers(&mut self) {
        for receiver in &mut self.receivers {
            receiver.0 &= !Receiver::EXACT;
        }
    }

    /// `goroutine profile, debug=2 text`: what an input was taken for.
    pub fn taken_for(&self) -> String {
        format!("{}, {}", self.kind, self.form)
    }

    /// `190,359 goroutines in 23 stacks`: what was read.
    pub fn summary(&self) -> String {
        if self.form == Form::Text {
            return format!("a table of {} functions", thousands(self.rows.len() as u64));
        }
        let what = match self.kind {
            ProfileKind::Goroutine | ProfileKind::GoroutineLeak => "goroutines",
            ProfileKind::Mutex | ProfileKind::Block => "contentions",
        };
        let stacks = thousands(self.stacks.len() as u64);
        format!("{} {what} in {stacks} stacks", thousands(self.shown()))
    }

    /// How many goroutines it shows.
    pub fn shown(&self) -> u64 {
        self.stacks.iter().map(|s| s.count).sum()
    }

    /// The functions it names, with their indices.
    pub fn functions(&self) -> impl Iterator<Item = (u32, &str)> {
        (0u32..).zip(self.symbols.functions.iter().map(|s| &**s))
    }
}

#[derive(Debug, Clone, Default)]
struct Symbols {
    functions: Vec<Box<str>>,
    known: Vec<RuntimeCall>,
    pointer: Vec<bool>,
    /// Source positions and header states; index zero is the empty text.
    sources: Vec<Box<str>>,
}

/// Builds a [`Dump`] while a form is read: interns and folds, allocates only for what is new.
#[derive(Debug)]
pub(super) struct Builder {
    dump: Dump,
    functions: FxHashMap<Box<[u8]>, u32>,
    sources: FxHashMap<Box<[u8]>, u32>,
    /// Hash of (frames, state, creator) to stacks.
    stacks: FxHashMap<u64, Vec<u32>>,
}

/// What is read of one stack before it is folded; reused from stack to stack.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) frames: Vec<Frame>,
    pub(super) lines: Vec<u32>,
    pub(super) count: u64,
    pub(super) line: Option<u32>,
    pub(super) state: Option<u32>,
    pub(super) created_by: Option<u32>,
    pub(super) parked: Option<bool>,
    pub(super) hidden: Option<u8>,
    pub(super) labels: Option<String>,
    pub(super) leaked: bool,
}

impl Draft {
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.lines.clear();
        (self.count, self.line, self.state) = (1, None, None);
        (self.created_by, self.parked, self.hidden) = (None, None, None);
        (self.labels, self.leaked) = (None, false);
    }
}

impl Builder {
    pub(super) fn new(input: &str, form: Form, kind: ProfileKind, first_line: u32) -> Self {
        Self {
            dump: Dump {
                input: input.to_owned(),
                form,
                kind,
                taken: None,
                build_id: None,
                first_line,
                stated_total: None,
                gaps: Vec::new(),
                stacks: Vec::new(),
                goroutines: Vec::new(),
                rows: Vec::new(),
                symbols: Symbols { sources: vec!["".into()], ..Symbols::default() },
                receivers: Vec::new(),
            },
            functions: FxHashMap::default(),
            sources: FxHashMap::default(),
            stacks: FxHashMap::default(),
        }
    }

    pub(super) fn dump(&mut self) -> &mut Dump {
        &mut self.dump
    }

    pub(super) fn function(&mut self, symbol: &[u8]) -> u32 {
        if let Some(&index) = self.functions.get(symbol) {
            return index;
        }
        let index = u32::try_from(self.dump.symbols.functions.len()).unwrap_or(u32::MAX);
        let text = String::from_utf8_lossy(symbol);
        let known = RuntimeCall::of(&text);
        let pointer = known == RuntimeCall::Program && Name::of(&text).pointer;
        self.dump.symbols.known.push(known);
        self.dump.symbols.pointer.push(pointer);
        self.dump.symbols.functions.push(text.into());
        self.functions.insert(symbol.into(), index);
        index
    }

    pub(super) fn source(&mut self, position: &[u8]) -> u32 {
        if position.is_empty() {
            return 0;
        }
        if let Some(&index) = self.sources.get(position) {
            return index;
        }
        let index = u32::try_from(self.dump.symbols.sources.len()).unwrap_or(u32::MAX);
        self.dump.symbols.sources.push(String::from_utf8_lossy(position).into());
        self.sources.insert(position.into(), index);
        index
    }

    /// Adds `draft.count` goroutines to the stack that equals the draft, and says which it is.
    pub(super) fn fold(&mut self, draft: &Draft) -> u32 {
        use std::hash::{Hash, Hasher};
        let mut hasher = rustc_hash::FxHasher::default();
        draft.frames.hash(&mut hasher);
        (draft.state, draft.created_by).hash(&mut hasher);
        let stacks = &mut self.dump.stacks;
        let same = self.stacks.entry(hasher.finish()).or_default();
        for &index in same.iter() {
            let stack = &mut stacks[index as usize];
            if *stack.frames == *draft.frames
                && stack.state == draft.state
                && stack.created_by == draft.created_by
            {
                stack.count = stack.count.saturating_add(draft.count);
                return index;
            }
        }
        let index = u32::try_from(stacks.len()).unwrap_or(u32::MAX);
        same.push(index);
        stacks.push(Stack {
            frames: draft.frames.as_slice().into(),
            lines: draft.lines.as_slice().into(),
            count: draft.count,
            line: draft.line,
            state: draft.state,
            created_by: draft.created_by,
            parked: draft.parked,
            hidden: draft.hidden,
            labels: draft.labels.clone(),
            leaked: draft.leaked,
        });
        index
    }

    /// Adds the facts of one goroutine.
    pub(super) fn goroutine(&mut self, mut goroutine: Goroutine, receivers: &[Receiver]) {
        goroutine.first_receiver = u32::try_from(self.dump.receivers.len()).unwrap_or(u32::MAX);
        self.dump.receivers.extend_from_slice(receivers);
        let count = u64::from(u8::try_from(receivers.len()).unwrap_or(u8::MAX));
        goroutine.lock_and_receivers = count << Receiver::ADDRESS | goroutine.lock();
        self.dump.goroutines.push(goroutine);
    }

    pub(super) fn goroutines(&self) -> &[Goroutine] {
        &self.dump.goroutines
    }

    /// Whether the first argument of a function is a receiver's address.
    pub(super) fn is_pointer_method(&self, function: u32) -> bool {
        self.dump.symbols.pointer.get(function as usize).copied().unwrap_or(false)
    }

    pub(super) fn known(&self, function: u32) -> RuntimeCall {
        self.dump.known(function)
    }

    pub(super) fn finish(self) -> Dump {
        self.dump
    }
}

impl Goroutine {
    pub(super) fn new(id: u64, stack: u32, line: u32) -> Self {
        Self { id, parent: 0, lock_and_receivers: 0, stack, minutes: 0, line, first_receiver: 0 }
    }

    /// The address of the lock it waits for, where an exact argument shows it; else zero.
    pub fn lock(&self) -> u64 {
        self.lock_and_receivers & ((1 << Receiver::ADDRESS) - 1)
    }

    /// An address that no process can have is not kept. Before its receivers are.
    pub(super) fn waits_for(&mut self, lock: u64) {
        if lock >> Receiver::ADDRESS == 0 {
            self.lock_and_receivers = lock;
        }
    }
}
