use std::time::Duration;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Insert { key: u8, life: u64 },
    Remove { key: u8 },
    Wait { seconds: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u8..12, 0_u64..20).prop_map(|(key, life)| Step::Insert { key, life }),
        1 => (0_u8..12).prop_map(|key| Step::Remove { key }),
        1 => (0_u64..8).prop_map(|seconds| Step::Wait { seconds }),
    ]
}

proptest! {
    /// Against a plain list: bounded, never a dead value, and only the soonest to end makes room.
    #[test]
    fn behaves_like_a_list_that_drops_the_soonest(
        limit in 1_usize..6,
        steps in proptest::collection::vec(step(), 0..80),
    ) {
        let mut now = Instant::now();
        let mut map = Expiring::new(limit);
        let mut list: Vec<(Instant, u8, usize)> = vec![];
        for (at, step) in steps.into_iter().enumerate() {
            match step {
                Step::Insert { key, life } => {
                    let end = now + Duration::from_secs(life);
                    let _displaced = map.insert(key, at, end, now);
                    list.retain(|(end, other, _)| *other != key && now < *end);
                    list.sort_by_key(|(end, ..)| *end);
                    if list.len() == limit {
                        list.remove(0);
                    }
                    list.push((end, key, at));
                }
                Step::Remove { key } => {
                    map.remove(&key);
                    list.retain(|(_, other, _)| *other != key);
                }
                Step::Wait { seconds } => now += Duration::from_secs(seconds),
            }
            prop_assert!(map.entries.len() <= limit);
            prop_assert_eq!(map.entries.len(), map.by_end.len());
            for key in 0..12 {
                let expected = list.iter().find(|(end, other, _)| *other == key && now < *end);
                prop_assert_eq!(map.get(&key, now), expected.map(|(.., value)| value));
            }
            let alive = list.iter().filter(|(end, ..)| now < *end).count();
            prop_assert_eq!(map.iter(now).count(), alive);
        }
    }
}

#[test]
fn the_dead_are_cleared_away_as_others_come() {
    let now = Instant::now();
    let later = now + Duration::from_secs(60);
    let mut map = Expiring::new(1000);
    for key in 0..100 {
        assert!(map.insert(key, (), now + Duration::from_secs(1), now).is_empty());
    }
    for key in 100..150 {
        assert_eq!(map.insert(key, (), later + Duration::from_secs(1), later).len(), 2);
    }
    assert_eq!(map.entries.len(), 50);
}
