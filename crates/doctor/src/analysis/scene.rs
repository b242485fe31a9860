//! A dump laid out for reasoning: each stack classified once, goroutines that differ in nothing
//! that matters taken together.

use std::hash::BuildHasher as _;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use crate::goroutine::{Dump, Frame, Goroutine, Name, Receiver, Stack};
use crate::report::Evidence;

use super::entry::{Entry, entry};
use super::owner::{Place, Wrappers, place};
use super::wait::{Wait, classify};

/// What was read of one stack.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) wait: Wait,
    /// The first frame outside the runtime and `sync`.
    pub(super) depth: usize,
    /// Where it takes the lock that it waits for.
    pub(super) place: Option<Place>,
    /// The goroutine that wrote the profile.
    pub(super) is_profiler: bool,
}

/// Goroutines on one stack that wait for one address with the same receivers.
#[derive(Debug, Clone)]
pub(super) struct Actor {
    pub(super) stack: u32,
    pub(super) count: u64,
    /// Zero: not shown.
    pub(super) lock: u64,
    /// Index of one of them in [`Dump::goroutines`].
    pub(super) example: Option<u32>,
    /// The longest wait of them.
    pub(super) minutes: u32,
}

#[derive(Debug)]
pub(super) struct Scene<'d> {
    pub(super) dump: &'d Dump,
    pub(super) facts: Vec<Facts>,
    pub(super) actors: Vec<Actor>,
    /// Actors of each stack.
    pub(super) of_stack: Vec<Vec<u32>>,
}

impl<'d> Scene<'d> {
    pub(super) fn new(dump: &'d Dump) -> Self {
        let wrappers = Wrappers::learn(dump);
        let facts: Vec<Facts> = dump
            .stacks
            .iter()
            .map(|stack| {
                let (wait, depth) = classify(dump, stack);
                let place = matches!(wait, Wait::Lock(_) | Wait::Once)
                    .then(|| place(dump, stack, depth, &wrappers));
                let is_profiler = stack.frames.iter().take(8).any(|f| {
                    let name = Name::of(dump.function(f.function));
                    name.package == "runtime/pprof" && name.function.starts_with("write")
                });
                Facts { wait, depth, place, is_profiler }
            })
            .collect();
        let actors = actors(dump, &facts);
        let mut of_stack = vec![Vec::new(); dump.stacks.len()];
        for (i, actor) in (0u32..).zip(&actors) {
            of_stack[actor.stack as usize].push(i);
        }
        Self { dump, facts, actors, of_stack }
    }

