use super::*;

fn issue(codes: &Codes, user: &str) -> Secret {
    codes.issue(&user.into(), Fingerprint::of("stamp"))
}

#[tokio::test(start_paused = true)]
async fn a_code_works_once() {
    let codes = Codes::new();
    let code = issue(&codes, "ada");
    assert_eq!(&*codes.redeem(code.expose()).unwrap().user, "ada");
    assert!(codes.redeem(code.expose()).is_none());
    assert!(codes.redeem("").is_none());
}

#[tokio::test(start_paused = true)]
async fn an_old_code_does_not_work() {
    let codes = Codes::new();
    let code = issue(&codes, "ada");
    tokio::time::advance(LASTS).await;
    assert!(codes.redeem(code.expose()).is_none());
}

#[tokio::test(start_paused = true)]
async fn the_oldest_code_of_the_same_user_makes_room() {
    let codes = Codes::new();
    let other = issue(&codes, "bob");
    let own: Vec<_> = (0..=PER_USER).map(|_| issue(&codes, "ada")).collect();
    assert!(codes.redeem(own[0].expose()).is_none());
    assert!(codes.redeem(own[1].expose()).is_some());
    assert!(codes.redeem(other.expose()).is_some());

    let first = issue(&codes, "first");
    for n in 0..IN_ALL {
        issue(&codes, &format!("u{n}"));
    }
    assert_eq!(codes.0.lock().len(), IN_ALL);
    assert!(codes.redeem(first.expose()).is_none());
}
