//! `Slab<T>`: numbered places that one owner writes and everybody reads.
//!
//! Contract: what `freeze` gives is what there was, for ever. It costs a pointer for each chunk;
//! the first write to a chunk after it copies that chunk, and nothing else. A place that was given
//! back is empty (`T::default`) and is given out again.

use std::sync::Arc;

/// A chunk of rows is copied in well under a microsecond, and a million of them are 8,000 pointers.
const CHUNK: usize = 128;

#[derive(Debug)]
pub(super) struct Slab<T> {
    chunks: Vec<Arc<[T; CHUNK]>>,
    /// Places ever given out.
    used: u32,
    free: Vec<u32>,
}

#[derive(Debug)]
pub(super) struct Frozen<T> {
    chunks: Box<[Arc<[T; CHUNK]>]>,
    used: u32,
}

impl<T: Clone + Default> Slab<T> {
    pub(super) fn new() -> Self {
        Self { chunks: Vec::new(), used: 0, free: Vec::new() }
    }

    /// Places in use.
    pub(super) fn len(&self) -> usize {
        self.used as usize - self.free.len()
    }

    /// Every place in use is below.
    pub(super) fn end(&self) -> u32 {
        self.used
    }

    pub(super) fn insert(&mut self, value: T) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            if self.used as usize == self.chunks.len() * CHUNK {
                self.chunks.push(Arc::new(std::array::from_fn(|_| T::default())));
            }
            self.used += 1;
            self.used - 1
        });
        *self.get_mut(place) = value;
        place
    }

    pub(super) fn remove(&mut self, place: u32) -> T {
        self.free.push(place);
        std::mem::take(self.get_mut(place))
    }

    pub(super) fn get(&self, place: u32) -> &T {
        &self.chunks[place as usize / CHUNK][place as usize % CHUNK]
    }

    pub(super) fn get_mut(&mut self, place: u32) -> &mut T {
        &mut Arc::make_mut(&mut self.chunks[place as usize / CHUNK])[place as usize % CHUNK]
    }

    pub(super) fn freeze(&self) -> Frozen<T> {
        Frozen { chunks: self.chunks.as_slice().into(), used: self.used }
    }

    /// Bytes allocated, those shared with frozen ones included.
    pub(super) fn footprint(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<T>() + self.free.capacity() * size_of::<u32>()
    }
}

impl<T> Frozen<T> {
    pub(super) fn get(&self, place: u32) -> &T {
        &self.chunks[place as usize / CHUNK][place as usize % CHUNK]
    }

    pub(super) fn checked(&self, place: u32) -> Option<&T> {
        (place < self.used).then(|| self.get(place))
    }

    /// All places, empty ones too, of chunks that were written to since `earlier` was frozen.
    pub(super) fn changed_since<'a>(
        &'a self,
        earlier: &'a Self,
    ) -> impl Iterator<Item = (u32, &'a T)> {
        let same = |number: usize| {
            let (now, then) = (self.chunks.get(number), earlier.chunks.get(number));
            now.zip(then).is_some_and(|(now, then)| Arc::ptr_eq(now, then))
        };
        let chunks = self.chunks.iter().enumerate().filter(move |(number, _)| !same(*number));
        let places = chunks.flat_map(|(number, chunk)| {
            (0_u32..)
                .zip(chunk.iter())
                .map(move |(place, it)| ((number * CHUNK) as u32 + place, it))
        });
        places.filter(|(place, _)| *place < self.used)
    }

    /// All places, empty ones too.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        let (full, last) = (self.used as usize / CHUNK, self.used as usize % CHUNK);
        let last = self.chunks.get(full).into_iter().flat_map(move |chunk| &chunk[..last]);
        self.chunks[..full].iter().flat_map(|chunk| chunk.iter()).chain(last)
    }
}

impl<T> Default for Frozen<T> {
    fn default() -> Self {
        Self { chunks: Box::default(), used: 0 }
    }
}

#[cfg(test)]
mod tests;
