use super::*;

#[tokio::test(start_paused = true)]
async fn an_answer_counts_once_for_the_browser_that_began() {
    let states = LoginStates::new();
    let begun = states.begin("corp");
    let cookie = begun.cookie.expose();
    assert!(states.answer("corp", cookie, "another").is_none());
    assert!(states.answer("other", cookie, &begun.state).is_none());
    let stranger = states.begin("corp");
    assert!(states.answer("corp", stranger.cookie.expose(), &begun.state).is_none());
    let answered = states.answer("corp", cookie, &begun.state).expect("its own");
    assert!(answered.nonce.is(&begun.nonce));
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(answered.verifier.expose()));
    assert_eq!(challenge, begun.challenge);
    assert!(states.answer("corp", cookie, &begun.state).is_none(), "replayed");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_late_or_from_before_a_restart_does_not_count() {
    let states = LoginStates::new();
    let begun = states.begin("corp");
    assert!(LoginStates::new().answer("corp", begun.cookie.expose(), &begun.state).is_none());
    tokio::time::advance(LASTS).await;
    assert!(states.answer("corp", begun.cookie.expose(), &begun.state).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_cookie_cannot_be_made_to_last_longer() {
    let states = LoginStates::new();
    let begun = states.begin("corp");
    let longer = format!("9{}", begun.cookie.expose());
    assert!(states.answer("corp", &longer, &begun.state).is_none());
    for odd in ["", ".", "..", "1..", "a.b.c", "💥.💥.💥"] {
        assert!(states.answer("corp", odd, odd).is_none(), "{odd:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_used_is_remembered_within_a_bound() {
    let states = LoginStates::new();
    for _ in 0..USED + 10 {
        let begun = states.begin("corp");
        assert!(states.answer("corp", begun.cookie.expose(), &begun.state).is_some());
    }
    assert_eq!(states.used.lock().len(), USED);
}
