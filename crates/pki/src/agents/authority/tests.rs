use super::*;
use crate::agents::token::Nonce;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A point that no arithmetic is done with.
fn key() -> Vec<u8> {
    let mut key = vec![7; 65];
    key[0] = 4;
    key
}

fn soon() -> Deadline {
    Deadline::after(DAY)
}

async fn token(authority: &Authority, node: Option<&str>) -> MadeToken {
    authority.make_token(node, Duration::from_secs(3600), "ada", soon()).await.unwrap()
}

async fn enrol(authority: &Authority, token: &Token, node: &str) -> Result<Certified, Refused> {
    authority.enrol(token.expose(), node, &key(), soon()).await
}

struct World {
    authority: Authority,
    objects: Objects,
    tasks: Tasks,
    _data: tempfile::TempDir,
}

/// Whether a step was due, which is taken.
async fn step(authority: &Authority, objects: &Objects) -> bool {
    let next = |kept: Option<&Kept>| next(kept, LIFETIME, Timestamp::now());
    authority.state.step(objects, Deadline::after(DAY), next).await.unwrap().is_some()
}

async fn world() -> World {
    let data = tempfile::tempdir().unwrap();
    let tasks = Tasks::new("test");
    let objects = Objects::embedded(&data.path().join("objects"), &tasks).unwrap();
    let authority = Authority::follow(&objects, "fairlead", LIFETIME, &tasks);
    let early = authority.make_token(None, Duration::from_secs(60), "test", soon()).await;
    assert!(matches!(early, Err(NotMade::Refused(Refused::NotYet))), "{early:?}");
    let mut changes = authority.changes();
    assert!(step(&authority, &objects).await);
    while authority.serving().is_none() {
        changes.changed().await;
    }
    assert!(!step(&authority, &objects).await);
    World { authority, objects, tasks, _data: data }
}

#[tokio::test]
async fn a_token_certifies_the_node_that_it_is_for() {
    let World { authority, .. } = world().await;
    let any = token(&authority, None).await.token;
    let MadeToken { token: mine, record, .. } = token(&authority, Some("node-1")).await;
    assert!(record.until > Timestamp::now());
    for token in [&any, &mine] {
        let certified = enrol(&authority, token, "node-1").await.unwrap();
        assert!(certified.certificate.contains("BEGIN CERTIFICATE"));
        assert_eq!(certified.authorities, authority.serving().unwrap().authorities);
    }
    assert_eq!(enrol(&authority, &mine, "node-2").await, Err(Refused::OtherNode));
    let bad = authority.enrol(mine.expose(), "node-1", &[4; 64], soon()).await;
    assert_eq!(bad, Err(Refused::BadKey));
    assert_eq!(enrol(&authority, &mine, "Node 1").await, Err(Refused::BadName));
    let forged = authority.enrol("fl1.a.b.c", "node-1", &key(), soon()).await;
    assert_eq!(forged, Err(Refused::NotOurs));
    let hour = Duration::from_secs(3600);
    let made = authority.make_token(Some("*"), hour, "ada", soon()).await;
    assert!(matches!(made, Err(NotMade::Refused(Refused::BadName))), "{made:?}");
    let made = authority.make_token(None, 8 * DAY, "ada", soon()).await;
    assert!(matches!(made, Err(NotMade::Refused(Refused::BadTtl))), "{made:?}");
}

#[tokio::test]
async fn one_token_is_revoked_on_every_replica_and_the_others_hold() {
    let World { authority, objects, tasks, _data } = world().await;
    let replica = Authority::follow(&objects, "fairlead", LIFETIME, &tasks);
    let lost = token(&authority, None).await;
    let other = token(&authority, None).await;
    let listed = authority.tokens().unwrap();
    assert_eq!(listed.len(), 2);
    assert!(listed.contains(&(lost.id.clone(), lost.record.clone())), "{listed:?}");
    assert_eq!(lost.record.by, "ada");
    assert!(!format!("{listed:?}").contains(lost.token.expose()));
    enrol(&authority, &lost.token, "node-1").await.unwrap();

    authority.revoke_token(&lost.id, soon()).await.unwrap();
    assert_eq!(enrol(&authority, &lost.token, "node-2").await, Err(Refused::Revoked));
    enrol(&authority, &other.token, "node-2").await.unwrap();
    assert_eq!(authority.tokens().unwrap().len(), 1);
    let again = authority.revoke_token(&lost.id, soon()).await;
    assert!(matches!(again, Err(NotRevokedToken::Unknown(_))), "{again:?}");

    // It may be behind by all that was done: one token is also what there was at first.
    let mut changes = replica.changes();
    while replica.tokens().is_none_or(|tokens| tokens != authority.tokens().unwrap()) {
        changes.changed().await;
    }
    assert_eq!(enrol(&replica, &lost.token, "node-2").await, Err(Refused::Revoked));
}

