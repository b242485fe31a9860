//! Whose lock it is: a type's field or a package's variable, seen through wrappers.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::goroutine::{Dump, Name, Stack};

use super::wait::{Wait, classify};

/// Whose lock it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Owner {
    /// A field of a type.
    Type { package: String, name: String },
    /// A package's variable, named after its wrapper.
    Variable { package: String, name: String },
    /// A variable of a package or of a function in it.
    Package { package: String },
    /// Not the receiver's; only the function that takes it is known.
    Site { symbol: String },
    /// Nothing of the program shows.
    Unnamed,
}

impl Owner {
    /// Whether a frame of this name works on what the lock guards.
    pub(super) fn covers(&self, name: &Name<'_>) -> bool {
        match self {
            Self::Type { package, name: owner } => {
                name.package == package && name.receiver == Some(owner.as_str())
            }
            Self::Variable { package, .. } | Self::Package { package } => name.package == package,
            Self::Site { symbol } => Name::of(symbol) == *name,
            Self::Unnamed => false,
        }
    }

    /// `cache.cacheMutex`, `main.Cache`.
    pub(super) fn short(&self) -> String {
        let last = |p: &str| p.rsplit('/').next().unwrap_or(p).to_owned();
        match self {
            Self::Type { package, name } | Self::Variable { package, name } => {
                format!("{}.{name}", last(package))
            }
            Self::Package { package } => format!("package {}", last(package)),
            Self::Site { symbol } => Name::short(symbol).to_owned(),
            Self::Unnamed => "an unnamed value".to_owned(),
        }
    }

    pub(super) fn package(&self) -> Option<&str> {
        match self {
            Self::Type { package, .. }
            | Self::Variable { package, .. }
            | Self::Package { package } => Some(package),
            Self::Site { symbol } => Some(Name::of(symbol).package),
            Self::Unnamed => None,
        }
    }
}

/// Where a lock is taken: its owner, and the frames that matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) owner: Owner,
    /// The frame whose receiver has the lock.
    pub(super) owner_frame: usize,
    /// The first frame that is not a wrapper: what wanted the lock.
    pub(super) site: usize,
}

/// Functions that only take a lock for their caller.
#[derive(Debug, Default)]
pub(super) struct Wrappers(FxHashSet<u32>);

impl Wrappers {
    /// Learns them from a whole dump: by name, or by shape. A wrapper returns as soon as it has
    /// the lock, so it is never seen but directly above one, and it serves callers of many kinds.
    pub(super) fn learn(dump: &Dump) -> Self {
        #[derive(Default)]
        struct Seen {
            at_lock: u64,
            elsewhere: u64,
            callers: FxHashSet<u32>,
        }
        let mut seen: FxHashMap<u32, Seen> = FxHashMap::default();
        for stack in &dump.stacks {
            let (wait, depth) = classify(dump, stack);
            let locked = matches!(wait, Wait::Lock(_));
            for (i, frame) in stack.frames.iter().enumerate().skip(depth) {
                let entry = seen.entry(frame.function).or_default();
                if locked && i == depth {
                    entry.at_lock += stack.count;
                    entry.callers.extend(stack.frames.get(i + 1).map(|f| f.function));
                } else {
                    entry.elsewhere += stack.count;
                }
            }
        }
        // A helper of a type's own: only its methods call it, at least three of them, and it is
        // seen nowhere but on its way to the lock.
        let serves_its_type = |name: &Name<'_>, seen: &Seen| {
            seen.elsewhere == 0
                && seen.callers.len() >= 3
                && name.function.starts_with(|c: char| c.is_lowercase())
                && seen.callers.iter().all(|&f| {
                    let caller = Name::of(dump.function(f));
                    !caller.closure
                        && (caller.package, caller.receiver) == (name.package, name.receiver)
                })
        };
        let owners = |callers: &FxHashSet<u32>| {
            callers
                .iter()
                .map(|&f| {
                    let name = Name::of(dump.function(f));
                    (name.package, name.receiver)
                })
                .collect::<FxHashSet<_>>()
                .len()
        };
        Self(
            seen.iter()
                .filter(|(function, seen)| {
                    let name = Name::of(dump.function(**function));
                    seen.at_lock > 0
                        && (is_wrapper(&name)
                            || serves_its_type(&name, seen)
                            || (seen.elsewhere == 0
                                && seen.callers.len() >= 4
                                && owners(&seen.callers) >= 3))
                })
                .map(|(&function, _)| function)
                .collect(),
        )
    }
}

/// Whether a name says that the function is a lock, or takes one for its caller.
pub(super) fn is_wrapper(name: &Name<'_>) -> bool {
    is_lock_type(name) || stem(name.function).is_some() || is_door(name.function)
}

/// `enter`, `lockState`, `acquireLock`: a helper that takes a lock for its caller, by its first
/// word. Exported ones do more: `Enter` may be a whole operation.
fn is_door(function: &str) -> bool {
    ["enter", "lock", "rlock", "acquire"].iter().any(|word| {
        function
            .strip_prefix(word)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(|c: char| c.is_uppercase()))
    })
}

fn is_lock_type(name: &Name<'_>) -> bool {
    name.receiver.is_some_and(|receiver| {
        let lower = receiver.to_ascii_lowercase();
        lower.ends_with("mutex") || lower.ends_with("lock") || lower.ends_with("locker")
    })
}

/// `cacheMutex` of `cacheMutexRLock`; empty for a plain `lock`.
pub(super) fn stem(function: &str) -> Option<&str> {
    let lower = function.to_ascii_lowercase();
    if ["unlock", "block", "clock", "deadlock"].iter().any(|word| lower.ends_with(word)) {
        return None;
    }
    ["readlock", "writelock", "rwlock", "rlock", "wlock", "lock"]
        .iter()
        .find_map(|suffix| lower.strip_suffix(suffix))
        .map(|stem| &function[..stem.len()])
}

/// Where the stack takes the lock that it waits for. `depth` as [`classify`] gives it.
pub(super) fn place(dump: &Dump, stack: &Stack, depth: usize, wrappers: &Wrappers) -> Place {
    let name_at = |i: usize| stack.frames.get(i).map(|f| Name::of(dump.function(f.function)));
    let is_wrapped = |i: usize| {
        stack.frames.get(i).is_some_and(|f| {
            wrappers.0.contains(&f.function) || is_wrapper(&Name::of(dump.function(f.function)))
        })
    };
    let mut site = depth;
    while is_wrapped(site) && site + 1 < stack.frames.len() {
        site += 1;
    }
    // A type that is itself a lock belongs to whoever uses it.
    let mut at = depth;
    while at < site && name_at(at).is_some_and(|n| is_lock_type(&n)) {
        at += 1;
    }
    let owner = match name_at(at) {
        None => match stack.created_by.map(|f| Name::of(dump.function(f))) {
            Some(name) => Owner::Package { package: name.package.to_owned() },
            None => Owner::Unnamed,
        },
        Some(name) => match (name.receiver, stem(name.function)) {
            (Some(receiver), _) if name.pointer => {
                Owner::Type { package: name.package.to_owned(), name: receiver.to_owned() }
            }
            (None, Some(variable)) if !variable.is_empty() => {
                Owner::Variable { package: name.package.to_owned(), name: variable.to_owned() }
            }
            _ => Owner::Package { package: name.package.to_owned() },
        },
    };
    Place { owner, owner_frame: at, site }
}
