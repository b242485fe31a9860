//! Who has a lock: as the runtime says, or else who may, by the frames.

use rustc_hash::{FxHashMap, FxHashSet};

use super::super::dump::{Sym, ThreadDump};
use super::super::name;
use super::super::wait::{Lock, Wait};
use super::queue::{Queue, file, owner_of_function, value_at};
use super::{FEW, MOST_QUEUES};
use crate::report::Level;

/// Candidates kept for one lock: beyond these a list says nothing.
const CANDIDATES: usize = 16;

/// A thread that has the lock, or may have it.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) thread: u32,
    /// The frame that took the lock, or that is inside what it guards.
    pub(super) frame: usize,
    pub(super) level: Level,
    pub(super) why: &'static str,
}

/// Who has one lock.
#[derive(Debug, Default)]
pub(super) struct Holding {
    /// Most likely first.
    pub(super) candidates: Vec<Candidate>,
    /// Waiters of the queue that are inside another function of what the lock guards.
    pub(super) nested: Vec<Candidate>,
    /// Whether the runtime lists the owners of such a lock, so that none is an answer.
    pub(super) is_listed: bool,
}

const DECLARED: &str = "the runtime lists the lock as held by this thread";
const INITIALISES: &str = "it runs the initialiser that the others wait for";
const EXACT: &str = "it is inside a method of the very value that has the lock";
const INSIDE: &str = "it is inside what the lock guards; the form does not say who has it";

/// Holders of every queue, in the order of the queues.
pub(super) fn holdings(dump: &ThreadDump, queues: &[Queue]) -> Vec<Holding> {
    let mut declared: FxHashMap<Sym, Vec<(u32, Option<u16>)>> = FxHashMap::default();
    for (t, thread) in (0u32..).zip(&dump.threads) {
        for hold in &thread.holds {
            declared.entry(hold.object.id).or_default().push((t, hold.frame));
        }
    }
    let index = Index::new(dump, &queues[..queues.len().min(MOST_QUEUES)]);
    queues
        .iter()
        .enumerate()
        .map(|(q, queue)| {
            let listed = queue.object.and_then(|object| declared.get(&object.id));
            if let Some(listed) = listed {
                let candidates = listed.iter().take(CANDIDATES).map(|&(thread, frame)| Candidate {
                    thread,
                    frame: frame.map_or_else(|| guarded_frame(dump, thread, queue), usize::from),
                    level: Level::Certain,
                    why: DECLARED,
                });
                let candidates = candidates.collect();
                return Holding { candidates, is_listed: true, ..Holding::default() };
            }
            if q >= MOST_QUEUES {
                return Holding::default();
            }
            if queue.lock == Lock::Once && queue.object.is_some() {
                return initialisers(dump, queue);
            }
            index.candidates(dump, queue)
        })
        .collect()
}

/// The innermost frame of a thread that is inside what the lock guards, or its first of the program.
fn guarded_frame(dump: &ThreadDump, thread: u32, queue: &Queue) -> usize {
    let stack = dump.stack(&dump.threads[thread as usize]);
    let inside = |f: &usize| {
        owner_of_function(dump.runtime, dump.function(&stack.frames[*f])) == queue.owner
    };
    (stack.depth..stack.frames.len()).find(inside).unwrap_or(stack.depth)
}

fn initialisers(dump: &ThreadDump, queue: &Queue) -> Holding {
    let class = queue.object.map_or("", |object| dump.text(object.type_name));
    let initialiser = format!("{class}.<clinit>");
    let candidates = (0u32..)
        .zip(&dump.threads)
        .filter_map(|(t, thread)| {
            let mut frames = dump.stack(thread).frames.iter();
            let frame = frames.position(|f| dump.function(f) == initialiser)?;
            Some(Candidate { thread: t, frame, level: Level::Certain, why: INITIALISES })
        })
        .take(CANDIDATES)
        .collect();
    Holding { candidates, ..Holding::default() }
}

/// Stacks by the owners of their frames, for owners that queues ask for.
struct Index {
    by_owner: FxHashMap<String, Vec<(u32, Vec<usize>)>>,
    of_stack: Vec<Vec<u32>>,
}

