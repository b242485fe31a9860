use std::net::IpAddr;

use proptest::prelude::*;

use super::*;
use crate::session::{CLI_IDLE, CLI_LONGEST, Sessions};

fn opened(sessions: &Sessions) -> CliCredential {
    sessions.open_cli(&"ann".into(), Fingerprint::of("stamp"), None, IpAddr::from([192, 0, 2, 1]))
}

#[tokio::test(start_paused = true)]
async fn an_access_token_is_valid_for_minutes_and_the_next_one_takes_over() {
    let sessions = Sessions::new();
    let first = opened(&sessions);
    assert!(sessions.by_access_token(first.access.expose()).is_some());
    tokio::time::advance(ACCESS).await;
    assert!(sessions.by_access_token(first.access.expose()).is_none());
    let (second, session) = sessions.rotate(first.refresh.expose()).expect("the next pair");
    assert_eq!(session.id, first.session);
    assert_eq!(sessions.by_access_token(second.access.expose()).unwrap().id, first.session);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_token_that_comes_twice_ends_the_whole_family() {
    let sessions = Sessions::new();
    let first = opened(&sessions);
    let (second, _) = sessions.rotate(first.refresh.expose()).unwrap();
    let (third, _) = sessions.rotate(second.refresh.expose()).unwrap();
    assert!(sessions.by_access_token(third.access.expose()).is_some());
    // The thief comes with the oldest of all.
    assert!(sessions.rotate(first.refresh.expose()).is_none());
    for credential in [&first, &second, &third] {
        assert!(sessions.by_access_token(credential.access.expose()).is_none());
        assert!(sessions.rotate(credential.refresh.expose()).is_none());
    }
    assert_eq!(sessions.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_only_looks_like_a_token_ends_nothing() {
    let sessions = Sessions::new();
    let ours = opened(&sessions);
    let other = opened(&sessions);
    let (head, proof) = other.refresh.expose().rsplit_once('.').unwrap();
    let own_head = ours.refresh.expose().rsplit_once('.').unwrap().0;
    let forged = [
        format!("{own_head}.{proof}"),
        format!("{head}."),
        format!("{own_head}."),
        ours.refresh.expose().replace(".0.", ".1."),
        ours.access.expose().replace("fls_", "flr_"),
        ours.refresh.expose().replace("flr_", "fls_"),
    ];
    for forged in &forged {
        assert!(sessions.rotate(forged).is_none(), "{forged}");
        assert!(sessions.by_access_token(forged).is_none(), "{forged}");
    }
    assert!(sessions.by_access_token(ours.access.expose()).is_some());
    assert!(sessions.rotate(ours.refresh.expose()).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_command_line_that_is_not_used_is_logged_out() {
    let sessions = Sessions::new();
    let credential = opened(&sessions);
    tokio::time::advance(CLI_IDLE).await;
    assert!(sessions.rotate(credential.refresh.expose()).is_none());
    let mut credential = opened(&sessions);
    let days = CLI_LONGEST.as_secs() / 86_400;
    for _ in 0..days - 1 {
        tokio::time::advance(Duration::from_secs(86_400)).await;
        credential = sessions.rotate(credential.refresh.expose()).expect("in use").0;
    }
    tokio::time::advance(Duration::from_secs(86_400)).await;
    assert!(sessions.rotate(credential.refresh.expose()).is_none(), "however much it is used");
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "(fls_|flr_)?[-_.A-Za-z0-9\u{1f600}]{0,200}") {
        let _ = parse(TokenKind::Access, &text);
        let _ = parse(TokenKind::Refresh, &text);
    }
}
