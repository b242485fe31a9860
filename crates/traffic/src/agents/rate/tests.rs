use super::*;

#[test]
fn a_burst_passes_and_then_one_at_a_time() {
    let (rate, due) = (Rate::new(Duration::from_millis(500), 3), AtomicU64::new(0));
    for _ in 0..3 {
        assert_eq!(rate.admit(&due, 1000), Ok(()));
    }
    assert_eq!(rate.admit(&due, 1000), Err(Duration::from_millis(500)));
    assert_eq!(rate.admit(&due, 1499), Err(Duration::from_millis(1)));
    assert_eq!(rate.admit(&due, 1500), Ok(()));
    assert_eq!(rate.admit(&due, 1500), Err(Duration::from_millis(500)));
}

#[test]
fn who_was_quiet_has_the_whole_burst_again_and_not_more() {
    let (rate, due) = (Rate::new(Duration::from_millis(500), 3), AtomicU64::new(0));
    (0..3).for_each(|_| rate.admit(&due, 0).unwrap());
    (0..3).for_each(|_| rate.admit(&due, 1_000_000).unwrap());
    assert!(rate.admit(&due, 1_000_000).is_err());
}

#[test]
fn no_pace_refuses_nobody() {
    let (rate, due) = (Rate::new(Duration::ZERO, 1), AtomicU64::new(0));
    (0..1000).for_each(|_| rate.admit(&due, 5).unwrap());
}
