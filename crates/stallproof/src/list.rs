//! A doubly linked list threaded through the entries of a `Slab`, so that whoever waits in a queue
//! can leave it from the middle in constant time, and leaves nothing behind.
//!
//! An entry may stand in several lists at once, one per `Links` it owns; each method is told which
//! by `links`.

use slab::Slab;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Links {
    before: Option<usize>,
    after: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct List {
    front: Option<usize>,
    back: Option<usize>,
    len: usize,
}

impl List {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn front(&self) -> Option<usize> {
        self.front
    }

    pub(crate) fn back(&self) -> Option<usize> {
        self.back
    }

    pub(crate) fn push_back<T>(
        &mut self,
        slab: &mut Slab<T>,
        at: usize,
        links: fn(&mut T) -> &mut Links,
    ) {
        *links(&mut slab[at]) = Links { before: self.back, after: None };
        match self.back {
            Some(back) => links(&mut slab[back]).after = Some(at),
            None => self.front = Some(at),
        }
        self.back = Some(at);
        self.len += 1;
    }

    pub(crate) fn push_front<T>(
        &mut self,
        slab: &mut Slab<T>,
        at: usize,
        links: fn(&mut T) -> &mut Links,
    ) {
        *links(&mut slab[at]) = Links { before: None, after: self.front };
        match self.front {
            Some(front) => links(&mut slab[front]).before = Some(at),
            None => self.back = Some(at),
        }
        self.front = Some(at);
        self.len += 1;
    }

    /// Takes out `at`, which must stand in this list.
    pub(crate) fn remove<T>(
        &mut self,
        slab: &mut Slab<T>,
        at: usize,
        links: fn(&mut T) -> &mut Links,
    ) {
        let Links { before, after } = std::mem::take(links(&mut slab[at]));
        match before {
            Some(before) => links(&mut slab[before]).after = after,
            None => self.front = after,
        }
        match after {
            Some(after) => links(&mut slab[after]).before = before,
            None => self.back = before,
        }
        self.len -= 1;
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
