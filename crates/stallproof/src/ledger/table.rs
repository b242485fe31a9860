//! A short list of names that only grows: found without a lock, bounded, the last slot for the rest.

use std::sync::OnceLock;

/// The name that all share who came when the table was full.
pub(super) const OTHER: &str = "other";

pub(super) struct Table<T, const N: usize>([OnceLock<(&'static str, T)>; N]);

impl<T, const N: usize> Default for Table<T, N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| OnceLock::new()))
    }
}

impl<T, const N: usize> Table<T, N> {
    /// Finds `name`, or adds what `make` makes of its index and name.
    pub(super) fn get_or_add(
        &self,
        name: &'static str,
        make: impl Fn(usize, &'static str) -> T,
    ) -> &T {
        let (last, slots) = self.0.split_last().expect("a table has at least one slot");
        for (index, slot) in slots.iter().enumerate() {
            let (held_by, value) = slot.get_or_init(|| (name, make(index, name)));
            if *held_by == name {
                return value;
            }
        }
        &last.get_or_init(|| (OTHER, make(N - 1, OTHER))).1
    }

    /// In the order of their indices.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.named().map(|(_, value)| value)
    }

    pub(super) fn named(&self) -> impl Iterator<Item = (&'static str, &T)> {
        self.0.iter().map_while(OnceLock::get).map(|(name, value)| (*name, value))
    }
}
