use super::*;

fn open(sessions: &Sessions, user: &str) -> OpenedSession {
    sessions.open(&user.into(), Fingerprint::of("stamp"), None, IpAddr::from([192, 0, 2, 1]))
}

#[tokio::test(start_paused = true)]
async fn a_session_is_found_by_its_cookie_until_it_ends() {
    let sessions = Sessions::new();
    let opened = open(&sessions, "ada");
    let found = sessions.find(opened.cookie.expose()).unwrap();
    assert_eq!((&*found.user, found.id), ("ada", opened.id));
    assert!(sessions.find("no such cookie").is_none());
    assert!(sessions.end(opened.id) && !sessions.end(opened.id));
    assert!(sessions.find(opened.cookie.expose()).is_none());
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_ends_and_a_used_one_lives_until_its_longest() {
    let sessions = Sessions::new();
    let (idle, used) = (open(&sessions, "ada"), open(&sessions, "ada"));
    let step = IDLE / 2;
    for _ in 0..4 {
        tokio::time::advance(step).await;
        assert!(sessions.find(used.cookie.expose()).is_some());
    }
    assert!(sessions.find(idle.cookie.expose()).is_none());
    let mut lived = step * 4;
    while lived + step < LONGEST {
        tokio::time::advance(step).await;
        lived += step;
        assert!(sessions.find(used.cookie.expose()).is_some());
    }
    tokio::time::advance(step).await;
    assert!(sessions.find(used.cookie.expose()).is_none());
}

#[tokio::test(start_paused = true)]
async fn looking_does_not_keep_a_session_alive() {
    let sessions = Sessions::new();
    let opened = open(&sessions, "ada");
    for _ in 0..2 {
        assert!(sessions.alive(opened.id).is_some());
        assert_eq!(sessions.of("ada").len(), 1);
        tokio::time::advance(IDLE / 2).await;
    }
    assert!(sessions.alive(opened.id).is_none());
    assert!(sessions.of("ada").is_empty());
}

#[tokio::test(start_paused = true)]
async fn of_too_many_the_idlest_makes_room_and_nobody_elses() {
    let sessions = Sessions::new();
    let other = open(&sessions, "bob");
    let mut own = Vec::new();
    for _ in 0..PER_USER {
        tokio::time::advance(Duration::from_secs(1)).await;
        own.push(open(&sessions, "ada"));
    }
    tokio::time::advance(Duration::from_secs(1)).await;
    // The first was opened earliest, the second is used least lately.
    assert!(sessions.find(own[0].cookie.expose()).is_some());
    open(&sessions, "ada");
    assert_eq!(sessions.of("ada").len(), PER_USER);
    assert!(sessions.find(own[1].cookie.expose()).is_none());
    assert!(sessions.find(own[0].cookie.expose()).is_some());
    assert!(sessions.find(other.cookie.expose()).is_some());
}

#[tokio::test(start_paused = true)]
async fn there_are_never_more_than_the_most_in_all() {
    let sessions = Sessions::new();
    let first = open(&sessions, "first");
    tokio::time::advance(Duration::from_secs(1)).await;
    for n in 0..IN_ALL {
        open(&sessions, &format!("u{n}"));
    }
    assert_eq!(sessions.count(), IN_ALL);
    assert!(sessions.find(first.cookie.expose()).is_none());
}

#[tokio::test(start_paused = true)]
async fn the_dead_make_room_before_the_living() {
    let sessions = Sessions::new();
    for n in 0..IN_ALL - 1 {
        open(&sessions, &format!("u{n}"));
    }
    tokio::time::advance(IDLE).await;
    let living = open(&sessions, "ada");
    open(&sessions, "bob");
    assert_eq!(sessions.count(), 2);
    assert!(sessions.find(living.cookie.expose()).is_some());
}

#[tokio::test(start_paused = true)]
async fn all_of_a_user_can_be_ended_and_those_that_do_not_hold() {
    let sessions = Sessions::new();
    let (bob, eve) = (open(&sessions, "bob"), open(&sessions, "eve"));
    sessions.end_all_of("bob");
    assert!(sessions.find(bob.cookie.expose()).is_none());
    assert!(sessions.find(eve.cookie.expose()).is_some());
    let ada = open(&sessions, "ada");
    sessions.keep(|session| &*session.user == "ada");
    assert!(sessions.find(eve.cookie.expose()).is_none());
    assert!(sessions.find(ada.cookie.expose()).is_some());
    sessions.end(ada.id);
    assert!(sessions.alive.load().users.is_empty(), "a user without sessions is kept");
}

#[test]
fn a_csrf_token_belongs_to_its_cookie_and_does_not_tell_it() {
    let sessions = Sessions::new();
    let (one, other) = (open(&sessions, "ada"), open(&sessions, "ada"));
    assert!(csrf_of(one.cookie.expose()).is(one.csrf.expose()));
    assert!(!csrf_of(one.cookie.expose()).is(other.csrf.expose()));
    assert!(!csrf_of(one.cookie.expose()).is(""));
    assert_ne!(one.csrf.expose(), one.cookie.expose());
    // Nothing that is kept or shown is the cookie.
    let shown = format!("{one:?} {sessions:?} {}", one.id);
    assert!(!shown.contains(one.cookie.expose()) && !shown.contains(one.csrf.expose()));
}
