//! Who may hold a lock: goroutines that are not waiting for it and are inside what it guards.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::goroutine::{Name, RuntimeCall};
use crate::report::{HeldMode, Level, ResourceKind};

use super::owner::Owner;
use super::queue::{Key, Queue};
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
    /// For a package's variable: lone goroutines of the package that ask for another lock in the
    /// first frame that could have this one. They are candidates only where two locks cross.
    pub(super) crossing: Vec<Candidate>,
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
            // The frame that asks for a lock does not have it yet; it may have another.
            let first = facts.place.as_ref().map_or(facts.depth, |p| p.site);
            frames.clear();
            // A closure that its function no longer calls, as after `go func() { … }()`, is outside
            // whatever the function has locked.
            let name_at = |f: usize| Name::of(scene.dump.function(stack.frames[f].function));
            let escaped = |f: usize| {
                let closure = name_at(f);
                closure.closure
                    && !(f + 1..stack.frames.len()).any(|outer| {
                        let name = name_at(outer);
                        !name.closure
                            && (name.package, name.receiver, name.function)
                                == (closure.package, closure.receiver, closure.function)
                    })
            };
            for (f, frame) in stack.frames.iter().enumerate().skip(first) {
                for &o in covering.get(frame.function as usize).map_or(&[][..], |c| c) {
                    if !matches!(owners[o], Owner::Type { .. }) || !escaped(f) {
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
            return Candidates { outside: runs_once(scene, queue), ..Candidates::default() };
        }
        let waiting: FxHashSet<u32> = queue.actors.iter().copied().collect();
        let mut found = Candidates::default();
        let inside = self.0.get(&queue.owner).map_or(&[][..], |v| v);
        let base = base(scene, inside, queue);
        for (s, frames) in self.0.get(&queue.owner).map_or(&[][..], |v| v) {
            for &a in &scene.of_stack[*s as usize] {
                let actor = &scene.actors[a as usize];
                let nested = waiting.contains(&a);
                let asks = scene.facts(actor).place.as_ref().map(|p| p.site);
                let may = |f: usize| asks != Some(f) || (!nested && passed(scene, actor, f, queue));
                let inside: Vec<usize> = frames.iter().copied().filter(|&f| may(f)).collect();
                let Some((frame, exact)) = fitting(scene, actor, &inside, queue, base) else {
                    let variable =
                        matches!(queue.owner, Owner::Variable { .. } | Owner::Package { .. });
                    if let Some(frame) = asks.filter(|_| variable && !nested && actor.count == 1) {
                        let (exact, takes, idle, shallow) = (false, false, false, false);
                        let level = Level::Possible;
                        found.crossing.push(Candidate {
                            actor: a,
                            frame,
                            exact,
                            takes,
                            idle,
                            shallow,
                            level,
                        });
                    }
                    continue;
                };
                let takes = takes(scene, actor, frame, queue);
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
        // Only one can be past the mutex that all of them are to have taken: a crowd is not.
        let exclusive = queue.kind == ResourceKind::Mutex || (mode == HeldMode::Write);
        if exclusive && found.nested.iter().any(|c| !c.takes) {
            let inside = |c: &Candidate| {
                let actor = &scene.actors[c.actor as usize];
                (scene.stack(actor).frames.get(c.frame).map(|f| f.function), actor.count)
            };
            let mut crowds: FxHashMap<Option<u32>, u64> = FxHashMap::default();
            for (function, count) in found.nested.iter().map(inside) {
                *crowds.entry(function).or_default() += count;
            }
            found.nested.retain(|c| c.takes || crowds[&inside(c).0] == 1);
        }
        found.nested.sort_by_key(|c| nested_rank(scene, c, &queue.owner));
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
    base: Option<u64>,
) -> Option<(usize, bool)> {
    let elsewhere = |address: u64| match queue.key {
        _ if !queue.receivers.is_empty() => true,
        Key::Lock(_) => matches!(queue.owner, Owner::Type { .. }) && base != Some(address),
        Key::Receiver(_) | Key::Unknown => false,
    };
    let receivers = scene.receivers(actor);
    let mut open = Vec::new();
    for &frame in frames {
        let receiver = receivers.iter().find(|r| r.frame() == frame);
        match receiver {
            Some(r) if queue.receivers.contains(&r.address()) && r.exact() => {
                return Some((frame, true));
            }
            Some(r) if r.exact() && elsewhere(r.address()) => {
                // What it calls works on the same value, as far as no exact receiver says otherwise.
                open.clear();
            }
            _ => open.push(frame),
        }
    }
    // Of frames that fit equally, the one that is seen to take the lock says most.
    let taking = open.iter().find(|&&frame| takes(scene, actor, frame, queue));
    taking.or(open.first()).map(|&frame| (frame, false))
}

/// Whether a frame that asks for another lock is past the line on which others take this one.
fn passed(scene: &Scene<'_>, actor: &Actor, frame: usize, queue: &Queue) -> bool {
    let Some(f) = scene.stack(actor).frames.get(frame) else {
        return false;
    };
    let line = scene.line(f);
    queue.sites.get(&f.function).is_some_and(|&first| first > 0 && line > first)
}

/// The value that must have the lock if any does that is seen: the last that begins before it. One
/// that begins behind it does not contain it, and one that begins before another of its type ends
/// there.
fn base(scene: &Scene<'_>, inside: &[(u32, Vec<usize>)], queue: &Queue) -> Option<u64> {
    let Key::Lock(lock) = queue.key else { return None };
    let stacks = inside
        .iter()
        .flat_map(|(s, frames)| scene.of_stack[*s as usize].iter().map(move |a| (*a, frames)));
    stacks
        .flat_map(|(a, frames)| {
            let receivers = scene.receivers(&scene.actors[a as usize]).iter();
            receivers.filter(|r| r.exact() && frames.contains(&r.frame()))
        })
        .map(|r| r.address())
        .filter(|&address| address <= lock)
        .max()
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
        _ if is_loop(scene, actor, frame) => true,
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
        && outside.iter().all(|f| scene.dump.known(f.function) == RuntimeCall::Runtime)
}

/// Whether the frame is a loop that waits for its next piece of work: it waits at the root of its
/// goroutine, below nothing but the closures that started it, and ranges over a channel or has a
/// loop's name.
pub(super) fn is_loop(scene: &Scene<'_>, actor: &Actor, frame: usize) -> bool {
    const WORDS: [&str; 20] = [
        "run",
        "loop",
        "read",
        "watch",
        "drain",
        "work",
        "serve",
        "listen",
        "pump",
        "poll",
        "consume",
        "dispatch",
        "process",
        "member",
        "monitor",
        "recv",
        "receive",
        "handleevents",
        "eventloop",
        "background",
    ];
    let (stack, facts) = (scene.stack(actor), scene.facts(actor));
    let for_work = matches!(
        facts.wait,
        Wait::Select | Wait::Receive | Wait::Channel | Wait::Condition | Wait::Sleep
    );
    let starts = |f: &crate::goroutine::Frame| {
        scene.dump.known(f.function) == RuntimeCall::Runtime
            || Name::of(scene.dump.function(f.function)).closure
    };
    if !for_work
        || frame != facts.depth
        || !stack.frames.get(frame + 1..).unwrap_or(&[]).iter().all(starts)
    {
        return false;
    }
    let ranges = stack
        .frames
        .iter()
        .take(facts.depth)
        .any(|f| scene.dump.function(f.function) == "runtime.chanrecv2");
    let name = Name::of(scene.symbol(actor, frame)).function.to_ascii_lowercase();
    ranges || name.ends_with("loop") || WORDS.iter().any(|word| name.starts_with(word))
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
        let once = |f: &crate::goroutine::Frame| scene.dump.known(f.function) == RuntimeCall::Once;
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
fn rank(
    scene: &Scene<'_>,
    candidate: &Candidate,
    mode: HeldMode,
) -> (bool, bool, bool, bool, u8, u32) {
    let actor = &scene.actors[candidate.actor as usize];
    let strength = match scene.facts(actor).wait {
        Wait::Lock(_) | Wait::Once => 0,
        Wait::Io | Wait::Send | Wait::Group | Wait::Semaphore | Wait::Forever => 1,
        Wait::Receive | Wait::Channel | Wait::Sleep | Wait::Condition | Wait::Syscall => 2,
        Wait::Select => 3,
        Wait::Running | Wait::Unknown => 4,
        Wait::Idle => 5,
    };
    let name = Name::of(scene.symbol(actor, candidate.frame));
    let unlike = match (mode, verb(name.function)) {
        (HeldMode::Unknown, _) | (_, None) => false,
        (mode, Some(verb)) => mode != verb,
    };
    // A loop in its goroutine's first frame waits for work, whatever it is called on.
    // A lock has one writer: goroutines that do the same thing in number are a pool.
    let pool = mode == HeldMode::Write && actor.count > 1;
    let fits = mode != HeldMode::Unknown && verb(name.function) == Some(mode);
    let loops = (candidate.shallow && !fits || candidate.idle || pool) && !candidate.takes;
    (loops, !candidate.exact, !candidate.takes, unlike, strength, candidate.actor)
}

/// Of waiters that are inside already: first those that took the lock before, then those that came
/// back through somebody else's code, as a callback does; one rather than many.
fn nested_rank(
    scene: &Scene<'_>,
    candidate: &Candidate,
    owner: &Owner,
) -> (bool, bool, u64, bool, u32) {
    let actor = &scene.actors[candidate.actor as usize];
    let site = scene.facts(actor).place.as_ref().map_or(0, |p| p.site);
    let frames = scene.stack(actor).frames.get(site + 1..candidate.frame).unwrap_or(&[]);
    let foreign = frames.iter().any(|f| !owner.covers(&Name::of(scene.dump.function(f.function))));
    (!candidate.takes, !foreign, actor.count, !candidate.exact, candidate.actor)
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
