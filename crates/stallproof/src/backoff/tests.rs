use proptest::prelude::*;
use tokio::time::advance;

use super::*;

const CURVE: Curve = Curve { first: Duration::from_millis(200), most: Duration::from_secs(30) };
const FORGET: Duration = Duration::from_secs(60);

proptest! {
    #[test]
    fn a_wait_lies_between_half_and_all_of_its_step(attempt in 0_u32..=u32::MAX, chance in 0.0..1.0) {
        let step = CURVE.first.saturating_mul(1 << attempt.saturating_sub(1).min(20)).min(CURVE.most);
        let wait = CURVE.wait(attempt, chance);
        prop_assert!(step / 2 <= wait && wait <= step, "{:?} of {:?}", wait, step);
    }

    #[test]
    fn no_curve_overflows(first in any::<u64>(), most in any::<u64>(), attempt in any::<u32>()) {
        let curve = Curve { first: Duration::from_secs(first), most: Duration::from_secs(most) };
        prop_assert!(curve.wait(attempt, 0.999) <= curve.most.min(LONGEST));
        let backoffs = Backoffs::new(curve, 1, Duration::MAX);
        prop_assert_eq!(backoffs.failed(&0).attempt, 1);
    }

    #[test]
    fn keys_are_bounded(keys in proptest::collection::vec(any::<u16>(), 0..200), limit in 1_usize..20) {
        let backoffs = Backoffs::new(CURVE, limit, FORGET);
        for key in &keys {
            backoffs.failed(key);
        }
        let remembered = keys.iter().collect::<std::collections::HashSet<_>>();
        let remembered = remembered.into_iter().filter(|key| backoffs.failures(key) > 0).count();
        prop_assert!(remembered <= limit);
    }
}

#[test]
fn waits_grow_and_a_success_begins_anew() {
    let mut backoff = Backoff::new(CURVE);
    let waits: Vec<_> = (0..12).map(|_| backoff.failed()).collect();
    assert_eq!(waits[11].attempt, 12);
    // Until the bound, the most of one step is the least of the next.
    assert!(waits.windows(2).take(7).all(|pair| pair[0].wait <= pair[1].wait));
    assert!(waits[11].wait >= CURVE.most / 2);
    backoff.succeeded();
    assert_eq!(backoff.failures(), 0);
    assert!(backoff.failed().wait <= CURVE.first);
}

#[test]
fn a_crowd_does_not_come_back_together() {
    let waits: std::collections::HashSet<_> =
        (0..100).map(|_| Backoff::new(CURVE).failed().wait).collect();
    assert!(waits.len() > 90);
}

#[tokio::test(start_paused = true)]
async fn keys_back_off_alone() {
    let backoffs = Backoffs::new(CURVE, 10, FORGET);
    backoffs.failed(&"a");
    assert_eq!(backoffs.failed(&"a").attempt, 2);
    assert_eq!(backoffs.failed(&"b").attempt, 1);
    backoffs.succeeded(&"a");
    assert_eq!((backoffs.failures(&"a"), backoffs.failures(&"b")), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_key_is_forgotten_after_its_retry_was_due() {
    let backoffs = Backoffs::new(CURVE, 10, FORGET);
    let wait = (0..10).map(|_| backoffs.failed(&"a").wait).last().unwrap();
    advance(wait + FORGET - Duration::from_millis(1)).await;
    assert_eq!(backoffs.failures(&"a"), 10);
    advance(Duration::from_millis(1)).await;
    assert_eq!(backoffs.failures(&"a"), 0);
    assert_eq!(backoffs.failed(&"a").attempt, 1);
}
