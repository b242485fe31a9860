//! When a refused caller should come back.

use std::time::Duration;

const SOONEST: Duration = Duration::from_millis(100);
const LATEST: Duration = Duration::from_secs(30);

/// `drain`, the time the backlog needs to go away, stretched by up to a half and held between
/// `SOONEST` and `LATEST`, so that a crowd refused together does not come back together.
///
/// The stretch of the `nth` refusal follows the golden ratio: successive ones fall evenly over the
/// range, which spreads a crowd better than dice would, and a test can foresee it.
pub(crate) fn retry_after(drain: Duration, nth: u64) -> Duration {
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    let part = nth.wrapping_mul(GOLDEN) as f64 / u64::MAX as f64;
    drain.clamp(SOONEST, LATEST.mul_f64(2.0 / 3.0)).mul_f64(1.0 + part / 2.0).min(LATEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_told_to_come_back_evenly_spread_and_within_bounds() {
        let drain = Duration::from_secs(10);
        let mut quarters = [0; 4];
        for nth in 0..1000 {
            let wait = retry_after(drain, nth);
            assert!((Duration::from_secs(10)..=Duration::from_secs(15)).contains(&wait));
            quarters[((wait - drain).as_secs_f64() / 1.251) as usize] += 1;
        }
        assert!(quarters.iter().all(|part| (240..=260).contains(part)), "{quarters:?}");
        assert!(retry_after(Duration::ZERO, 7) >= SOONEST);
        assert!(retry_after(Duration::MAX, 7) <= LATEST);
    }
}
