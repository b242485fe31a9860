use std::collections::VecDeque;

use proptest::prelude::*;
use slab::Slab;

use super::{Links, List};

fn in_order(list: &List, slab: &Slab<Links>) -> Vec<usize> {
    std::iter::successors(list.front(), |at| slab[*at].after).collect()
}

proptest! {
    #[test]
    fn a_list_is_a_queue_that_can_be_left_from_the_middle(
        steps in prop::collection::vec(
            (prop::option::of(any::<prop::sample::Index>()), any::<bool>()),
            0..80,
        ),
    ) {
        let (mut slab, mut list, mut model) = (Slab::new(), List::default(), VecDeque::new());
        for (leaves, in_front) in steps {
            match leaves {
                Some(index) if !model.is_empty() => {
                    let at = model.remove(index.index(model.len())).expect("index is in range");
                    list.remove(&mut slab, at, |links| links);
                    slab.remove(at);
                }
                _ => {
                    let at = slab.insert(Links::default());
                    if in_front {
                        list.push_front(&mut slab, at, |links| links);
                        model.push_front(at);
                    } else {
                        list.push_back(&mut slab, at, |links| links);
                        model.push_back(at);
                    }
                }
            }
            prop_assert_eq!(in_order(&list, &slab), Vec::from(model.clone()));
            prop_assert_eq!(list.back(), model.back().copied());
            prop_assert_eq!(list.len(), model.len());
            prop_assert_eq!(list.is_empty(), model.is_empty());
        }
    }
}
