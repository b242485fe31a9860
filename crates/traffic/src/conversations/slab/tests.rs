use std::sync::Arc;

use super::{CHUNK, Slab};

#[test]
fn what_was_frozen_stays_as_it_was() {
    let mut slab = Slab::new();
    let places: Vec<_> = (0..300_u32).map(|n| slab.insert(n)).collect();
    let frozen = slab.freeze();
    *slab.get_mut(places[1]) = 1000;
    slab.remove(places[299]);
    assert_eq!(frozen.iter().copied().collect::<Vec<_>>(), (0..300).collect::<Vec<_>>());
    assert_eq!((*slab.get(places[1]), *frozen.get(places[1])), (1000, 1));
}

#[test]
fn a_write_copies_its_chunk_and_no_other() {
    let mut slab = Slab::new();
    (0..3 * CHUNK).for_each(|n| _ = slab.insert(n));
    let before = slab.freeze();
    *slab.get_mut(0) = 7;
    *slab.get_mut(1) = 7;
    let after = slab.freeze();
    let shared: Vec<_> =
        before.chunks.iter().zip(&after.chunks).map(|(a, b)| Arc::ptr_eq(a, b)).collect();
    assert_eq!(shared, [false, true, true]);
}

#[test]
fn places_are_used_again() {
    let mut slab = Slab::new();
    let (a, _) = (slab.insert(1), slab.insert(2));
    assert_eq!(slab.remove(a), 1);
    assert_eq!((slab.len(), *slab.get(a)), (1, 0));
    assert_eq!(slab.insert(3), a);
    assert_eq!((slab.len(), slab.end()), (2, 2));
}