#[tokio::test]
async fn a_token_that_another_replica_made_a_moment_ago_counts_and_one_that_nobody_kept_does_not() {
    let World { authority, objects, .. } = world().await;
    // Its watch is over: it hears of nothing.
    let deaf = Tasks::new("deaf");
    let replica = Authority::follow(&objects, "fairlead", LIFETIME, &deaf);
    let mut changes = replica.changes();
    while replica.serving().is_none() {
        changes.changed().await;
    }
    deaf.shutdown(Duration::from_secs(5)).await;
    let made = token(&authority, Some("node-1")).await;
    assert_eq!(replica.tokens(), Some(vec![]));
    enrol(&replica, &made.token, "node-1").await.unwrap();

    let now = Timestamp::now();
    let claim = Claim { nonce: Nonce::new(), made: now, until: now + DAY, node: None };
    let kept = authority.state.current().read(Clone::clone).unwrap();
    let genuine = claim.sign(&kept.token_key.bytes(), &kept.pin().unwrap());
    assert_eq!(enrol(&authority, &genuine, "node-1").await, Err(Refused::Revoked));
}

#[tokio::test]
async fn a_node_that_enrols_too_often_is_told_when_to_come_back() {
    let World { authority, .. } = world().await;
    let any = token(&authority, None).await.token;
    for _ in 0..10 {
        enrol(&authority, &any, "node-1").await.unwrap();
    }
    let refused = enrol(&authority, &any, "node-1").await.unwrap_err();
    assert!(matches!(refused, Refused::TooOften(_)), "{refused:?}");
    enrol(&authority, &any, "node-2").await.unwrap();
}

#[test]
fn a_token_that_has_expired_is_forgotten() {
    let now = Timestamp::now();
    let mut kept = next(None, LIFETIME, now).unwrap().unwrap();
    let record = |until| TokenRecord { node: None, made: now, until, by: String::new() };
    kept.tokens.insert("over".to_owned(), record(now - DAY));
    kept.tokens.insert("lives".to_owned(), record(now + DAY));
    let next = next(Some(&kept), LIFETIME, now).unwrap().unwrap();
    assert_eq!(next.tokens.keys().collect::<Vec<_>>(), ["lives"]);
    assert_eq!(super::next(Some(&next), LIFETIME, now).unwrap(), None);
}

#[tokio::test]
async fn a_token_expires() {
    let World { authority, .. } = world().await;
    let now = Timestamp::now();
    let until = now - Duration::from_secs(1);
    let claim = Claim { nonce: Nonce::new(), made: now - DAY, until, node: None };
    let kept = authority.state.current().read(Clone::clone).unwrap();
    let token = claim.sign(&kept.token_key.bytes(), &kept.pin().unwrap());
    assert_eq!(enrol(&authority, &token, "node-1").await, Err(Refused::Expired));
}

