//! The suite on the embedded engine, and what only it does.

use std::time::Duration;

use kube::Resource;
use objects::kinds::{AccessToken, AccessTokenSpec, Cluster, User, UserSpec};
use objects::{Deletion, Expected, Objects, Within};
use stallproof::Tasks;
use tempfile::TempDir;

use crate::load::Load;
use crate::{Fixture, cluster, each, id, name, next, short, soon, version};

struct Store {
    dir: TempDir,
    tasks: Tasks,
    objects: Objects,
}

impl Store {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tasks = Tasks::new("store");
        let objects = Objects::embedded(dir.path(), &tasks).unwrap();
        Self { dir, tasks, objects }
    }

    async fn reopen(&mut self) {
        assert_eq!(self.tasks.shutdown(Duration::from_secs(30)).await, []);
        self.tasks = Tasks::new("store");
        self.objects = Objects::embedded(self.dir.path(), &self.tasks).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_suite() {
    let store = Store::new();
    crate::checks::all(&Fixture {
        objects: store.objects.clone(),
        namespace: "one".to_owned(),
        other_namespace: "two".to_owned(),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_when_it_is_closed_and_opened_under_load() {
    let mut store = Store::new();
    let load = Load::start(store.objects.clone());
    for _ in 0..10 {
        load.goes_on(100).await;
        store.reopen().await;
        load.reopened(store.objects.clone());
    }
    load.goes_on(100).await;
    load.finish().await;
}

#[tokio::test]
async fn everything_is_as_it_was_after_a_restart() {
    let mut store = Store::new();
    let old = store.objects.create(&cluster("a", "1"), soon()).await.unwrap();
    store.objects.create(&cluster("gone", "1"), soon()).await.unwrap();
    store.objects.delete::<Cluster>(&id("gone"), Expected::Any, soon()).await.unwrap();
    let before = store.objects.list::<Cluster>(&Within::default(), soon()).await.unwrap();
    store.reopen().await;

    let after = store.objects.list::<Cluster>(&Within::default(), soon()).await.unwrap();
    assert_eq!(after.items, before.items);
    assert_eq!(after.version, before.version);
    // Who had seen everything goes on; who had not begins again.
    let mut up_to_date = store.objects.watch_after::<Cluster>(Within::default(), before.version);
    let mut behind = store.objects.watch_after::<Cluster>(Within::default(), version(&old));
    let new = store.objects.create(&cluster("b", "1"), soon()).await.unwrap();
    assert_ne!(version(&new), after.version, "a version is never used again");
    assert_eq!(short(&next(&mut up_to_date).await), "applied b=1");
    assert_eq!(short(&next(&mut behind).await), "restarted a=1 b=1");
}

#[tokio::test]
async fn a_watcher_that_falls_behind_the_history_begins_again() {
    let store = Store::new();
    store.objects.create(&cluster("a", "0"), soon()).await.unwrap();
    let mut slow = store.objects.watch::<Cluster>(Within::default());
    next(&mut slow).await;
    let apply = |i: u32| {
        let (objects, wanted) = (&store.objects, cluster("a", &i.to_string()));
        async move { objects.apply(&wanted, Expected::Any, soon()).await.unwrap() }
    };
    each(1..=9000, 256, apply).await;
    let last = store.objects.get::<Cluster>(&id("a"), soon()).await.unwrap().unwrap();
    let expected = format!("restarted a={}", last.spec.context.unwrap());
    assert_eq!(short(&next(&mut slow).await), expected);
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let store = Store::new();
    let mut watch = store.objects.watch::<Cluster>(Within::default());
    next(&mut watch).await;
    store.objects.create(&cluster("a", "1"), soon()).await.unwrap();
    store.tasks.shutdown(Duration::from_secs(30)).await;
    assert_eq!(short(&watch.next().await.unwrap()), "applied a=1", "what was left comes first");
    assert_eq!(watch.next().await, None);
    for error in [
        store.objects.get::<Cluster>(&id("a"), soon()).await.unwrap_err(),
        store.objects.create(&cluster("b", "1"), soon()).await.unwrap_err(),
    ] {
        assert!(matches!(error, objects::Error::Unavailable { .. }), "{error}");
    }
}

/// An API server leaves this to its garbage collector, which the one of these tests has not.
#[tokio::test]
async fn what_an_object_owns_goes_with_it_in_one_commit() {
    let Store { objects, dir: _dir, .. } = &Store::new();
    let user = |name: &str| {
        User::new(name, UserSpec { password_hash: None, roles: vec![], disabled: false })
    };
    let token = |name: &str, owners: &[&User]| {
        let spec = AccessTokenSpec {
            user: "jo".to_owned(),
            hash: "0".repeat(64),
            expires: None,
            description: None,
        };
        let mut token = AccessToken::new(name, spec);
        let owners = owners.iter().map(|owner| owner.owner_ref(&()).unwrap());
        token.metadata.owner_references = Some(owners.collect());
        token
    };
    let jo = objects.create(&user("jo"), soon()).await.unwrap();
    let al = objects.create(&user("al"), soon()).await.unwrap();
    objects.create(&token("owned", &[&jo]), soon()).await.unwrap();
    objects.create(&token("shared", &[&jo, &al]), soon()).await.unwrap();
    objects.create(&token("free", &[]), soon()).await.unwrap();
    let mut held = token("held", &[&jo]);
    held.metadata.finalizers = Some(vec!["fairlead.dev/held".to_owned()]);
    let held = objects.create(&held, soon()).await.unwrap();
    let mut below = cluster("below", "a");
    below.metadata.owner_references = held.owner_ref(&()).map(|owner| vec![owner]);
    objects.create(&below, soon()).await.unwrap();
    let before = objects.list::<AccessToken>(&Within::default(), soon()).await.unwrap();

    let deleted = objects.delete::<User>(&id("jo"), Expected::Any, soon()).await.unwrap();
    assert_eq!(deleted, Deletion::Gone);
    let left = objects.list::<AccessToken>(&Within::default(), soon()).await.unwrap();
    assert_eq!(left.items.iter().map(name).collect::<Vec<_>>(), ["free", "held", "shared"]);
    assert!(left.items[1].metadata.deletion_timestamp.is_some(), "its finalizer holds it");
    let owners = left.items[2].metadata.owner_references.as_ref().unwrap();
    assert_eq!(
        owners.iter().map(|owner| &owner.uid).collect::<Vec<_>>(),
        [al.metadata.uid.as_ref().unwrap()]
    );
    let mut watch = objects.watch_after::<AccessToken>(Within::default(), before.version);
    for _ in 0..3 {
        next(&mut watch).await;
    }

    assert!(objects.get::<Cluster>(&id("below"), soon()).await.unwrap().is_some());
    let mut released = left.items[1].clone();
    released.metadata.finalizers = None;
    objects.apply(&released, Expected::Any, soon()).await.unwrap();
    assert_eq!(objects.get::<AccessToken>(&id("held"), soon()).await.unwrap(), None);
    assert_eq!(objects.get::<Cluster>(&id("below"), soon()).await.unwrap(), None);

    // Its maker did not know yet that the owner is gone.
    objects.create(&token("orphan", &[&jo]), soon()).await.unwrap();
    assert_eq!(objects.get::<AccessToken>(&id("orphan"), soon()).await.unwrap(), None);
}