impl Index {
    fn new(dump: &ThreadDump, queues: &[Queue]) -> Self {
        let asked: FxHashSet<&str> = queues.iter().map(|q| q.owner.as_str()).collect();
        let mut of_stack = vec![Vec::new(); dump.stacks.len()];
        for (t, thread) in (0u32..).zip(&dump.threads) {
            of_stack[thread.stack as usize].push(t);
        }
        let files: FxHashSet<&str> = queues.iter().filter_map(|q| q.file.as_deref()).collect();
        let mut by_owner: FxHashMap<String, Vec<(u32, Vec<usize>)>> = FxHashMap::default();
        // A function is asked for its owner once.
        let mut owners: FxHashMap<Sym, Option<String>> = FxHashMap::default();
        for (s, stack) in (0u32..).zip(&dump.stacks) {
            let mut found: Vec<(String, Vec<usize>)> = Vec::new();
            for (f, frame) in stack.frames.iter().enumerate().skip(stack.depth) {
                let (place, function) = (file(dump.text(frame.place)), dump.function(frame));
                if files.contains(place) && !function.contains('<') && !name::is_loop(function) {
                    match found.iter_mut().find(|(known, _)| known == place) {
                        Some((_, frames)) => frames.push(f),
                        None => found.push((place.to_owned(), vec![f])),
                    }
                }
                let owner = owners.entry(frame.function).or_insert_with(|| {
                    let owner = owner_of_function(dump.runtime, dump.function(frame));
                    asked.contains(owner.as_str()).then_some(owner)
                });
                let Some(owner) = owner else { continue };
                match found.iter_mut().find(|(known, _)| known == owner) {
                    Some((_, frames)) => frames.push(f),
                    None => found.push((owner.clone(), vec![f])),
                }
            }
            for (owner, frames) in found {
                by_owner.entry(owner).or_default().push((s, frames));
            }
        }
        Self { by_owner, of_stack }
    }

    fn candidates(&self, dump: &ThreadDump, queue: &Queue) -> Holding {
        let waiting: FxHashSet<u32> = queue.waiters.iter().copied().collect();
        let mut holding = Holding { is_listed: is_listed(dump, queue), ..Holding::default() };
        let mut exact: FxHashSet<u32> = FxHashSet::default();
        let owner = queue.file.as_ref().unwrap_or(&queue.owner);
        for (s, frames) in self.by_owner.get(owner).map_or(&[][..], |v| v) {
            let stack = &dump.stacks[*s as usize];
            for &t in &self.of_stack[*s as usize] {
                let thread = &dump.threads[t as usize];
                let nested = waiting.contains(&t);
                let asks = matches!(thread.wait, Wait::Lock(_)) || nested;
                let site = stack.frames.get(stack.depth).map(|f| f.function);
                let fits = |f: &&usize| {
                    // The frame that asks for a lock does not have this one yet; and a function
                    // that calls itself is not another function.
                    let outside = !asks || **f > stack.depth;
                    let function = stack.frames[**f].function;
                    let other = match &queue.file {
                        Some(_) => !queue.sites.contains(&function),
                        None => !nested || Some(function) != site,
                    };
                    let value = queue.value.zip(value_at(thread, **f));
                    outside && other && value.is_none_or(|(lock, own)| lock == own)
                };
                let Some(&frame) = frames.iter().find(fits) else { continue };
                if thread.wait == Wait::Idle {
                    continue;
                }
                let is_exact = queue.value.is_some() && value_at(thread, frame) == queue.value;
                if is_exact {
                    exact.insert(t);
                }
                let why = if is_exact { EXACT } else { INSIDE };
                let candidate = Candidate { thread: t, frame, level: Level::Possible, why };
                if nested {
                    holding.nested.push(candidate);
                } else {
                    holding.candidates.push(candidate);
                }
            }
        }
        if holding.candidates.iter().any(|c| exact.contains(&c.thread)) {
            holding.candidates.retain(|c| exact.contains(&c.thread));
        }
        // Whoever went on from its frame into a call that blocks is more likely inside than one
        // who stands there itself.
        holding.candidates.sort_by_key(|c| {
            let thread = &dump.threads[c.thread as usize];
            let stands = c.frame == dump.stack(thread).depth;
            (!thread.wait.is_blocked(), stands && thread.wait == Wait::Unknown, c.thread)
        });
        // A file is a wide net: where many are in it, it says nothing of any.
        if queue.file.is_some() && exact.is_empty() && holding.candidates.len() > FEW {
            holding.candidates.clear();
        }
        holding.candidates.truncate(CANDIDATES);
        holding.nested.truncate(CANDIDATES);
        let alone = holding.candidates.len() == 1;
        for candidate in &mut holding.candidates {
            let thread = &dump.threads[candidate.thread as usize];
            if alone && exact.contains(&candidate.thread) && thread.wait.is_blocked() {
                candidate.level = Level::Likely;
            }
        }
        let alone = holding.nested.len() == 1;
        for candidate in &mut holding.nested {
            if alone && exact.contains(&candidate.thread) {
                candidate.level = Level::Likely;
            }
        }
        holding
    }
}

/// Whether the form lists who has such a lock. Readers are never listed.
fn is_listed(dump: &ThreadDump, queue: &Queue) -> bool {
    let Some(object) = queue.object else { return false };
    let synchronizer = dump.text(object.type_name).starts_with("java.util.concurrent.locks.");
    if synchronizer {
        return dump.lists_owners && !dump.text(object.type_name).contains("ReadWrite");
    }
    dump.runtime == super::super::dump::Runtime::Java && dump.lists_monitors
}