#[tokio::test]
async fn what_was_given_before_a_revocation_is_worth_nothing_on_any_replica() {
    let World { authority, objects, tasks, _data } = world().await;
    let any = token(&authority, None).await.token;
    let of_other = token(&authority, Some("node-2")).await;
    let bearer = Bearer { node: "node-1".into(), given: Timestamp::now() };
    let other = Bearer { node: "node-2".into(), given: bearer.given };
    assert!(authority.holds(&bearer));
    let replica = Authority::follow(&objects, "fairlead", LIFETIME, &tasks);
    let mut changes = replica.changes();
    authority.revoke("node-1", Deadline::after(DAY)).await.unwrap();
    while replica.serving().is_none() || replica.holds(&bearer) {
        changes.changed().await;
    }
    for authority in [&authority, &replica] {
        assert!(!authority.holds(&bearer) && authority.holds(&other));
        assert_eq!(authority.renew(&bearer, &key()), Err(Refused::Revoked));
        assert_eq!(enrol(authority, &any, "node-1").await, Err(Refused::Revoked));
        // Nor as somebody else, by the token for any node that it may have kept.
        assert_eq!(enrol(authority, &any, "node-2").await, Err(Refused::Revoked));
        assert!(enrol(authority, &of_other.token, "node-2").await.is_ok());
        let left = authority.tokens().unwrap();
        assert_eq!(left, [(of_other.id.clone(), of_other.record.clone())]);
    }
    // Two of one millisecond are one moment.
    tokio::time::sleep(Duration::from_millis(2)).await;
    let later = token(&authority, Some("node-1")).await.token;
    assert!(enrol(&authority, &later, "node-1").await.is_ok());
    let bearer = Bearer { given: Timestamp::now(), ..bearer };
    assert!(authority.holds(&bearer) && authority.renew(&bearer, &key()).is_ok());
}

#[tokio::test]
async fn a_certificate_holds_no_longer_than_it_lives() {
    let World { authority, .. } = world().await;
    let given = |ago: Duration| Bearer { node: "a".into(), given: Timestamp::now() - ago };
    assert!(authority.holds(&given(LIFETIME - Duration::from_secs(60))));
    assert!(!authority.holds(&given(LIFETIME)));
}

#[test]
fn a_revocation_is_kept_until_all_that_it_speaks_of_has_expired() {
    let now = Timestamp::now();
    let mut kept = next(None, LIFETIME, now).unwrap().unwrap();
    kept.revoked.insert("old".to_owned(), now - LONGEST_TTL - DAY);
    kept.revoked.insert("young".to_owned(), now - LONGEST_TTL);
    let next = next(Some(&kept), LIFETIME, now).unwrap().unwrap();
    assert_eq!(next.revoked.keys().collect::<Vec<_>>(), ["young"]);
    assert_eq!(next.certificates, kept.certificates);
    assert_eq!(super::next(Some(&next), LIFETIME, now).unwrap(), None);
}

#[test]
fn a_new_authority_serves_only_after_every_agent_has_renewed() {
    let now = Timestamp::now();
    let first = next(None, LIFETIME, now).unwrap().unwrap();
    // Two thirds of two years.
    let aged = now + 500 * DAY;
    let mut kept = first.clone();
    while let Some(step) = next(Some(&kept), LIFETIME, aged).unwrap() {
        kept = step;
    }
    assert_ne!(kept.certificates.bundle(), first.certificates.bundle());
    assert_eq!(kept.pin(), first.pin());
    let soon = next(Some(&kept), LIFETIME, aged + LIFETIME).unwrap();
    assert_eq!(soon.unwrap_or(kept.clone()).pin(), first.pin());
    let later = next(Some(&kept), LIFETIME, aged + LIFETIME + 2 * DAY).unwrap().unwrap();
    assert_ne!(later.pin(), first.pin());
    assert!(later.certificates.bundle().contains(&first.certificates.signer().certificate));
}

#[test]
fn secrets_are_not_shown() {
    let kept = next(None, LIFETIME, Timestamp::now()).unwrap().unwrap();
    let shown = format!("{kept:?}");
    assert!(!shown.contains(&kept.token_key.0) && !shown.contains("PRIVATE KEY"), "{shown}");
}

#[test]
fn a_bearer_is_read_from_its_own_name_alone() {
    let bearer = Bearer { node: "a.b-c".into(), given: Timestamp::from_second(1).unwrap() };
    assert_eq!(Bearer::parse(&bearer.uri()), Some(bearer));
    for wrong in ["", "fairlead:agent:", "fairlead:agent:1:", "fairlead:agent:x:a", "http://a/1:b"]
    {
        assert_eq!(Bearer::parse(wrong), None, "{wrong}");
    }
}
