//! `Snapshot<T>`: a published value that everyone reads and few replace.
//!
//! Contract:
//! - A reader never waits, whatever a writer does; it sees one generation, whole.
//! - Writers are serialised. A writer that panics publishes nothing and blocks nobody.
//! - Generations count up by one, and only when the value changed.
//! - `Changes::changed` never misses the last publish; those in between may be skipped.
//! - An old value is dropped outside the writers' lock, by whoever held it last.
//!
//! For a big map with small updates let `T` hold a [`Map`] and use `update`: cloning the draft costs
//! nothing and the publish costs what changed, where a copied map would cost its whole size.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use crate::sync::Mutex;

/// The map to publish: clones share structure, so a draft of a million entries is free to make.
pub use imbl::HashMap as Map;

/// A handle; clones publish to and read from the same place.
pub struct Snapshot<T>(Arc<Shared<T>>);

struct Shared<T> {
    current: ArcSwap<Generation<T>>,
    /// Held by a writer from reading the current generation until it has published the next.
    writer: Mutex<()>,
    published: Notify,
}

struct Generation<T> {
    number: u64,
    value: T,
}

/// One generation, for as long as it is wanted: it may be kept across an `.await`.
pub struct View<T>(Arc<Generation<T>>);

/// Tells of generations that its holder has not seen.
pub struct Changes<T> {
    snapshot: Snapshot<T>,
    seen: u64,
}

impl<T> Snapshot<T> {
    pub fn new(value: T) -> Self {
        Self(Arc::new(Shared {
            current: ArcSwap::from_pointee(Generation { number: 0, value }),
            writer: Mutex::new(()),
            published: Notify::new(),
        }))
    }

    pub fn load(&self) -> View<T> {
        schedule_here();
        View(self.0.current.load_full())
    }

    /// Reads in place, without touching the value's reference count: for the hottest paths. Keep
    /// `read` short; what takes long belongs on a [`View`].
    pub fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        schedule_here();
        read(&self.0.current.load().value)
    }

    /// Publishes `value` if it differs from the current one; says whether it did. The comparison
    /// may visit all of `value` while other writers wait: for big maps see `update`.
    pub fn publish(&self, value: T) -> bool
    where
        T: PartialEq,
    {
        self.write(|current| if *current == value { Err(value) } else { Ok(value) })
    }

    /// Publishes what `edit` made of a draft of the current value if it answers that it changed
    /// something; says whether it did. Other writers wait meanwhile, so `edit` must not block, nor
    /// write to this snapshot.
    pub fn update(&self, edit: impl FnOnce(&mut T) -> bool) -> bool
    where
        T: Clone,
    {
        self.write(|current| {
            let mut draft = current.clone();
            if edit(&mut draft) { Ok(draft) } else { Err(draft) }
        })
    }

    /// Changes from now on.
    pub fn subscribe(&self) -> Changes<T> {
        Changes { snapshot: self.clone(), seen: self.load().generation() }
    }

    /// `next` answers the value to publish, or the one to throw away.
    fn write(&self, next: impl FnOnce(&T) -> Result<T, T>) -> bool {
        let shared = &*self.0;
        let replaced = {
            let _writing = shared.writer.lock();
            let current = shared.current.load_full();
            next(&current.value).map(|value| {
                schedule_here();
                let number = current.number + 1;
                (shared.current.swap(Arc::new(Generation { number, value })), current)
            })
        };
        if replaced.is_ok() {
            schedule_here();
            shared.published.notify_waiters();
        }
        replaced.is_ok()
    }
}

impl<T> View<T> {
    pub fn generation(&self) -> u64 {
        self.0.number
    }
}

impl<T> Deref for View<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T> Changes<T> {
    /// The newest generation, as soon as there is one that was not seen. It waits for as long as
    /// nobody publishes; dropping the wait loses nothing.
    pub async fn changed(&mut self) -> View<T> {
        loop {
            // A waiter made before the look hears of every publish after it.
            let published = self.snapshot.0.published.notified();
            let view = self.snapshot.load();
            if view.generation() != self.seen {
                self.seen = view.generation();
                return view;
            }
            schedule_here();
            published.await;
        }
    }
}

/// arc-swap and `Notify` are opaque to shuttle: this stands where it may switch threads around them.
#[inline(always)]
fn schedule_here() {
    #[cfg(feature = "shuttle")]
    shuttle::thread::yield_now();
}

impl<T> Clone for Snapshot<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Clone for View<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Default> Default for Snapshot<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for Snapshot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Snapshot").field(&self.load()).finish()
    }
}

impl<T: fmt::Debug> fmt::Debug for View<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("generation", &self.0.number).field("value", &**self).finish()
    }
}

impl<T> fmt::Debug for Changes<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("seen", &self.seen).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(feature = "shuttle")]
mod explore;
#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
