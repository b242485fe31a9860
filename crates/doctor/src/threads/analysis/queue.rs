//! Threads that wait for one lock.

use rustc_hash::FxHashMap;

use super::super::dump::{Object, Runtime, Sym, Thread, ThreadDump};
use super::super::name;
use super::super::wait::{Lock, Wait};

/// What tells one lock from another.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Key {
    /// The lock itself, as the form names it.
    Object(Sym),
    /// The value whose method waits.
    Value(u64),
    /// The type whose method waits, or the function.
    Owner(String),
    /// A line at which threads stand, in a form that does not say what for.
    Place(Sym, Sym),
}

/// Threads that wait for one lock.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) waiters: Vec<u32>,
    pub(super) object: Option<Object>,
    pub(super) lock: Lock,
    /// The type, or the function, that takes the lock.
    pub(super) owner: String,
    /// The functions in which the waiters take it.
    pub(super) sites: Vec<Sym>,
    /// The value that has the lock, where it is the same for all.
    pub(super) value: Option<u64>,
    /// The file in which it is taken, for functions of Python whose class is not told.
    pub(super) file: Option<String>,
    /// Whether the form says that they wait for a lock.
    pub(super) is_sure: bool,
}

impl Queue {
    /// Whether it is the same lock in two dumps.
    pub(super) fn is_same(&self, dump: &ThreadDump, other: &Self, of: &ThreadDump) -> bool {
        let object = |q: &Self, d: &ThreadDump| q.object.map(|o| d.text(o.id).to_owned());
        let (a, b) = (object(self, dump), object(other, of));
        // A collector may have moved the lock between the dumps.
        (a.is_some() && a == b) || (self.owner == other.owner && self.lock == other.lock)
    }

    /// Its size.
    pub(super) fn total(&self) -> u64 {
        self.waiters.len() as u64
    }
}

/// The queues of a dump, largest first.
pub(super) fn queues(dump: &ThreadDump) -> Vec<Queue> {
    let mut by_key: FxHashMap<Key, Queue> = FxHashMap::default();
    for (t, thread) in (0u32..).zip(&dump.threads) {
        let stack = dump.stack(thread);
        let Some(site) = stack.frames.get(stack.depth) else {
            // A lock of the runtime's own.
            continue;
        };
        let sure = matches!(thread.wait, Wait::Lock(_));
        let maybe = dump.runtime == Runtime::Python
            && thread.wait == Wait::Unknown
            && !name::is_loop(dump.function(site));
        if !sure && !maybe {
            continue;
        }
        let owner = owner_of(dump, thread);
        let value = value_at(thread, stack.depth);
        let key = match (thread.on, value) {
            (Some(object), _) => Key::Object(object.id),
            (None, _) if !sure => Key::Place(site.function, site.place),
            (None, Some(value)) => Key::Value(value),
            (None, None) => Key::Owner(owner.clone()),
        };
        let lock = match thread.wait {
            Wait::Lock(lock) => lock,
            _ => Lock::Mutex,
        };
        let queue = by_key.entry(key).or_insert_with(|| Queue {
            waiters: Vec::new(),
            object: thread.on,
            lock,
            file: file_of(dump, thread, &owner),
            owner,
            sites: Vec::new(),
            value,
            is_sure: sure,
        });
        queue.waiters.push(t);
        if lock == Lock::Write && queue.lock == Lock::Read {
            queue.lock = Lock::Write;
        }
        if queue.value != value {
            queue.value = None;
        }
        if !queue.sites.contains(&site.function) && queue.sites.len() < 64 {
            queue.sites.push(site.function);
        }
    }
    let mut queues: Vec<Queue> = by_key.into_values().collect();
    queues.sort_by_key(|q| (std::cmp::Reverse(q.waiters.len()), q.waiters.first().copied()));
    queues
}

/// The type, or the function, whose frame takes the lock.
pub(super) fn owner_of(dump: &ThreadDump, thread: &Thread) -> String {
    let stack = dump.stack(thread);
    let function = stack.frames.get(stack.depth).map_or("", |f| dump.function(f));
    owner_of_function(dump.runtime, function)
}

pub(super) fn owner_of_function(runtime: Runtime, function: &str) -> String {
    name::owner(runtime, function).unwrap_or(function).to_owned()
}

/// The file of the function that takes the lock, where its class is not told.
fn file_of(dump: &ThreadDump, thread: &Thread, owner: &str) -> Option<String> {
    let stack = dump.stack(thread);
    let site = stack.frames.get(stack.depth)?;
    let classless = dump.runtime == Runtime::Python && owner == dump.function(site);
    classless.then(|| file(dump.text(site.place)).to_owned())
}

/// `store.py` of `store.py:12`.
pub(super) fn file(place: &str) -> &str {
    place.rsplit_once(':').map_or(place, |(file, _)| file)
}

/// The value on which a frame was called.
pub(super) fn value_at(thread: &Thread, frame: usize) -> Option<u64> {
    thread.values.iter().find(|(f, _)| usize::from(*f) == frame).map(|(_, value)| *value)
}
