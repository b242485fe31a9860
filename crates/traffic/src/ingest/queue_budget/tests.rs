use super::QueueBudget;

#[test]
fn there_is_room_until_it_is_taken_and_again_when_it_is_given_back() {
    let budget = QueueBudget::new(100);
    let first = budget.reserve(60).unwrap();
    assert!(budget.reserve(50).is_none());
    let second = budget.reserve(40).unwrap();
    assert_eq!(budget.reserved(), 100);
    drop(first);
    assert_eq!(budget.reserved(), 40);
    assert!(budget.reserve(60).is_some());
    drop(second);
    assert_eq!(budget.reserved(), 0);
}

#[test]
fn what_is_larger_than_the_room_has_it_alone() {
    let budget = QueueBudget::new(100);
    let large = budget.reserve(1000).unwrap();
    assert!(budget.reserve(1).is_none());
    drop(large);
    let small = budget.reserve(1).unwrap();
    assert!(budget.reserve(1000).is_none());
    drop(small);
}
