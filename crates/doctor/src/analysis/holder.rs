//! Who may hold a lock: goroutines that are not waiting for it and are inside what it guards.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::goroutine::{Known, Name};
use crate::report::{HeldMode, Level, ResourceKind};

use super::owner::Owner;
use super::queue::Queue;
use super::scene::{Actor, Scene};
use super::wait::Wait;

/// Candidates kept for one lock: beyond these the list says nothing.
const CANDIDATES: usize = 64;

/// A goroutine that may hold the lock, and what speaks for it.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) actor: u32,
    /// The frame that is inside what the lock guards.
    pub(super) frame: usize,
    /// The frame's receiver is the very value that has the lock.
    pub(super) exact: bool,
    /// Others are seen to take the lock in this function.
    pub(super) takes: bool,
    /// A loop that waits for its next piece of work rarely holds anything.
    pub(super) idle: bool,
    /// It waits as for work in the very frame that its goroutine began with: perhaps such a loop.
    pub(super) shallow: bool,
    pub(super) level: Level,
}

/// Candidates for one queue.
#[derive(Debug, Default, Clone)]
pub(super) struct Candidates {
    /// Most likely first.
    pub(super) outside: Vec<Candidate>,
    /// Waiters of the queue itself that are inside what it guards already.
    pub(super) nested: Vec<Candidate>,
}

/// For each owner, the stacks that work on what it guards, with the frames that do.
#[derive(Debug)]
pub(super) struct Index<'q>(FxHashMap<&'q Owner, Vec<(u32, Vec<usize>)>>);

impl<'q> Index<'q> {
    pub(super) fn new(scene: &Scene<'_>, queues: &'q [Queue]) -> Self {
        let mut owners: Vec<&Owner> = queues.iter().map(|q| &q.owner).collect();
        owners.sort();
        owners.dedup();
        // Which owners a function belongs to, asked once a function.
        let covering: Vec<Vec<usize>> = scene
            .dump
            .functions()
            .map(|(_, symbol)| {
                let name = Name::of(symbol);
                (0..owners.len()).filter(|&o| owners[o].covers(&name)).collect()
            })
            .collect();
        let mut index: FxHashMap<&Owner, Vec<(u32, Vec<usize>)>> = FxHashMap::default();
        let mut frames: Vec<(usize, usize)> = Vec::new();
        for (s, stack) in (0u32..).zip(&scene.dump.stacks) {
            let facts = &scene.facts[s as usize];
            if facts.is_profiler {
                continue;
            }
            // The frame that asks for a lock does not have it yet.
            let first = facts.place.as_ref().map_or(facts.depth, |p| p.site + 1);
            frames.clear();
            // `go func() { … }()` in a method starts outside whatever the method has locked.
            let root = stack
                .frames
                .iter()
                .rposition(|f| scene.dump.known(f.function) != Known::Runtime)
                .filter(|&f| Name::of(scene.dump.function(stack.frames[f].function)).closure);
            for (f, frame) in stack.frames.iter().enumerate().skip(first) {
                for &o in covering.get(frame.function as usize).map_or(&[][..], |c| c) {
                    if root != Some(f) || !matches!(owners[o], Owner::Type { .. }) {
                        frames.push((o, f));
                    }
                }
            }
            frames.sort_unstable();
            for group in frames.chunk_by(|a, b| a.0 == b.0) {
                let inside = group.iter().map(|g| g.1).collect();
                index.entry(owners[group[0].0]).or_default().push((s, inside));
            }
        }
        Self(index)
    }

