//! One thread dump: threads on folded stacks, what each waits for and what it holds.

use jiff::Timestamp;
use rustc_hash::{FxHashMap, FxHashSet};

use super::name::cut;
use super::wait::{self, Wait};
use crate::words::thousands;

/// More threads than this no process has; the rest is counted and left out.
const MOST_THREADS: usize = 2_000_000;
/// Frames kept of one thread: what matters is at the top, and runaway recursion says nothing more.
const MOST_FRAMES: usize = 512;
/// Locks kept of one thread.
const MOST_HOLDS: usize = 64;
/// A name is cut at this length: generics can run to pages.
const LONGEST_NAME: usize = 400;

/// The runtime whose threads these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Runtime {
    Java,
    Python,
    Native,
}

/// An index into the dump's texts.
pub(super) type Sym = u32;

/// One call of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Frame {
    /// The function, without module versions, hashes and arguments.
    pub(super) function: Sym,
    /// `Store.java:12`, `/app/store.py:45`, or nothing.
    pub(super) place: Sym,
}

/// Threads' calls, kept once.
#[derive(Debug)]
pub(super) struct Stack {
    pub(super) frames: Box<[Frame]>,
    /// The first frame of the program itself; the number of frames where there is none.
    pub(super) depth: usize,
}

/// An object that a thread waits for or holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Object {
    /// Its identity as printed: an address, `app.Store@3d99355`.
    pub(super) id: Sym,
    /// Its type, where the form has it.
    pub(super) type_name: Sym,
}

/// A lock that a thread holds, as the runtime says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hold {
    pub(super) object: Object,
    /// The frame that took it, where the form says so.
    pub(super) frame: Option<u16>,
}

#[derive(Debug)]
pub(super) struct Thread {
    pub(super) name: Box<str>,
    /// The number that tells it from others in the dump.
    pub(super) id: u64,
    pub(super) line: u32,
    pub(super) stack: u32,
    pub(super) wait: Wait,
    pub(super) on: Option<Object>,
    pub(super) holds: Box<[Hold]>,
    /// The values on which frames were called, by frame, where the form shows them.
    pub(super) values: Box<[(u16, u64)]>,
    /// Microseconds on a processor so far.
    pub(super) cpu: Option<u64>,
}

/// The threads of one process at one moment.
#[derive(Debug)]
pub struct ThreadDump {
    pub(super) input: String,
    pub(super) runtime: Runtime,
    form: &'static str,
    pub(super) first_line: u32,
    pub(super) taken: Option<Timestamp>,
    pub(super) threads: Vec<Thread>,
    pub(super) stacks: Vec<Stack>,
    texts: Vec<Box<str>>,
    /// Whether owners of `java.util.concurrent` locks are listed.
    pub(super) lists_owners: bool,
    /// Whether owners of monitors are listed.
    pub(super) lists_monitors: bool,
    /// Whether frames below the interpreter's or the language's are shown.
    pub(super) shows_native: bool,
    pub(super) gaps: Vec<String>,
}

impl ThreadDump {
    pub(super) fn text(&self, sym: Sym) -> &str {
        self.texts.get(sym as usize).map_or("", |text| text)
    }

    pub(super) fn stack(&self, thread: &Thread) -> &Stack {
        &self.stacks[thread.stack as usize]
    }

    pub(super) fn function(&self, frame: &Frame) -> &str {
        self.text(frame.function)
    }

    /// What an input was taken for.
    pub(crate) fn taken_for(&self) -> String {
        self.form.to_owned()
    }

    /// `48 threads in 9 stacks`.
    pub(crate) fn summary(&self) -> String {
        let (threads, stacks) = (self.threads.len() as u64, self.stacks.len() as u64);
        format!("{} threads in {} stacks", thousands(threads), thousands(stacks))
    }
}

/// A thread while its lines are read.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) name: String,
    pub(super) id: u64,
    pub(super) line: u32,
    pub(super) frames: Vec<Frame>,
    pub(super) values: Vec<(u16, u64)>,
    pub(super) holds: Vec<Hold>,
    pub(super) on: Option<Object>,
    pub(super) cpu: Option<u64>,
    pub(super) state: State,
}

/// What a form says of a thread beside its frames.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The form does not say.
    #[default]
    Unknown,
    Running,
    /// It waits for a monitor.
    Blocked,
    /// It waits for the initialisation of a class by another thread.
    Initialising,
    Waiting,
    /// It waits with a time limit.
    TimedWaiting,
}

/// Builds a [`ThreadDump`] while a form is read.
#[derive(Debug)]
pub(super) struct Builder {
    pub(super) dump: ThreadDump,
    known: FxHashMap<Box<str>, Sym>,
    folded: FxHashMap<Box<[Frame]>, u32>,
    seen: FxHashSet<u64>,
    pub(super) draft: Option<Draft>,
    /// Whether the lines at hand tell a deadlock once more, or values of a frame.
    pub(super) aside: bool,
    left_out: u64,
}

