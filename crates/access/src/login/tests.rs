use super::*;

fn address(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

/// Tries until it is refused: how many went through, and the wait.
fn guess(limits: &LoginLimits, user: &str, from: IpAddr) -> (u32, Duration) {
    let mut tries = 0;
    loop {
        match limits.attempt(user, from) {
            Ok(_) => tries += 1,
            Err(wait) => return (tries, wait),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_guesses_is_told_when_to_come_back_and_may_then() {
    let limits = LoginLimits::new();
    let (tries, wait) = guess(&limits, "ada", address(1));
    assert_eq!((tries, wait), (PAIR.burst, PAIR.every));
    tokio::time::advance(wait).await;
    assert!(limits.attempt("ada", address(1)).is_ok());
    assert!(limits.attempt("ada", address(1)).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_success_forgives_the_mistakes_before_it() {
    let limits = LoginLimits::new();
    for _ in 1..PAIR.burst {
        let _ = limits.attempt("ada", address(1)).unwrap();
    }
    limits.attempt("ada", address(1)).unwrap().succeeded();
    assert_eq!(guess(&limits, "ada", address(1)).0, PAIR.burst);
}

#[tokio::test(start_paused = true)]
async fn one_address_cannot_try_every_user() {
    let limits = LoginLimits::new();
    let tried = (0..1000).filter(|n| limits.attempt(&format!("u{n}"), address(1)).is_ok()).count();
    assert_eq!(tried, ADDRESS.burst as usize);
    assert!(limits.attempt("ada", address(2)).is_ok());
}

#[tokio::test(start_paused = true)]
async fn many_addresses_cannot_try_one_user_at_will() {
    let limits = LoginLimits::new();
    let tried = (0..=255).filter(|n| limits.attempt("ada", address(*n)).is_ok()).count();
    assert_eq!(tried, USER.burst as usize);
}

#[tokio::test(start_paused = true)]
async fn who_is_under_attack_still_gets_in_from_where_they_were_before() {
    let limits = LoginLimits::new();
    limits.attempt("ada", address(1)).unwrap().succeeded();
    for hour in 0..24 {
        // From everywhere, against ada and against everybody.
        for n in 2..=255 {
            let _ = limits.attempt("ada", address(n));
            let _ = limits.attempt(&format!("u{n}"), IpAddr::from([198, 51, 100, n]));
        }
        assert!(limits.attempt("ada", address(250)).is_err());
        let attempt = limits.attempt("ada", address(1));
        attempt.unwrap_or_else(|wait| panic!("hour {hour}: {wait:?}")).succeeded();
        for n in 2..=255 {
            let _ = limits.attempt("ada", address(n));
        }
        tokio::time::advance(Duration::from_secs(3600)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_attack_everybody_gets_in_from_anywhere() {
    let limits = LoginLimits::new();
    for n in 2..=255 {
        let _ = limits.attempt("ada", address(n));
    }
    let wait = limits.attempt("ada", address(1)).unwrap_err();
    assert!(wait <= USER.every);
    tokio::time::advance(wait).await;
    assert!(limits.attempt("ada", address(1)).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_try_that_did_not_happen_is_not_counted() {
    let limits = LoginLimits::new();
    for _ in 0..1000 {
        limits.attempt("ada", address(1)).unwrap().did_not_happen();
    }
    assert_eq!(guess(&limits, "ada", address(1)).0, PAIR.burst);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_by_one_limit_costs_nothing_of_the_others() {
    let limits = LoginLimits::new();
    for _ in 0..1000 {
        let _ = limits.attempt("ada", address(1));
    }
    // Of the address, five were used up, not a thousand.
    let others = (0..100).filter(|n| limits.attempt(&format!("u{n}"), address(1)).is_ok()).count();
    assert_eq!(others, (ADDRESS.burst - PAIR.burst) as usize);
}

#[test]
fn an_ipv6_customer_is_one_address() {
    let net = |text: &str| network(text.parse().unwrap());
    assert_eq!(net("2001:db8:1:2:3:4:5:6"), net("2001:db8:1:2:ffff::1"));
    assert_ne!(net("2001:db8:1:2::1"), net("2001:db8:1:3::1"));
    assert_eq!(net("::ffff:192.0.2.1"), net("192.0.2.1"));
    assert_ne!(net("192.0.2.1"), net("192.0.2.2"));
}