    /// Everybody who may hold the lock of `queue`, held in `mode`.
    pub(super) fn candidates(
        &self,
        scene: &Scene<'_>,
        queue: &Queue,
        mode: HeldMode,
    ) -> Candidates {
        if queue.kind == ResourceKind::Once {
            return Candidates { outside: runs_once(scene, queue), nested: Vec::new() };
        }
        let waiting: FxHashSet<u32> = queue.actors.iter().copied().collect();
        let mut found = Candidates::default();
        for (s, frames) in self.0.get(&queue.owner).map_or(&[][..], |v| v) {
            for &a in &scene.of_stack[*s as usize] {
                let actor = &scene.actors[a as usize];
                let Some((frame, exact)) = fitting(scene, actor, frames, queue) else {
                    continue;
                };
                let takes = takes(scene, actor, frame, queue);
                let nested = waiting.contains(&a);
                let idle = !nested && !takes && is_idle(scene, actor, frame, queue);
                let candidate = Candidate {
                    actor: a,
                    frame,
                    exact,
                    takes,
                    idle,
                    shallow: is_shallow(scene, actor, frame),
                    level: Level::Possible,
                };
                if nested { &mut found.nested } else { &mut found.outside }.push(candidate);
            }
        }
        // A descriptor's lock: every connection has frames on the type, so only an address counts.
        if is_everywhere(&queue.owner) {
            found.outside.retain(|c| c.exact);
        }
        // Every value has its loops, called on it: an address alone does not make them holders.
        let at_work = |c: &Candidate| c.exact && !c.idle && !c.shallow;
        if found.outside.iter().any(at_work) {
            found.outside.retain(|c| c.exact);
        }
        if found.outside.iter().any(|c| !c.idle) {
            found.outside.retain(|c| !c.idle);
        }
        // Waiters that are inside already are candidates too.
        let alone = found.outside.len() == 1 && found.nested.is_empty();
        let alone_at_work = found.outside.iter().filter(|c| at_work(c)).count() == 1;
        for candidate in &mut found.outside {
            let actor = &scene.actors[candidate.actor as usize];
            let blocked = scene.facts(actor).wait.is_blocked();
            let earned = (at_work(candidate) && blocked && alone_at_work)
                || (alone
                    && actor.count == 1
                    && blocked
                    && scene.is_complete()
                    && queue.instances() == 1
                    && !candidate.idle
                    && (candidate.takes
                        || (matches!(queue.owner, Owner::Type { .. }) && !candidate.shallow)));
            if earned {
                candidate.level = Level::Likely;
            }
        }
        found.outside.sort_by_key(|c| rank(scene, c, mode));
        found.outside.truncate(CANDIDATES);
        found
    }
}

/// The innermost frame that can have the lock, and whether its receiver proves it. `None`: every
/// frame works on another value.
fn fitting(
    scene: &Scene<'_>,
    actor: &Actor,
    frames: &[usize],
    queue: &Queue,
) -> Option<(usize, bool)> {
    let receivers = scene.receivers(actor);
    let mut open = Vec::new();
    for &frame in frames {
        let receiver = receivers.iter().find(|r| usize::from(r.frame) == frame);
        match receiver {
            Some(r) if queue.receivers.contains(&r.address) && r.exact => {
                return Some((frame, true));
            }
            Some(r) if r.exact && !queue.receivers.is_empty() => {}
            _ => open.push(frame),
        }
    }
    // Of frames that fit equally, the one that is seen to take the lock says most.
    let taking = open.iter().find(|&&frame| takes(scene, actor, frame, queue));
    taking.or(open.first()).map(|&frame| (frame, false))
}

/// Whether the frame is past a place at which others are seen to take the lock.
fn takes(scene: &Scene<'_>, actor: &Actor, frame: usize, queue: &Queue) -> bool {
    let Some(f) = scene.stack(actor).frames.get(frame) else {
        return false;
    };
    if let Some(&first) = queue.sites.get(&f.function) {
        let line = scene.line(f);
        return line == 0 || line >= first;
    }
    // A closure inside a function that takes the lock.
    let name = Name::of(scene.dump.function(f.function));
    name.closure
        && queue.sites.keys().any(|&site| {
            let site = Name::of(scene.dump.function(site));
            (site.package, site.receiver, site.function)
                == (name.package, name.receiver, name.function)
        })
}

fn is_idle(scene: &Scene<'_>, actor: &Actor, frame: usize, queue: &Queue) -> bool {
    let facts = scene.facts(actor);
    match (&queue.owner, facts.wait) {
        (_, Wait::Idle) => true,
        (Owner::Type { .. }, Wait::Select) => is_shallow(scene, actor, frame),
        (Owner::Type { .. }, _) => false,
        // A package is a wide net: what waits in its own frame, and `main`, are in it by nature.
        (_, Wait::Select | Wait::Receive | Wait::Channel | Wait::Condition | Wait::Sleep)
            if frame == facts.depth =>
        {
            true
        }
        _ => scene.symbol(actor, frame) == "main.main",
    }
}