    pub(super) fn stack(&self, actor: &Actor) -> &'d Stack {
        &self.dump.stacks[actor.stack as usize]
    }

    pub(super) fn facts(&self, actor: &Actor) -> &Facts {
        &self.facts[actor.stack as usize]
    }

    pub(super) fn receivers(&self, actor: &Actor) -> &'d [Receiver] {
        self.example(actor).map_or(&[], |g| self.dump.receivers(g))
    }

    fn example(&self, actor: &Actor) -> Option<&'d crate::goroutine::Goroutine> {
        self.dump.goroutines.get(actor.example? as usize)
    }

    /// The number of the goroutine, where it is one.
    pub(super) fn number(&self, actor: &Actor) -> Option<u64> {
        (actor.count == 1).then(|| self.example(actor).map(|g| g.id)).flatten()
    }

    pub(super) fn parent(&self, actor: &Actor) -> Option<u64> {
        self.example(actor).map(|g| g.parent).filter(|&p| p != 0)
    }

    pub(super) fn entry(&self, actor: &Actor) -> Entry {
        entry(self.dump, self.stack(actor))
    }

    pub(super) fn symbol(&self, actor: &Actor, frame: usize) -> &'d str {
        self.stack(actor).frames.get(frame).map_or("", |f| self.dump.function(f.function))
    }

    /// A frame's line in its source; zero: not shown.
    pub(super) fn line(&self, frame: &Frame) -> u32 {
        let source = self.dump.source(frame.source);
        source.rsplit_once(':').and_then(|(_, line)| line.parse().ok()).unwrap_or(0)
    }

    /// Function names from the first that is not the runtime's, innermost first.
    pub(super) fn path(&self, actor: &Actor) -> Vec<String> {
        let stack = self.stack(actor);
        let depth = self.facts(actor).depth.min(stack.frames.len());
        let mut path: Vec<String> = stack.frames[depth..]
            .iter()
            .map(|f| self.dump.function(f.function).to_owned())
            .collect();
        if path.is_empty() {
            path.extend(stack.created_by.map(|f| format!("created by {}", self.dump.function(f))));
        }
        path
    }

    /// The actor's place in the input: its header, and the frame that says it.
    pub(super) fn evidence(&self, actor: &Actor, frame: usize) -> Evidence {
        let stack = self.stack(actor);
        let example = self.example(actor);
        let frame_line = stack.lines.get(frame).copied();
        // Frames' lines are those of the first goroutine on the stack.
        let shift = |line: u32| match (example.map(|g| g.line), stack.line) {
            (Some(mine), Some(first)) => (i64::from(mine) - i64::from(first)) + i64::from(line),
            _ => i64::from(line),
        };
        let line =
            frame_line.map(shift).and_then(|n| u64::try_from(n).ok()).or(stack.line.map(u64::from));
        let symbol = self.symbol(actor, frame);
        let source = stack.frames.get(frame).map_or("", |f| self.dump.source(f.source));
        let file = source.rsplit('/').next().unwrap_or(source);
        let at = if file.is_empty() { String::new() } else { format!(" at {file}") };
        let text = match (example, self.dump.state(stack)) {
            (Some(g), Some(state)) => {
                let minutes =
                    if g.minutes > 0 { format!(", {} minutes", g.minutes) } else { String::new() };
                format!("goroutine {} [{state}{minutes}]: {symbol}{at}", g.id)
            }
            _ => format!("{} × {symbol}{at}", stack.count),
        };
        Evidence { input: self.dump.input.clone(), line, text }
    }

    /// Whether what is not in the dump does not exist.
    pub(super) fn is_complete(&self) -> bool {
        self.dump.gaps.is_empty()
    }
}

fn actors(dump: &Dump, facts: &[Facts]) -> Vec<Actor> {
    if dump.goroutines.is_empty() {
        return (0u32..)
            .zip(&dump.stacks)
            .map(|(stack, s)| Actor { stack, count: s.count, lock: 0, example: None, minutes: 0 })
            .collect();
    }
    // Goroutines that sleep or run need no telling apart by what they work on, unless they may hold a
    // lock: then their receivers say which.
    let told_by = |goroutine: &Goroutine| {
        let lock = match facts[goroutine.stack as usize].wait {
            Wait::Lock(_) | Wait::Once => goroutine.lock(),
            _ => 0,
        };
        (goroutine.stack, lock, dump.receivers(goroutine))
    };
    // The goroutine that an actor was made of says what it is told by: an entry has four bytes.
    let of = |actor: &Actor| actor.example.map(|i| told_by(&dump.goroutines[i as usize]));
    let mut index: HashTable<u32> = HashTable::new();
    let mut actors: Vec<Actor> = Vec::new();
    for (i, goroutine) in (0u32..).zip(&dump.goroutines) {
        let told = told_by(goroutine);
        let next = u32::try_from(actors.len()).unwrap_or(u32::MAX);
        let entry = index.entry(
            FxBuildHasher.hash_one(told),
            |&at| of(&actors[at as usize]) == Some(told),
            |&at| of(&actors[at as usize]).map_or(0, |told| FxBuildHasher.hash_one(told)),
        );
        let at = *entry.or_insert(next).get();
        if at == next {
            let (stack, lock, _) = told;
            actors.push(Actor { stack, count: 0, lock, example: Some(i), minutes: 0 });
        }
        let actor = &mut actors[at as usize];
        actor.count += 1;
        actor.minutes = actor.minutes.max(goroutine.minutes);
    }
    actors
}
