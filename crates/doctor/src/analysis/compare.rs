//! Two dumps of one process: who moved, who did not.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::goroutine::{Dump, Form, Name};
use crate::report::{Comparison, PathCount};

use super::scene::Scene;
use super::wait::is_std;

const LISTED: usize = 12;

/// What an earlier dump of the same process adds.
#[derive(Debug, Default)]
pub(super) struct Unmoved {
    /// Goroutines that stand in the same place in both, by number.
    pub(super) same: FxHashSet<u64>,
    /// How many have left the queue of the lock at this address. Nobody gives up waiting for a
    /// lock: whoever has left has had it.
    left_lock: FxHashMap<u64, u64>,
    /// How many that showed no lock have left this stack of the later dump.
    left_stack: FxHashMap<u32, u64>,
    /// Whether there was an earlier dump whose goroutines can be followed.
    pub(super) followed: bool,
}

impl Unmoved {
    /// How many have left a queue since, told by the lock's address and by the stacks in it.
    pub(super) fn left(&self, lock: Option<u64>, stacks: &FxHashSet<u32>) -> u64 {
        let by_lock = lock.and_then(|l| self.left_lock.get(&l)).copied().unwrap_or(0);
        by_lock + stacks.iter().filter_map(|s| self.left_stack.get(s)).sum::<u64>()
    }
}

/// Compares an earlier dump with a later one; `None`: they are not of one process, or the forms
/// cannot be compared.
pub(super) fn compare(earlier: &Dump, later: &Scene<'_>) -> Option<(Comparison, Unmoved)> {
    let numbered = |d: &Dump| matches!(d.form, Form::Debug2 | Form::Debug2Reversed);
    match (numbered(earlier), numbered(later.dump)) {
        (true, true) => by_number(earlier, later),
        _ if earlier.form == later.dump.form && earlier.build_id == later.dump.build_id => {
            by_stack(earlier, later)
        }
        _ => None,
    }
}

/// Whether two dumps in different forms are of one moment: the same functions, about as many
/// goroutines.
pub(super) fn is_same_moment(a: &Dump, b: &Dump) -> bool {
    let (few, many) = (a.shown().min(b.shown()), a.shown().max(b.shown()));
    if a.form == b.form || many - few > many / 10 {
        return false;
    }
    let (x, y) = (program(a), program(b));
    let shared = x.intersection(&y).count();
    shared > 0 && shared * 10 >= x.len().min(y.len()) * 8
}

/// The program's own functions.
fn program(dump: &Dump) -> FxHashSet<&str> {
    dump.functions().map(|(_, f)| f).filter(|f| !is_std(Name::of(f).package)).collect()
}

fn by_number(earlier: &Dump, later: &Scene<'_>) -> Option<(Comparison, Unmoved)> {
    let was: FxHashMap<u64, u32> = earlier.goroutines.iter().map(|g| (g.id, g.stack)).collect();
    // Stacks of the two dumps, by what they say.
    let same = same_stacks(earlier, later.dump);
    let (mut stuck, mut moved, mut kin) = (0, 0, 0);
    let mut unmoved = Unmoved { followed: true, ..Unmoved::default() };
    let mut stuck_by_stack: FxHashMap<u32, u64> = FxHashMap::default();
    for goroutine in &later.dump.goroutines {
        let Some(&before) = was.get(&goroutine.id) else {
            continue;
        };
        let root = |d: &Dump, s: u32| {
            let stack = &d.stacks[s as usize];
            let frame = stack.frames.last().map(|f| d.function(f.function).to_owned());
            (frame, stack.created_by.map(|f| d.function(f).to_owned()))
        };
        if same.get(&goroutine.stack) == Some(&before) {
            kin += 1;
            stuck += 1;
            unmoved.same.insert(goroutine.id);
            *stuck_by_stack.entry(goroutine.stack).or_default() += 1;
        } else {
            kin += u64::from(root(earlier, before) == root(later.dump, goroutine.stack));
            moved += 1;
        }
    }
    // The same numbers in two processes belong to different functions.
    let both = stuck + moved;
    if both == 0 || kin * 2 < both {
        return None;
    }
    let now: FxHashMap<u32, u32> = same.iter().map(|(&now, &before)| (before, now)).collect();
    for goroutine in earlier.goroutines.iter().filter(|g| !unmoved.same.contains(&g.id)) {
        if goroutine.lock() != 0 {
            *unmoved.left_lock.entry(goroutine.lock()).or_default() += 1;
        } else if let Some(&stack) = now.get(&goroutine.stack) {
            *unmoved.left_stack.entry(stack).or_default() += 1;
        }
    }
    let comparison = Comparison {
        first: earlier.input.clone(),
        second: later.dump.input.clone(),
        by_goroutine: true,
        stuck,
        moved,
        arrived: later.dump.goroutines.len() as u64 - both,
        left: (earlier.goroutines.len() as u64).saturating_sub(both),
        stuck_paths: paths(later, stuck_by_stack),
    };
    Some((comparison, unmoved))
}

