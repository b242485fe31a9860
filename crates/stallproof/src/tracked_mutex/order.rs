//! The order in which classes of locks are taken, learned as the program runs (debug builds only).
//!
//! Two orders that close a circle can deadlock, if not this time then some other; so the second one
//! to be seen panics, which any test that takes both paths will find, on one thread too.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use parking_lot::Mutex;

use super::locks::Site;

type Class = &'static str;

/// Where `first` was taken, and where `then` was taken under it.
#[derive(Clone, Copy)]
struct Seen {
    first: (Class, Site),
    then: (Class, Site),
}

/// Class to the classes taken while it was held, with the first place where that was seen.
static ORDER: Mutex<BTreeMap<Class, BTreeMap<Class, Seen>>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// The locks this thread holds.
    static HELD: RefCell<Vec<(u64, Class, Site)>> = const { RefCell::new(Vec::new()) };
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

/// A lock in the list of its thread.
pub(super) struct Held(u64);

impl Held {
    pub(super) fn new(class: Class, site: Site) -> Self {
        let number = NEXT.replace(NEXT.get() + 1);
        HELD.with_borrow_mut(|held| held.push((number, class, site)));
        Self(number)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.with_borrow_mut(|held| held.retain(|(number, ..)| *number != self.0));
    }
}

/// Panics if waiting for a lock of `class` now goes against an order seen before.
pub(super) fn check(class: Class, site: Site) {
    // A second panic would hide the first.
    if std::thread::panicking() {
        return;
    }
    let held = HELD.with_borrow(Vec::clone);
    for (_, first, first_site) in held {
        let now = Seen { first: (first, first_site), then: (class, site) };
        if let Err(report) = learn(now) {
            panic!("{report}");
        }
    }
}

fn learn(now: Seen) -> Result<(), String> {
    let (first, then) = (now.first.0, now.then.0);
    let mut order = ORDER.lock();
    if first != then && order.get(first).is_some_and(|after| after.contains_key(then)) {
        return Ok(());
    }
    if let Some(path) = path(&order, then, first) {
        return Err(report(now, &path));
    }
    order.entry(first).or_default().insert(then, now);
    Ok(())
}

/// How `to` comes to be taken while `from` is held, if it does.
fn path(
    order: &BTreeMap<Class, BTreeMap<Class, Seen>>,
    from: Class,
    to: Class,
) -> Option<Vec<Seen>> {
    let mut visited = BTreeSet::new();
    let mut paths = vec![(from, Vec::new())];
    while let Some((class, path)) = paths.pop() {
        if class == to {
            return Some(path);
        }
        if visited.insert(class) {
            for (next, seen) in order.get(class).into_iter().flatten() {
                paths.push((next, [path.as_slice(), &[*seen]].concat()));
            }
        }
    }
    None
}

fn report(now: Seen, before: &[Seen]) -> String {
    let (first, then) = (now.first.0, now.then.0);
    let mut report = if first == then {
        format!("lock order: two locks of class `{first}` at once")
    } else {
        format!("lock order: `{first}` and `{then}` are taken in both orders")
    };
    let mut line = |when: &str, seen: &Seen| {
        let ((first, first_site), (then, then_site)) = (seen.first, seen.then);
        write!(report, "\n  {when}: `{first}` taken at {first_site}, then `{then}` at {then_site}")
            .expect("a string takes any text");
    };
    line("now", &now);
    before.iter().for_each(|seen| line("before", seen));
    report
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