/// Whether the frame waits as for work, and is the first of its goroutine.
fn is_shallow(scene: &Scene<'_>, actor: &Actor, frame: usize) -> bool {
    let outside = scene.stack(actor).frames.get(frame + 1..).unwrap_or(&[]);
    let facts = scene.facts(actor);
    let for_work = matches!(
        facts.wait,
        Wait::Select | Wait::Receive | Wait::Channel | Wait::Condition | Wait::Sleep
    );
    for_work
        && frame == facts.depth
        && outside.iter().all(|f| scene.dump.known(f.function) == Known::Runtime)
}

/// Types that every goroutine that does I/O has frames on.
fn is_everywhere(owner: &Owner) -> bool {
    matches!(owner, Owner::Type { package, .. }
        if matches!(package.as_str(), "internal/poll" | "net" | "os"))
}

/// Goroutines that are running a once's function, for the same caller.
fn runs_once(scene: &Scene<'_>, queue: &Queue) -> Vec<Candidate> {
    let callers: FxHashSet<Option<u32>> = queue
        .actors
        .iter()
        .map(|&a| {
            let actor = &scene.actors[a as usize];
            scene.stack(actor).frames.get(scene.facts(actor).depth).map(|f| f.function)
        })
        .collect();
    let mut found = Vec::new();
    for (a, actor) in (0u32..).zip(&scene.actors) {
        let facts = scene.facts(actor);
        let stack = scene.stack(actor);
        let once = |f: &crate::goroutine::Frame| scene.dump.known(f.function) == Known::Once;
        let Some(first) = stack.frames.iter().skip(facts.depth).position(once) else {
            continue;
        };
        let first = first + facts.depth;
        let outside = stack.frames[first..].iter().find(|f| !once(f)).map(|f| f.function);
        if callers.contains(&outside) {
            found.push(Candidate {
                actor: a,
                frame: first,
                exact: false,
                takes: true,
                idle: false,
                shallow: false,
                level: Level::Possible,
            });
        }
    }
    if let [only] = found.as_mut_slice()
        && scene.is_complete()
    {
        only.level = Level::Likely;
    }
    found
}

/// Smaller is likelier.
fn rank(scene: &Scene<'_>, candidate: &Candidate, mode: HeldMode) -> (bool, bool, u8, bool, u32) {
    let actor = &scene.actors[candidate.actor as usize];
    let strength = match scene.facts(actor).wait {
        Wait::Lock(_) | Wait::Once => 0,
        Wait::Io | Wait::Send | Wait::Group | Wait::Semaphore | Wait::Forever => 1,
        Wait::Receive | Wait::Channel | Wait::Sleep | Wait::Condition | Wait::Syscall => 1,
        Wait::Select => 2,
        Wait::Running | Wait::Unknown => 3,
        Wait::Idle => 4,
    };
    let name = Name::of(scene.symbol(actor, candidate.frame));
    let unlike = match (mode, verb(name.function)) {
        (HeldMode::Unknown, _) | (_, None) => false,
        (mode, Some(verb)) => mode != verb,
    };
    (!candidate.exact, !candidate.takes, strength, unlike, candidate.actor)
}

/// How a function is likely to take a lock, by its first word. It orders equals; it proves nothing.
fn verb(function: &str) -> Option<HeldMode> {
    const WRITES: [&str; 14] = [
        "put", "set", "add", "update", "delete", "remove", "write", "insert", "store", "create",
        "apply", "register", "close", "reset",
    ];
    const READS: [&str; 14] = [
        "get", "list", "scan", "read", "find", "lookup", "count", "is", "has", "load", "range",
        "match", "export", "snapshot",
    ];
    let lower = function.to_ascii_lowercase();
    let begins = |words: &[&str]| words.iter().any(|w| lower.starts_with(w));
    if begins(&WRITES) {
        Some(HeldMode::Write)
    } else if begins(&READS) {
        Some(HeldMode::Read)
    } else {
        None
    }
}