/// Forms without numbers: a stack that is in both with n and m goroutines has at least no proof
/// against min(n, m) of them not having moved.
fn by_stack(earlier: &Dump, later: &Scene<'_>) -> Option<(Comparison, Unmoved)> {
    let (a, b) = (program(earlier), program(later.dump));
    let shared = a.intersection(&b).count();
    if shared == 0 || shared * 2 < a.len().min(b.len()) {
        return None;
    }
    let same = same_stacks(earlier, later.dump);
    let mut stuck_by_stack: FxHashMap<u32, u64> = FxHashMap::default();
    for (&now, &before) in &same {
        let count =
            later.dump.stacks[now as usize].count.min(earlier.stacks[before as usize].count);
        stuck_by_stack.insert(now, count);
    }
    let stuck = stuck_by_stack.values().sum();
    let comparison = Comparison {
        first: earlier.input.clone(),
        second: later.dump.input.clone(),
        by_goroutine: false,
        stuck,
        moved: 0,
        arrived: later.dump.shown().saturating_sub(stuck),
        left: earlier.shown().saturating_sub(stuck),
        stuck_paths: paths(later, stuck_by_stack),
    };
    Some((comparison, Unmoved::default()))
}

/// Later stack to earlier stack, where they are the same calls at the same places.
fn same_stacks(earlier: &Dump, later: &Dump) -> FxHashMap<u32, u32> {
    let text = |d: &Dump, s: usize| {
        let stack = &d.stacks[s];
        let mut text = String::new();
        for frame in &stack.frames {
            text.push_str(d.function(frame.function));
            text.push('\n');
            text.push_str(d.source(frame.source));
            text.push('\n');
        }
        text.push_str(stack.created_by.map_or("", |f| d.function(f)));
        text.push_str(d.state(stack).unwrap_or(""));
        text
    };
    let was: FxHashMap<String, u32> =
        (0u32..).zip(0..earlier.stacks.len()).map(|(i, s)| (text(earlier, s), i)).collect();
    (0u32..)
        .zip(0..later.stacks.len())
        .filter_map(|(i, s)| was.get(&text(later, s)).map(|&before| (i, before)))
        .collect()
}

fn paths(scene: &Scene<'_>, counts: FxHashMap<u32, u64>) -> Vec<PathCount> {
    let mut counts: Vec<(u32, u64)> = counts.into_iter().filter(|&(_, n)| n > 0).collect();
    counts.sort_by_key(|&(stack, count)| (std::cmp::Reverse(count), stack));
    counts
        .into_iter()
        .take(LISTED)
        .filter_map(|(stack, count)| {
            let &actor = scene.of_stack[stack as usize].first()?;
            let actor = &scene.actors[actor as usize];
            let facts = scene.facts(actor);
            Some(PathCount {
                count,
                wants: facts.wait.what().to_owned(),
                frames: scene.path(actor),
                evidence: Some(scene.evidence(actor, facts.depth)),
            })
        })
        .collect()
}
