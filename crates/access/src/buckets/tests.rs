use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn three_then_one_a_second(keys: usize) -> Buckets<u32> {
    Buckets::new(Rate { burst: 3, every: SECOND }, keys)
}

#[tokio::test(start_paused = true)]
async fn a_burst_and_then_one_in_a_while_and_the_wait_is_told() {
    let buckets = three_then_one_a_second(10);
    for _ in 0..3 {
        assert_eq!(buckets.take(&1), Ok(()));
    }
    assert_eq!(buckets.take(&1), Err(SECOND));
    tokio::time::advance(SECOND / 4).await;
    assert_eq!(buckets.take(&1), Err(SECOND * 3 / 4));
    tokio::time::advance(SECOND * 3 / 4).await;
    assert_eq!(buckets.take(&1), Ok(()));
    assert_eq!(buckets.take(&1), Err(SECOND));
}

#[tokio::test(start_paused = true)]
async fn who_is_refused_owes_no_more_for_it() {
    let buckets = three_then_one_a_second(10);
    for _ in 0..100 {
        let _ = buckets.take(&1);
    }
    tokio::time::advance(SECOND * 3).await;
    assert_eq!((0..10).filter(|_| buckets.take(&1).is_ok()).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn keys_do_not_share() {
    let buckets = three_then_one_a_second(10);
    while buckets.take(&1).is_ok() {}
    assert_eq!(buckets.take(&2), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_can_be_taken_again() {
    let buckets = three_then_one_a_second(10);
    while buckets.take(&1).is_ok() {}
    buckets.give_back(&1);
    assert_eq!((buckets.take(&1).is_ok(), buckets.take(&1).is_ok()), (true, false));
    buckets.reset(&1);
    assert_eq!((0..10).filter(|_| buckets.take(&1).is_ok()).count(), 3);
    buckets.give_back(&7);
    assert_eq!(buckets.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_keys_stays_within_the_bound_and_frees_the_lightest() {
    let buckets = three_then_one_a_second(100);
    while buckets.take(&0).is_ok() {}
    for key in 1..10_000 {
        assert_eq!(buckets.take(&key), Ok(()));
        assert!(buckets.len() <= 100);
    }
    assert!(buckets.take(&0).is_err(), "the heaviest was forgotten");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_has_paid_costs_nothing() {
    let buckets = three_then_one_a_second(100);
    for key in 0..100 {
        let _ = buckets.take(&key);
    }
    tokio::time::advance(SECOND * 2).await;
    for key in 100..160 {
        let _ = buckets.take(&key);
    }
    assert!(buckets.len() <= 60, "{}", buckets.len());
}
