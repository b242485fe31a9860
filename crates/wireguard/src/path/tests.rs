#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

const SOON: Duration = Duration::from_millis(3);

fn path() -> (Path, Instant) {
    let now = Instant::now();
    (Path::new(1420, now), now)
}

#[test]
fn a_way_goes_down_after_three_misses_and_comes_back_after_ten_answers() {
    let (mut path, _) = path();
    assert!(!path.is_down(), "nothing is known yet");
    for missed in [true, true, false, true, true] {
        if missed {
            path.missed();
        } else {
            path.answered(SOON);
        }
        assert!(!path.is_down());
    }
    path.missed();
    assert!(path.is_down());
    for _ in 0..UP_AFTER - 1 {
        path.answered(SOON);
        assert!(path.is_down(), "it flaps");
    }
    path.missed();
    for answers in 1..=UP_AFTER {
        path.answered(SOON);
        assert_eq!(path.is_down(), answers < UP_AFTER);
    }
}

#[test]
fn what_was_lost_while_a_way_was_down_is_no_loss_of_it_now() {
    let (mut path, _) = path();
    path.answered(SOON);
    for _ in 0..20 {
        path.missed();
    }
    assert_eq!(path.status().loss, Some(95));
    for _ in 0..UP_AFTER {
        path.answered(SOON);
    }
    assert_eq!((path.is_down(), path.status().loss), (false, Some(0)));
    path.missed();
    assert_eq!(path.status().loss, Some(10), "what is lost since is");
}

#[test]
fn what_was_lost_before_the_first_answer_is_no_loss() {
    let (mut path, _) = path();
    path.missed();
    path.missed();
    assert_eq!(path.status().loss, Some(20), "nobody knows better yet");
    path.answered(SOON);
    assert_eq!(path.status().loss, Some(0));
}

#[test]
fn a_peer_that_comes_later_is_up_with_its_first_answer() {
    let (mut path, _) = path();
    for _ in 0..DOWN_AFTER {
        path.missed();
    }
    assert!(path.is_down());
    path.answered(SOON);
    assert!(!path.is_down());
}

#[test]
fn loss_is_of_the_last_probes_and_the_round_trip_is_smoothed() {
    let (mut path, _) = path();
    assert_eq!(path.status(), PathStatus::default());
    path.answered(Duration::from_millis(8));
    path.answered(Duration::from_millis(16));
    assert_eq!(path.status().round_trip, Some(Duration::from_millis(9)));
    path.missed();
    path.missed();
    assert_eq!(path.status().loss, Some(20), "two of four, which is too few to say half");
    for _ in 0..WINDOW {
        path.answered(SOON);
    }
    assert_eq!(path.status().loss, Some(0));
}

#[test]
fn the_largest_packet_is_searched_from_above_while_small_ones_come_through() {
    let (mut path, now) = path();
    assert_eq!(path.large(now), None, "nothing has come through yet");
    path.answered(SOON);
    // 1,350 bytes fit.
    let mut tried = Vec::new();
    while let Some(size) = path.large(now) {
        tried.push(size);
        match size <= 1350 {
            true => path.large_answered(size, now),
            false => path.large_missed(size, now),
        }
    }
    let expected = [[1420; 3], [1408; 3], [1392; 3], [1376; 3]].concat();
    assert_eq!(tried[..12], expected);
    assert_eq!((tried[12..].to_vec(), path.narrow()), (vec![1344], Some(1344)));
    // Later the way is wide again.
    let later = now + SEARCH_AGAIN;
    assert_eq!(path.large(later), Some(1420));
    path.large_answered(1420, later);
    assert_eq!((path.narrow(), path.status().mtu), (None, Some(1420)));
}

#[test]
fn a_dead_way_says_nothing_of_sizes() {
    let (mut path, now) = path();
    path.answered(SOON);
    path.missed();
    for _ in 0..20 {
        path.large_missed(1420, now);
    }
    assert_eq!(path.status().mtu, None);
    path.answered(SOON);
    for _ in 0..30 {
        let Some(size) = path.large(now) else { break };
        path.large_missed(size, now);
    }
    assert_eq!(path.narrow(), Some(1280), "the smallest is taken at last");
}

#[test]
fn addresses_follow_from_keys() {
    let key = PublicKey([0xab; 32]);
    assert_eq!(address(key).to_string(), "fd66:6c77:6730:abab:abab:abab:abab:abab");
    assert_eq!(network().to_string(), "fd66:6c77:6730::/48");
    assert!(is_probed(&allowed(key)) && !is_probed(&"fd00::/8".parse().unwrap()));
}
