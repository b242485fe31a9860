//! `Slab<T>`: numbered places that one owner writes and everybody reads.
//!
//! ```text
//! spans ──► span: 16 chunks ──► chunk: 128 places
//! ```
//!
//! Contract: what `freeze` gives is what there was, for ever. It costs a pointer for each span; the first
//! write to a chunk after it copies that chunk and the pointers of its span, and nothing else. A place that
//! was given back is empty (`T::default`) and is given out again.

use std::sync::Arc;

/// A chunk of rows is copied in well under a microsecond.
const CHUNK: usize = 128;
/// A million rows are 512 spans: to copy one costs about as much as its part of freezing all of them.
const SPAN: usize = 16;

type Chunk<T> = Arc<[T; CHUNK]>;
/// All but the last are full.
type Span<T> = Arc<Vec<Chunk<T>>>;

#[derive(Debug)]
pub(super) struct Slab<T> {
    spans: Vec<Span<T>>,
    chunks: usize,
    /// Places ever given out.
    used: u32,
    free: Vec<u32>,
}

#[derive(Debug)]
pub(super) struct Frozen<T> {
    spans: Box<[Span<T>]>,
    used: u32,
}

impl<T: Clone + Default> Slab<T> {
    pub(super) fn new() -> Self {
        Self { spans: Vec::new(), chunks: 0, used: 0, free: Vec::new() }
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
            if self.used as usize == self.chunks * CHUNK {
                self.add_chunk();
            }
            self.used += 1;
            self.used - 1
        });
        *self.get_mut(place) = value;
        place
    }

    fn add_chunk(&mut self) {
        if self.chunks.is_multiple_of(SPAN) {
            self.spans.push(Arc::default());
        }
        if let Some(last) = self.spans.last_mut() {
            Arc::make_mut(last).push(Arc::new(std::array::from_fn(|_| T::default())));
            self.chunks += 1;
        }
    }

    pub(super) fn remove(&mut self, place: u32) -> T {
        self.free.push(place);
        std::mem::take(self.get_mut(place))
    }

    pub(super) fn get(&self, place: u32) -> &T {
        let chunk = place as usize / CHUNK;
        &self.spans[chunk / SPAN][chunk % SPAN][place as usize % CHUNK]
    }

    pub(super) fn get_mut(&mut self, place: u32) -> &mut T {
        let chunk = place as usize / CHUNK;
        let span = Arc::make_mut(&mut self.spans[chunk / SPAN]);
        &mut Arc::make_mut(&mut span[chunk % SPAN])[place as usize % CHUNK]
    }

    pub(super) fn freeze(&self) -> Frozen<T> {
        Frozen { spans: self.spans.as_slice().into(), used: self.used }
    }

    /// Bytes allocated, those shared with frozen ones included.
    pub(super) fn footprint(&self) -> usize {
        self.chunks * CHUNK * size_of::<T>() + self.free.capacity() * size_of::<u32>()
    }
}

impl<T> Frozen<T> {
    pub(super) fn get(&self, place: u32) -> &T {
        let chunk = place as usize / CHUNK;
        &self.spans[chunk / SPAN][chunk % SPAN][place as usize % CHUNK]
    }

    pub(super) fn checked(&self, place: u32) -> Option<&T> {
        (place < self.used).then(|| self.get(place))
    }

    /// All places, empty ones too, of chunks that were written to since `earlier` was frozen.
    pub(super) fn changed_since<'a>(
        &'a self,
        earlier: &'a Self,
    ) -> impl Iterator<Item = (u32, &'a T)> {
        let spans = self.spans.iter().enumerate().filter(|(number, span)| {
            earlier.spans.get(*number).is_none_or(|then| !Arc::ptr_eq(span, then))
        });
        let chunks = spans.flat_map(|(number, span)| {
            let earlier = earlier.spans.get(number);
            let is_same = move |place: usize, chunk: &Chunk<T>| {
                let then = earlier.and_then(|span| span.get(place));
                then.is_some_and(|then| Arc::ptr_eq(chunk, then))
            };
            let chunks = span.iter().enumerate();
            chunks
                .filter(move |(place, chunk)| !is_same(*place, chunk))
                .map(move |(place, chunk)| (number * SPAN + place, chunk))
        });
        let places = chunks.flat_map(|(number, chunk)| {
            (0_u32..)
                .zip(chunk.iter())
                .map(move |(place, it)| ((number * CHUNK) as u32 + place, it))
        });
        places.filter(|(place, _)| *place < self.used)
    }

    /// All places, empty ones too.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        let used = self.used as usize;
        self.spans.iter().enumerate().flat_map(move |(span, chunks)| {
            chunks.iter().enumerate().flat_map(move |(chunk, places)| {
                let first = (span * SPAN + chunk) * CHUNK;
                places[..used.saturating_sub(first).min(CHUNK)].iter()
            })
        })
    }
}

impl<T> Default for Frozen<T> {
    fn default() -> Self {
        Self { spans: Box::default(), used: 0 }
    }
}

#[cfg(test)]
mod tests;
