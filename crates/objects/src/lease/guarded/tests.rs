use std::time::Duration;

use super::super::fence::{Clock, boot_time};
use super::super::tests::memory_store::MemoryStore;
use super::*;
use crate::Deletion;
use crate::kinds::{Cluster, ClusterStatus};
use crate::kubernetes::tests::{cluster, soon};

fn fence(term: i32) -> Fence {
    let token = Token::new(&Id::namespaced("ns", "lease"), "u-1", term);
    Fence::new(token, Clock::new(boot_time), boot_time() + Duration::from_secs(1000))
}

fn stamped(object: &Cluster) -> &str {
    &object.annotations()[ANNOTATION]
}

fn with_status(name: &str, state: &str) -> Cluster {
    let status = ClusterStatus { state: state.to_owned(), ..ClusterStatus::default() };
    Cluster { status: Some(status), ..cluster(name) }
}

fn is_refused<T: std::fmt::Debug>(answer: Result<T, Error>) -> bool {
    matches!(answer.unwrap_err(), Error::Forbidden { .. })
}

#[tokio::test]
async fn every_write_carries_the_token() {
    let store = MemoryStore::default();
    let (plain, leader) = (store.objects(), store.objects().guarded(&fence(4)));
    let token = "ns/lease/u-1/4";
    assert_eq!(stamped(&leader.create(&cluster("a"), soon()).await.unwrap()), token);
    for _ in 0..2 {
        let applied = leader.apply(&cluster("b"), Expected::Any, soon()).await.unwrap();
        assert_eq!(stamped(&applied), token);
    }
    plain.create(&cluster("c"), soon()).await.unwrap();
    for state in ["one", "two"] {
        let status = with_status("c", state);
        let told = leader.apply_status(&status, Expected::Any, soon()).await.unwrap();
        assert_eq!((stamped(&told), &told.status), (token, &status.status));
    }
}

#[tokio::test]
async fn what_a_later_leader_wrote_is_left_alone() {
    let store = MemoryStore::default();
    let (old, new) = (store.objects().guarded(&fence(4)), store.objects().guarded(&fence(5)));
    let made = old.create(&cluster("a"), soon()).await.unwrap();
    let newer = new.apply_status(&with_status("a", "new"), Expected::Any, soon()).await.unwrap();
    assert_eq!(stamped(&newer), "ns/lease/u-1/5");

    let at = Expected::Version(Version(newer.resource_version().unwrap()));
    let id = Id::of(&made);
    for expected in [Expected::Any, at] {
        assert!(is_refused(old.apply(&cluster("a"), expected.clone(), soon()).await));
        let status = with_status("a", "old");
        assert!(is_refused(old.apply_status(&status, expected.clone(), soon()).await));
        assert!(is_refused(old.delete::<Cluster>(&id, expected, soon()).await));
    }
    assert_eq!(old.get::<Cluster>(&id, soon()).await.unwrap(), Some(newer), "reading is free");
    assert_eq!(new.delete::<Cluster>(&id, Expected::Any, soon()).await.unwrap(), Deletion::Gone);
}

#[tokio::test]
async fn a_fence_that_ran_out_refuses_every_write() {
    let (store, fence) = (MemoryStore::default(), fence(4));
    let leader = store.objects().guarded(&fence);
    let made = leader.create(&cluster("a"), soon()).await.unwrap();
    fence.revoke();
    assert!(is_refused(leader.create(&cluster("b"), soon()).await));
    assert!(is_refused(leader.apply(&cluster("a"), Expected::Any, soon()).await));
    assert!(is_refused(leader.apply_status(&with_status("a", "x"), Expected::Any, soon()).await));
    assert!(is_refused(leader.delete::<Cluster>(&Id::of(&made), Expected::Any, soon()).await));
    let all = store.objects().list::<Cluster>(&Within::default(), soon()).await.unwrap();
    assert_eq!(all.items, [made]);
}

