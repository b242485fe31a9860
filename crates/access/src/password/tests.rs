use super::*;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

#[tokio::test]
async fn the_right_password_verifies_and_no_other() {
    let tasks = Tasks::new("test");
    let passwords = Passwords::new(&tasks);
    let hash = passwords.hash(Secret::new("correct horse battery"), soon()).await.unwrap();
    // OWASP's parameters, in the string itself.
    assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
    assert_eq!(check_stored(&hash), Ok(()));
    let verify = async |password: &str| {
        passwords.verify(Secret::new(password), Some(hash.clone()), soon()).await
    };
    assert_eq!(verify("correct horse battery").await, Ok(true));
    assert_eq!(verify("correct horse batterz").await, Ok(false));
    assert_eq!(verify("").await, Ok(false));
    let unknown = passwords.verify(Secret::new("correct horse battery"), None, soon()).await;
    assert_eq!(unknown, Ok(false));
    let again = passwords.hash(Secret::new("correct horse battery"), soon()).await.unwrap();
    assert_ne!(hash, again, "the salt is the same");
}

#[tokio::test(start_paused = true)]
async fn who_waits_too_long_and_who_finds_no_room_are_told() {
    let tasks = Tasks::new("test");
    let passwords = Passwords::new(&tasks);
    let _running = passwords.at_once.clone().acquire_many_owned(AT_ONCE as u32).await.unwrap();
    let _within = passwords.within.clone().acquire_many_owned(AT_ONCE as u32).await.unwrap();
    let verify = || {
        let deadline = Deadline::after(Duration::from_secs(5));
        let passwords = passwords.clone();
        async move { passwords.verify(Secret::new("x"), None, deadline).await }
    };
    let waiting: Vec<_> = (0..WAITING).map(|_| tasks.spawn("waits", verify())).collect();
    while passwords.within.available_permits() > 0 {
        tokio::task::yield_now().await;
    }
    assert!(matches!(verify().await, Err(PasswordUnchecked::Busy { .. })));
    for waited in waiting {
        assert_eq!(waited.await, Ok(Err(PasswordUnchecked::TooLate)));
    }
    assert_eq!(passwords.within.available_permits(), WAITING);
}

#[test]
fn a_new_password_is_long_and_varied_and_not_the_name() {
    let check = |password: &str| check_new("ada", &Secret::new(password));
    assert_eq!(check("correct horse"), Ok(()));
    assert_eq!(check("elevenchars"), Err(WeakPassword::TooShort));
    assert_eq!(check(""), Err(WeakPassword::TooShort));
    assert_eq!(check("aaaaaaaaaaaaaa"), Err(WeakPassword::TooPlain));
    assert_eq!(check("hello-ADA-hello"), Err(WeakPassword::ContainsName));
    assert_eq!(check(&"correct horse".repeat(100)), Err(WeakPassword::TooLong));
    // Characters, not bytes.
    assert_eq!(check("ääöößüéèçñ"), Err(WeakPassword::TooShort));
    assert_eq!(check("ääöößüéèçñûô"), Ok(()));
    // "al" is in half of all words.
    assert_eq!(check_new("al", &Secret::new("always the same")), Ok(()));
}

#[test]
fn a_stored_hash_that_would_take_the_machine_is_not_verified() {
    let phc = |algorithm: &str, params: &str| {
        format!("${algorithm}$v=19${params}$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNo")
    };
    assert_eq!(check_stored(&phc("argon2id", "m=19456,t=2,p=1")), Ok(()));
    for (hash, why) in [
        (phc("argon2id", "m=4194304,t=2,p=1"), "more than"),
        (phc("argon2id", "m=19456,t=1000000,p=1"), "more than"),
        (phc("argon2i", "m=19456,t=2,p=1"), "not argon2id"),
        ("$argon2id$v=19$m=19456,t=2,p=1".to_owned(), "no salt"),
        ("secret".to_owned(), "PHC"),
    ] {
        let problem = check_stored(&hash).unwrap_err();
        assert!(problem.contains(why), "{hash}: {problem}");
    }
}
