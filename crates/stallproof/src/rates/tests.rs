use super::*;

const EVERY: Duration = Duration::from_secs(60);

#[test]
fn one_that_comes_again_and_again_is_told_to_wait_and_no_other_is() {
    let (rates, now) = (Rates::<String>::new(10, EVERY, 100), Instant::now());
    for _ in 0..10 {
        rates.take("loop", now).unwrap();
    }
    assert_eq!(rates.take("loop", now), Err(EVERY));
    rates.take("other", now).unwrap();
    rates.take("loop", now + EVERY).unwrap();
    assert_eq!(rates.take("loop", now + EVERY), Err(EVERY));
    rates.take("loop", now + 20 * EVERY).unwrap();
}

#[test]
fn keys_that_somebody_makes_up_take_bounded_memory_and_are_forgotten() {
    let (rates, now) = (Rates::<u32>::new(2, EVERY, 100), Instant::now());
    for key in 0..100 {
        rates.take(&key, now).unwrap();
    }
    assert_eq!(rates.take(&100, now), Err(EVERY));
    rates.take(&1, now).unwrap();
    rates.take(&100, now + 2 * EVERY).unwrap();
    assert!(rates.due.lock().len() < 8);
}
