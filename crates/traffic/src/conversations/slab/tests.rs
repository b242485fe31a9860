use std::sync::Arc;

use super::{CHUNK, Frozen, SPAN, Slab};

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

/// Whether each chunk of two is the same memory.
fn shared(a: &Frozen<usize>, b: &Frozen<usize>) -> Vec<bool> {
    let chunks =
        |it: &Frozen<usize>| it.spans.iter().flat_map(|it| it.to_vec()).collect::<Vec<_>>();
    chunks(a).iter().zip(&chunks(b)).map(|(a, b)| Arc::ptr_eq(a, b)).collect()
}

#[test]
fn a_write_copies_its_chunk_and_no_other() {
    let mut slab = Slab::new();
    (0..3 * CHUNK).for_each(|n| _ = slab.insert(n));
    let before = slab.freeze();
    *slab.get_mut(0) = 7;
    *slab.get_mut(1) = 7;
    let after = slab.freeze();
    assert_eq!(shared(&before, &after), [false, true, true]);
}

#[test]
fn spans_without_a_write_are_shared_whole() {
    let mut slab = Slab::new();
    let places = 3 * SPAN * CHUNK + 5;
    (0..places).for_each(|n| _ = slab.insert(n));
    let before = slab.freeze();
    let written = (SPAN * CHUNK + CHUNK + 9) as u32;
    *slab.get_mut(written) = 7;
    slab.insert(places);
    let after = slab.freeze();
    let same: Vec<_> =
        before.spans.iter().zip(&after.spans).map(|(a, b)| Arc::ptr_eq(a, b)).collect();
    assert_eq!(same, [true, false, true, false]);
    assert_eq!(shared(&before, &after).iter().filter(|same| !**same).count(), 2);
    // What changed is found in those alone, and all of it is there, from both ends.
    let changed: Vec<_> = after.changed_since(&before).map(|(place, _)| place).collect();
    let chunk = written / CHUNK as u32 * CHUNK as u32;
    let last = (3 * SPAN * CHUNK) as u32;
    let expected: Vec<_> = (chunk..chunk + CHUNK as u32).chain(last..last + 6).collect();
    assert_eq!(changed, expected);
    assert_eq!(before.iter().copied().collect::<Vec<_>>(), (0..places).collect::<Vec<_>>());
    assert!(before.iter().rev().copied().eq((0..places).rev()));
    assert_eq!(after.iter().count(), places + 1);
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
