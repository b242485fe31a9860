use std::sync::atomic::AtomicU64;

use super::*;

static NOW: AtomicU64 = AtomicU64::new(0);

fn set_clock() -> Moment {
    Duration::from_secs(NOW.load(Ordering::SeqCst))
}

fn token(term: i32) -> Token {
    Token::new(&Id::namespaced("ns", "lease"), "u-1", term)
}

#[test]
fn a_fence_that_ran_out_stays_so() {
    NOW.store(100, Ordering::SeqCst);
    let fence = Fence::new(token(1), Clock::new(set_clock), Duration::from_secs(110));
    assert_eq!(fence.remaining(), Duration::from_secs(10));
    fence.extend(Duration::from_secs(120));
    fence.extend(Duration::from_secs(115));
    assert_eq!(fence.remaining(), Duration::from_secs(20), "it never shrinks");

    NOW.store(120, Ordering::SeqCst);
    assert!(!fence.is_valid());
    fence.extend(Duration::from_secs(200));
    assert!(!fence.is_valid());
    assert!(fence.clip(Deadline::after(Duration::from_secs(1))).is_none());

    let revoked = Fence::endless(token(1), Clock::new(set_clock));
    assert!(revoked.is_valid());
    revoked.revoke();
    revoked.extend(Duration::from_secs(200));
    assert!(!revoked.is_valid());
}

#[test]
fn a_token_reads_back_and_sorts_within_its_lease() {
    for lease in [Id::namespaced("ns", "lease"), Id::cluster("lease")] {
        let token = Token::new(&lease, "u-1", 7);
        assert_eq!(Token::parse(&token.to_string()), Some(token));
    }
    assert_eq!(Token::parse("nonsense"), None);
    assert!(token(2).is_after(&token(1)));
    assert!(!token(1).is_after(&token(1)));
    let again = Token { uid: "u-2".to_owned(), ..token(9) };
    assert!(!again.is_after(&token(1)));
}

#[test]
fn the_clock_goes_forward_and_counts_from_boot() {
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    let now = boot_time();
    assert!(now.as_secs_f64() + 1.0 >= uptime, "{now:?} {uptime}");
    assert!(boot_time() >= now);
}
