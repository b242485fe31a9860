use super::{Pair, Row};

#[test]
fn rows_and_pairs_are_small() {
    assert_eq!((size_of::<Row>(), size_of::<Pair>()), (48, 48));
}
