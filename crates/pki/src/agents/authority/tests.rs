use super::*;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A point that no arithmetic is done with.
fn key() -> Vec<u8> {
    let mut key = vec![7; 65];
    key[0] = 4;
    key
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
    assert_eq!(authority.token(None, Duration::from_secs(60)).unwrap_err(), Refused::NotYet);
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
    let hour = Duration::from_secs(3600);
    let (any, _) = authority.token(None, hour).unwrap();
    let (mine, until) = authority.token(Some("node-1"), hour).unwrap();
    assert!(until > Timestamp::now());
    for token in [&any, &mine] {
        let certified = authority.enrol(token.expose(), "node-1", &key()).unwrap();
        assert!(certified.certificate.contains("BEGIN CERTIFICATE"));
        assert_eq!(certified.authorities, authority.serving().unwrap().authorities);
    }
    assert_eq!(authority.enrol(mine.expose(), "node-2", &key()), Err(Refused::OtherNode));
    assert_eq!(authority.enrol(mine.expose(), "node-1", &[4; 64]), Err(Refused::BadKey));
    assert_eq!(authority.enrol(mine.expose(), "Node 1", &key()), Err(Refused::BadName));
    assert_eq!(authority.enrol("fl1.a.b.c", "node-1", &key()), Err(Refused::NotOurs));
    assert_eq!(authority.token(Some("*"), hour).unwrap_err(), Refused::BadName);
    assert_eq!(authority.token(None, 8 * DAY).unwrap_err(), Refused::BadTtl);
}

#[tokio::test]
async fn a_token_expires() {
    let World { authority, .. } = world().await;
    let now = Timestamp::now();
    let claim = Claim { made: now - DAY, until: now - Duration::from_secs(1), node: None };
    let kept = authority.state.current().read(Clone::clone).unwrap();
    let token = claim.sign(&kept.token_key.bytes(), 1, &kept.pin().unwrap());
    assert_eq!(authority.enrol(token.expose(), "node-1", &key()), Err(Refused::Expired));
}

#[tokio::test]
async fn what_was_given_before_a_revocation_is_worth_nothing_on_any_replica() {
    let World { authority, objects, tasks, _data } = world().await;
    let hour = Duration::from_secs(3600);
    let (token, _) = authority.token(None, hour).unwrap();
    let (of_other, _) = authority.token(Some("node-2"), hour).unwrap();
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
        assert_eq!(authority.enrol(token.expose(), "node-1", &key()), Err(Refused::Revoked));
        // Nor as somebody else, by the token for any node that it may have kept.
        assert_eq!(authority.enrol(token.expose(), "node-2", &key()), Err(Refused::Revoked));
        assert!(authority.enrol(of_other.expose(), "node-2", &key()).is_ok());
    }
    // Two of one millisecond are one moment.
    tokio::time::sleep(Duration::from_millis(2)).await;
    let (token, _) = authority.token(Some("node-1"), hour).unwrap();
    assert!(authority.enrol(token.expose(), "node-1", &key()).is_ok());
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
