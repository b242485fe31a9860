use proptest::prelude::*;

use super::*;

const IDLE: Load = Load { agents: 10, busy: 0.0, refused: false };

fn after(mut interval: Duration, load: Load, seconds: usize) -> Duration {
    for _ in 0..seconds {
        interval = next(interval, load);
    }
    interval
}

#[test]
fn it_grows_at_once_and_comes_back_slowly() {
    let refused = Load { refused: true, ..IDLE };
    assert_eq!(after(SHORTEST, refused, 7), LONGEST);
    assert_eq!(after(SHORTEST, Load { busy: 0.9, ..IDLE }, 7), LONGEST);
    assert!(after(LONGEST, IDLE, 10) > LONGEST / 2);
    assert_eq!(after(LONGEST, IDLE, 60), SHORTEST);
}

#[test]
fn what_is_just_right_stays() {
    let busy = Load { busy: 0.5, ..IDLE };
    assert_eq!(after(Duration::from_secs(20), busy, 100), Duration::from_secs(20));
}

#[test]
fn many_agents_report_less_often() {
    assert_eq!(after(SHORTEST, Load { agents: 5000, ..IDLE }, 1), SHORTEST);
    assert_eq!(after(SHORTEST, Load { agents: 10_000, ..IDLE }, 1), Duration::from_secs(10));
    assert_eq!(after(SHORTEST, Load { agents: 1_000_000, ..IDLE }, 1), LONGEST);
}

proptest! {
    #[test]
    fn it_is_always_within_its_bounds(
        loads in proptest::collection::vec((0usize..1_000_000, 0.0f64..2.0, any::<bool>()), 0..50),
    ) {
        let mut interval = SHORTEST;
        for (agents, busy, refused) in loads {
            interval = next(interval, Load { agents, busy, refused });
            prop_assert!((SHORTEST..=LONGEST).contains(&interval));
        }
    }
}
