use super::*;

fn failure(n: u8) -> LoginFailure {
    let from = Some(IpAddr::from([192, 0, 2, n]));
    LoginFailure { outcome: "wrong", from, user: Some("ada".to_owned()) }
}

fn counts(taken: &[FoldedFailures]) -> Vec<u64> {
    taken.iter().map(|folded| folded.count).collect()
}

#[test]
fn the_first_is_due_at_once_and_the_others_together_a_window_later() {
    let (mut logins, now, at) = (FailedLogins::default(), Instant::now(), Timestamp::UNIX_EPOCH);
    assert_eq!(logins.due(), None);
    assert!(logins.add(failure(1), now, at));
    assert_eq!(logins.due(), Some(now));
    assert_eq!(counts(&logins.take(now, false)), [1]);
    for second in 1..=1000 {
        assert!(!logins.add(failure(1), now, Timestamp::from_second(second).unwrap()));
    }
    assert!(logins.take(now + WINDOW / 2, false).is_empty());
    let taken = logins.take(now + WINDOW, false);
    assert_eq!(counts(&taken), [1000]);
    let seconds = (taken[0].first.as_second(), taken[0].last.as_second());
    assert_eq!(seconds, (1, 1000));
    // A window without any: it is forgotten, and the next one is the first again.
    assert!(logins.take(now + WINDOW * 2, false).is_empty());
    assert_eq!(logins.due(), None);
    assert!(logins.add(failure(1), now + WINDOW * 2, at));
}

#[test]
fn a_flood_from_everywhere_is_a_few_lines_and_loses_no_count() {
    let (mut logins, now, at) = (FailedLogins::default(), Instant::now(), Timestamp::UNIX_EPOCH);
    let (mut lines, mut counted) = (0, 0);
    for n in 0..100_000_u32 {
        let from = Some(IpAddr::from(n.to_be_bytes()));
        let user = Some(format!("user-{}", n % 997));
        logins.add(LoginFailure { outcome: "wrong", from, user }, now, at);
        let taken = logins.take(now, false);
        lines += taken.len();
        counted += counts(&taken).iter().sum::<u64>();
    }
    assert_eq!(lines, KINDS + 1);
    let rest = logins.take(now + WINDOW, false);
    assert_eq!((rest.len(), rest[0].failure.from), (1, None));
    assert_eq!(counted + counts(&rest).iter().sum::<u64>(), 100_000);
}

#[test]
fn what_is_counted_is_not_lost_at_the_end() {
    let (mut logins, now, at) = (FailedLogins::default(), Instant::now(), Timestamp::UNIX_EPOCH);
    logins.add(failure(1), now, at);
    logins.take(now, false);
    logins.add(failure(1), now, at);
    logins.add(failure(1), now, at);
    assert_eq!(counts(&logins.take(now, true)), [2]);
}
