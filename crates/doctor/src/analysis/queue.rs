//! Queues: everybody who waits for one lock, told apart by owner, kind and, where arguments show
//! it, by address.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::report::ResourceKind;

use super::owner::Owner;
use super::scene::Scene;
use super::site;
use super::wait::{LockOp, Wait};

/// Which of an owner's locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Key {
    /// The lock's address.
    Lock(u64),
    /// The address of the value that has it.
    Receiver(u64),
    /// Not shown.
    Unknown,
}

/// Those who wait for one lock, or for locks that the form cannot tell apart.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    pub(super) owner: Owner,
    pub(super) kind: ResourceKind,
    pub(super) key: Key,
    /// The lock's offset in its owner.
    pub(super) offset: Option<u64>,
    /// Some of them show no address and are counted here because there is no other.
    pub(super) assumed: bool,
    pub(super) actors: Vec<u32>,
    pub(super) readers: u64,
    pub(super) heads: u64,
    pub(super) queued: u64,
    pub(super) mutex: u64,
    /// Addresses of the values that have the lock.
    pub(super) receivers: FxHashSet<u64>,
    /// Functions that take the lock, with the first line on which they do; zero: not shown.
    pub(super) sites: FxHashMap<u32, u32>,
    /// How many locks these are, where only their site names them.
    pub(super) locks: u64,
    /// They show no common lock, but nothing else can hold them up.
    pub(super) shared: bool,
}

impl Queue {
    pub(super) fn total(&self) -> u64 {
        self.readers + self.heads + self.queued + self.mutex
    }

    /// The lock's address, where it is shown.
    pub(super) fn address(&self) -> Option<String> {
        match self.key {
            Key::Lock(address) => Some(format!("{address:#x}")),
            Key::Receiver(_) | Key::Unknown => None,
        }
    }

    /// How many locks this must at least be: each has but one writer at its head.
    pub(super) fn instances(&self) -> u64 {
        self.heads.max(self.locks)
    }

    fn new(owner: &Owner, kind: ResourceKind, key: Key) -> Self {
        Self {
            owner: owner.clone(),
            kind,
            key,
            offset: None,
            assumed: false,
            actors: Vec::new(),
            readers: 0,
            heads: 0,
            queued: 0,
            mutex: 0,
            receivers: FxHashSet::default(),
            sites: FxHashMap::default(),
            locks: 1,
            shared: false,
        }
    }

    pub(super) fn add(&mut self, scene: &Scene<'_>, i: u32) {
        let actor = &scene.actors[i as usize];
        let facts = scene.facts(actor);
        match facts.wait {
            Wait::Lock(LockOp::Read) => self.readers += actor.count,
            Wait::Lock(LockOp::HeadWrite) => self.heads += actor.count,
            Wait::Lock(LockOp::QueuedWrite) => self.queued += actor.count,
            _ => self.mutex += actor.count,
        }
        if let Some(place) = &facts.place
            && let Some(frame) = scene.stack(actor).frames.get(place.site)
        {
            let line = scene.line(frame);
            let first = self.sites.entry(frame.function).or_insert(line);
            *first = line.min(*first);
        }
        self.actors.push(i);
    }
}

/// All queues of a scene, longest first.
pub(super) fn queues(scene: &Scene<'_>) -> Vec<Queue> {
    let mut by_owner: FxHashMap<(&Owner, ResourceKind), Vec<u32>> = FxHashMap::default();
    for (i, actor) in (0u32..).zip(&scene.actors) {
        let facts = scene.facts(actor);
        let Some(place) = &facts.place else { continue };
        let kind = match facts.wait {
            Wait::Once => ResourceKind::Once,
            Wait::Lock(LockOp::Mutex) => ResourceKind::Mutex,
            _ => ResourceKind::RwMutex,
        };
        by_owner.entry((&place.owner, kind)).or_default().push(i);
    }
    let mut queues: Vec<Queue> = Vec::new();
    for ((owner, kind), mut actors) in by_owner {
        for site in site::apart(scene, &mut actors) {
            let mut queue = Queue::new(&site.owner, kind, Key::Unknown);
            (queue.locks, queue.shared) = (site.locks, site.shared);
            site.actors.iter().for_each(|&a| queue.add(scene, a));
            queues.push(queue);
        }
        queues.extend(split(scene, owner, kind, &actors));
    }
    // The name breaks ties, so that the same dump gives the same report.
    queues.sort_by(|a, b| (b.total(), &a.owner, a.key).cmp(&(a.total(), &b.owner, b.key)));
    queues
}

fn split(scene: &Scene<'_>, owner: &Owner, kind: ResourceKind, actors: &[u32]) -> Vec<Queue> {
    // What each actor shows: the lock, and the receiver with its exactness.
    let shown: Vec<(u64, Option<(u64, bool)>)> = actors
        .iter()
        .map(|&i| {
            let actor = &scene.actors[i as usize];
            let frame = scene.facts(actor).place.as_ref().map_or(0, |p| p.owner_frame);
            let receiver = scene
                .receivers(actor)
                .iter()
                .find(|r| r.frame() == frame)
                .map(|r| (r.address(), r.exact()));
            (actor.lock, receiver)
        })
        .collect();
    let mut offsets: FxHashSet<u64> = FxHashSet::default();
    let mut exact: FxHashSet<u64> = FxHashSet::default();
    for &(lock, receiver) in &shown {
        if let Some((receiver, true)) = receiver {
            exact.insert(receiver);
            offsets.extend(site::offset(lock, receiver));
        }
    }
    let offset = if offsets.len() == 1 { offsets.iter().next().copied() } else { None };
    let key = |lock: u64, receiver: Option<(u64, bool)>| match receiver {
        _ if lock != 0 => Key::Lock(lock),
        // A stale receiver counts where an exact one confirms it.
        Some((receiver, is_exact)) if is_exact || exact.contains(&receiver) => {
            offset.map_or(Key::Receiver(receiver), |o| Key::Lock(receiver + o))
        }
        _ => Key::Unknown,
    };
    let mut keyed: FxHashMap<Key, Vec<(u32, Option<u64>)>> = FxHashMap::default();
    for (&actor, &(lock, receiver)) in actors.iter().zip(&shown) {
        let trusted = receiver.filter(|&(r, is_exact)| is_exact || exact.contains(&r)).map(|r| r.0);
        keyed.entry(key(lock, receiver)).or_default().push((actor, trusted));
    }
    // One known lock: those who show no address wait for it too, as far as anyone can see.
    let mut assumed = false;
    if keyed.len() == 2
        && let Some(unknown) = keyed.remove(&Key::Unknown)
        && let Some(known) = keyed.values_mut().next()
    {
        known.extend(unknown);
        assumed = !matches!(owner, Owner::Variable { .. });
    }
    keyed
        .into_iter()
        .map(|(key, members)| {
            let mut queue = Queue::new(owner, kind, key);
            queue.offset = matches!(key, Key::Lock(_)).then_some(offset).flatten();
            queue.assumed = assumed;
            queue.receivers = members.iter().filter_map(|m| m.1).collect();
            members.iter().for_each(|&(i, _)| queue.add(scene, i));
            queue
        })
        .collect()
}