#[tokio::test(start_paused = true)]
async fn a_write_is_given_up_when_the_fence_runs_out() {
    let store = MemoryStore::default();
    let token = fence(4).token().clone();
    let fence = Fence::new(token, Clock::new(super::super::tests::paused_time), {
        super::super::tests::paused_time() + Duration::from_secs(3)
    });
    let leader = store.objects().guarded(&fence);
    store.black_hole(true);
    let started = tokio::time::Instant::now();
    let late = leader.apply(&cluster("a"), Expected::Any, soon()).await.unwrap_err();
    assert!(matches!(late, Error::TooLate { .. }), "{late:?}");
    assert!(started.elapsed() <= Duration::from_millis(3001), "{:?}", started.elapsed());
    assert!(!fence.is_valid());
}

#[tokio::test]
async fn an_expected_version_is_still_expected() {
    let store = MemoryStore::default();
    let (plain, leader) = (store.objects(), store.objects().guarded(&fence(4)));
    let made = plain.create(&cluster("a"), soon()).await.unwrap();
    plain.apply(&cluster("a"), Expected::Any, soon()).await.unwrap();
    let stale = Expected::Version(Version(made.resource_version().unwrap()));
    let conflict = |answer: Result<Cluster, Error>| {
        assert!(matches!(answer, Err(Error::Conflict { .. })), "{answer:?}");
    };
    conflict(leader.apply(&cluster("a"), stale.clone(), soon()).await);
    conflict(leader.apply_status(&with_status("a", "x"), stale.clone(), soon()).await);
    conflict(leader.apply(&cluster("absent"), stale, soon()).await);
    let absent = leader.apply_status(&with_status("absent", "x"), Expected::Any, soon()).await;
    assert!(matches!(absent, Err(Error::NotFound { .. })), "{absent:?}");
}

#[tokio::test]
async fn an_annotation_is_changed_as_the_object_was_read_and_not_over_a_later_leader() {
    let (store, term) = (MemoryStore::default(), fence(4));
    let plain = store.objects();
    let (old, new) = (plain.guarded(&term), plain.guarded(&fence(5)));
    let key = "fairlead.dev/note";
    let note = || Some("a note".to_owned());
    let made = plain.create(&cluster("a"), soon()).await.unwrap();
    let noted = old.annotate(&made, key, note(), soon()).await.unwrap();
    assert_eq!((noted.annotations()[key].as_str(), &noted.spec), ("a note", &made.spec));
    let stale = old.annotate(&made, key, None, soon()).await;
    assert!(matches!(stale, Err(Error::Conflict { .. })), "{stale:?}");
    let bare = old.annotate(&noted, key, None, soon()).await.unwrap();
    assert!(!bare.annotations().contains_key(key));

    let newer = new.apply_status(&with_status("a", "new"), Expected::Any, soon()).await.unwrap();
    assert!(is_refused(old.annotate(&newer, key, note(), soon()).await));
    let other = plain.create(&cluster("b"), soon()).await.unwrap();
    term.revoke();
    assert!(is_refused(old.annotate(&other, key, note(), soon()).await));
}

#[tokio::test]
async fn what_is_wrong_with_the_spec_keeps_nobody_from_the_status_or_the_metadata() {
    let objects = MemoryStore::default().objects();
    let made = objects.create(&cluster("a"), soon()).await.unwrap();
    let mut wrong = with_status("a", "invalid");
    wrong.spec.context = Some(String::new());
    wrong.metadata.finalizers = Some(vec!["fairlead.dev/hold".to_owned()]);
    let refused = objects.apply(&wrong, Expected::Any, soon()).await;
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    let told = objects.apply_status(&wrong, Expected::Any, soon()).await.unwrap();
    assert_eq!((&told.status, &told.spec), (&wrong.status, &made.spec));
    let held = objects.apply_metadata(&wrong, Expected::Any, soon()).await.unwrap();
    assert_eq!(held.finalizers(), ["fairlead.dev/hold"]);
    // A status has its own bounds.
    let long = with_status("a", &"x".repeat(65));
    let refused = objects.apply_status(&long, Expected::Any, soon()).await;
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
}
