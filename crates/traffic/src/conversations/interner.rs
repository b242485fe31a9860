//! `Interner`: names by number, for rows that have no room for text.
//!
//! Never given back: there are as many applications and rules as people have thought of, and past
//! the bound a name has no number.

use std::sync::Arc;

use rustc_hash::FxHashMap;

#[derive(Clone, Debug)]
pub(super) struct Interner {
    names: Arc<Vec<Arc<str>>>,
    numbers: FxHashMap<Arc<str>, u16>,
    most: u16,
}

impl Interner {
    pub(super) fn new(most: u16) -> Self {
        Self { names: Arc::default(), numbers: FxHashMap::default(), most }
    }

    /// From 1 on; 0 is no name, or one too many.
    pub(super) fn number(&mut self, name: &Arc<str>) -> u16 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let Some(number) = u16::try_from(self.names.len() + 1).ok().filter(|n| *n <= self.most)
        else {
            return 0;
        };
        Arc::make_mut(&mut self.names).push(Arc::clone(name));
        self.numbers.insert(Arc::clone(name), number);
        number
    }

    pub(super) fn name(&self, number: u16) -> Option<&Arc<str>> {
        nth(&self.names, number)
    }

    pub(super) fn freeze(&self) -> Arc<Vec<Arc<str>>> {
        Arc::clone(&self.names)
    }
}

pub(super) fn nth(names: &[Arc<str>], number: u16) -> Option<&Arc<str>> {
    names.get(usize::from(number).checked_sub(1)?)
}
