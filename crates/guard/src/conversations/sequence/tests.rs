use std::collections::BTreeSet;

use proptest::prelude::*;

use super::Window;

#[test]
fn a_gap_is_never_acknowledged() {
    let mut window = Window::default();
    for n in [1, 2, 4, 5] {
        window.mark(n);
    }
    assert_eq!(window.through(), 2);
    assert!(window.has(4) && !window.has(3));
    window.mark(3);
    assert_eq!(window.through(), 5);
}

#[test]
fn a_full_window_moves_on_at_once() {
    let mut window = Window::default();
    (2..=128).for_each(|n| window.mark(n));
    assert_eq!(window.through(), 0);
    window.mark(1);
    assert_eq!((window.through(), window.has(128), window.has(129)), (128, true, false));
    window.mark(u64::MAX);
    assert!(!window.has(u64::MAX));
}

proptest! {
    #[test]
    fn a_window_is_a_set_within_its_reach(marks in prop::collection::vec(1_u64..100, 0..200)) {
        let mut window = Window::default();
        let mut set = BTreeSet::new();
        for n in marks {
            window.mark(n);
            set.insert(n);
            let through = (1..).find(|n| !set.contains(n)).unwrap() - 1;
            prop_assert_eq!(window.through(), through);
            for n in 1..100 {
                prop_assert_eq!(window.has(n), set.contains(&n));
            }
        }
    }
}