impl Builder {
    pub(super) fn new(input: &str, runtime: Runtime, form: &'static str, first_line: u32) -> Self {
        let dump = ThreadDump {
            input: input.to_owned(),
            runtime,
            form,
            first_line,
            taken: None,
            threads: Vec::new(),
            stacks: Vec::new(),
            texts: vec!["".into()],
            lists_owners: false,
            lists_monitors: runtime == Runtime::Java,
            shows_native: runtime == Runtime::Native,
            gaps: Vec::new(),
        };
        let mut known = FxHashMap::default();
        known.insert("".into(), 0);
        Self {
            dump,
            known,
            folded: FxHashMap::default(),
            seen: FxHashSet::default(),
            draft: None,
            aside: false,
            left_out: 0,
        }
    }

    pub(super) fn sym(&mut self, text: &str) -> Sym {
        let text = cut(text, LONGEST_NAME);
        if let Some(&sym) = self.known.get(text) {
            return sym;
        }
        let sym = Sym::try_from(self.dump.texts.len()).unwrap_or(0);
        self.dump.texts.push(text.into());
        self.known.insert(text.into(), sym);
        sym
    }

    /// Begins a thread; false where the dump has one with this number.
    pub(super) fn begin(&mut self, name: &str, id: u64, line: u32) -> bool {
        self.end_thread();
        self.aside = false;
        if !self.seen.insert(id) {
            return false;
        }
        self.draft =
            Some(Draft { name: cut(name, LONGEST_NAME).to_owned(), id, line, ..Draft::default() });
        true
    }

    pub(super) fn frame(&mut self, function: &str, place: &str) {
        let (function, place) = (self.sym(function), self.sym(place));
        if let Some(draft) = &mut self.draft
            && draft.frames.len() < MOST_FRAMES
        {
            draft.frames.push(Frame { function, place });
        }
    }

    /// Notes the value on which the last frame was called.
    pub(super) fn value(&mut self, value: u64) {
        if let Some(draft) = &mut self.draft
            && let Some(frame) = draft.frames.len().checked_sub(1)
            && let Ok(frame) = u16::try_from(frame)
            && draft.values.last().is_none_or(|(f, _)| *f != frame)
        {
            draft.values.push((frame, value));
        }
    }

    pub(super) fn hold(&mut self, id: &str, type_name: &str, frame: Option<usize>) {
        let object = Object { id: self.sym(id), type_name: self.sym(type_name) };
        if let Some(draft) = &mut self.draft
            && draft.holds.len() < MOST_HOLDS
            && !draft.holds.iter().any(|h| h.object.id == object.id)
        {
            draft.holds.push(Hold { object, frame: frame.and_then(|f| u16::try_from(f).ok()) });
        }
    }

    pub(super) fn waits_on(&mut self, id: &str, type_name: &str) {
        let object = Object { id: self.sym(id), type_name: self.sym(type_name) };
        if let Some(draft) = &mut self.draft {
            draft.on.get_or_insert(object);
        }
    }

    /// Ends the thread that is being read.
    pub(super) fn end_thread(&mut self) {
        let Some(mut draft) = self.draft.take() else { return };
        if self.dump.threads.len() >= MOST_THREADS {
            self.left_out += 1;
            return;
        }
        let (wait, depth, object) = wait::classify(&self.dump, &draft);
        // Who waits on an object's monitor has given it up meanwhile.
        if wait.gives_up()
            && let Some(on) = draft.on
        {
            draft.holds.retain(|h| h.object.id != on.id);
        }
        if let Some(address) = object
            && draft.on.is_none()
        {
            let id = self.sym(&format!("{address:#x}"));
            draft.on = Some(Object { id, type_name: 0 });
        }
        let frames: Box<[Frame]> = draft.frames.as_slice().into();
        let stack = match self.folded.get(&frames) {
            Some(&stack) => stack,
            None => {
                let stack = u32::try_from(self.dump.stacks.len()).unwrap_or(u32::MAX);
                self.dump.stacks.push(Stack { frames: frames.clone(), depth });
                self.folded.insert(frames, stack);
                stack
            }
        };
        self.dump.threads.push(Thread {
            name: draft.name.into(),
            id: draft.id,
            line: draft.line,
            stack,
            wait,
            on: draft.on,
            holds: draft.holds.into(),
            values: draft.values.into(),
            cpu: draft.cpu,
        });
    }

    pub(super) fn finish(mut self) -> Option<ThreadDump> {
        self.end_thread();
        if self.left_out > 0 {
            let many = thousands(self.left_out);
            self.dump
                .gaps
                .push(format!("{many} threads beyond the first two million are left out"));
        }
        (!self.dump.threads.is_empty()).then_some(self.dump)
    }
}
