//! The checks. Each takes names of its own, so that all can run on one store.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use objects::kinds::{Cluster, ClusterStatus, User, UserSpec};
use objects::{
    Deletion, Error, Event, Expected, Id, KeyChanges, Selector, Version, Watched, Within,
};
use stallproof::{Deadline, Snapshot, Tasks};
use tokio::time::Instant;

use crate::{
    Fixture, cluster, context, each, id, labelled, name, next, secret, short, soon, version,
};

pub(crate) async fn all(fixture: &Fixture) {
    an_object_gets_an_identity_of_its_own(fixture).await;
    versions_move_when_something_changes_and_only_then(fixture).await;
    what_changed_meanwhile_is_a_conflict(fixture).await;
    status_and_the_rest_do_not_touch_each_other(fixture).await;
    an_apply_takes_away_what_it_does_not_name(fixture).await;
    one_of_many_creators_wins(fixture).await;
    no_update_is_lost_between_appliers(fixture).await;
    a_watch_tells_everything_in_order(fixture).await;
    a_watch_goes_on_where_a_listing_was(fixture).await;
    a_version_that_makes_no_sense_is_a_restart(fixture).await;
    a_selection_is_the_same_in_lists_and_watches(fixture).await;
    namespaces_are_apart(fixture).await;
    a_watched_map_follows_the_store(fixture).await;
    finalizers_hold_an_object(fixture).await;
    the_invalid_is_refused(fixture).await;
    the_late_is_refused(fixture).await;
    ten_thousand_objects_are_nothing_special(fixture).await;
}

fn of(check: &str) -> Within {
    Within { labels: Some(Selector::label("check", check).unwrap()), ..Within::default() }
}

async fn an_object_gets_an_identity_of_its_own(Fixture { objects, .. }: &Fixture) {
    let mut wanted = cluster("identity", "a");
    wanted.metadata.uid = Some("mine".to_owned());
    wanted.metadata.generation = Some(7);
    wanted.status = Some(ClusterStatus { state: "ready".to_owned(), ..ClusterStatus::default() });
    let made = objects.create(&wanted, soon()).await.unwrap();
    assert_eq!(made.spec, wanted.spec);
    assert_eq!(made.status, None, "the status is not the creator's to set");
    assert_ne!(made.metadata.uid, wanted.metadata.uid);
    assert_eq!(made.metadata.uid.as_ref().unwrap().len(), 36);
    assert_eq!(made.metadata.generation, Some(1));
    let made_at = made.metadata.creation_timestamp.as_ref().unwrap().0;
    assert!((jiff::Timestamp::now().as_second() - made_at.as_second()).abs() < 60);
    let found = objects.get::<Cluster>(&id("identity"), soon()).await.unwrap().unwrap();
    assert_eq!(version(&found), version(&made));
    assert_eq!(found.metadata.uid, made.metadata.uid);
    let again = objects.create(&wanted, soon()).await;
    assert!(matches!(again, Err(Error::Exists { kind: "Cluster", .. })), "{again:?}");

    objects.delete::<Cluster>(&id("identity"), Expected::Any, soon()).await.unwrap();
    assert_eq!(objects.get::<Cluster>(&id("identity"), soon()).await.unwrap(), None);
    let next = objects.create(&wanted, soon()).await.unwrap();
    assert_ne!(next.metadata.uid, made.metadata.uid, "it is another one");
    assert_ne!(version(&next), version(&made));
}

async fn versions_move_when_something_changes_and_only_then(Fixture { objects, .. }: &Fixture) {
    let apply =
        async |wanted: &Cluster| objects.apply(wanted, Expected::Any, soon()).await.unwrap();
    let first = apply(&cluster("versions", "a")).await;
    let same = apply(&cluster("versions", "a")).await;
    assert_eq!(version(&same), version(&first));
    let respecified = apply(&cluster("versions", "b")).await;
    assert_ne!(version(&respecified), version(&first));
    assert_eq!(respecified.metadata.generation, Some(2));
    let relabelled = apply(&labelled(cluster("versions", "b"), "l", "1")).await;
    assert_ne!(version(&relabelled), version(&respecified));
    assert_eq!(relabelled.metadata.generation, Some(2), "the spec is the same");
    assert_eq!(relabelled.metadata.uid, first.metadata.uid);
    let same = apply(&labelled(cluster("versions", "b"), "l", "1")).await;
    assert_eq!(version(&same), version(&relabelled));
}

async fn what_changed_meanwhile_is_a_conflict(Fixture { objects, .. }: &Fixture) {
    let old = objects.create(&cluster("conflicts", "a"), soon()).await.unwrap();
    let expected = || Expected::Version(version(&old));
    let new = objects.apply(&cluster("conflicts", "b"), expected(), soon()).await.unwrap();

    let applied = objects.apply(&cluster("conflicts", "c"), expected(), soon()).await;
    assert!(matches!(applied, Err(Error::Conflict { .. })), "{applied:?}");
    let mut reported = new.clone();
    reported.status = Some(ClusterStatus::default());
    let status = objects.apply_status(&reported, expected(), soon()).await;
    assert!(matches!(status, Err(Error::Conflict { .. })), "{status:?}");
    let deleted = objects.delete::<Cluster>(&id("conflicts"), expected(), soon()).await;
    assert!(matches!(deleted, Err(Error::Conflict { .. })), "{deleted:?}");
    let found = objects.get::<Cluster>(&id("conflicts"), soon()).await.unwrap().unwrap();
    assert_eq!((version(&found), context(&found)), (version(&new), "b"));

    let current = Expected::Version(version(&new));
    let deleted = objects.delete::<Cluster>(&id("conflicts"), current.clone(), soon()).await;
    assert_eq!(deleted.unwrap(), Deletion::Gone);
    let deleted = objects.delete::<Cluster>(&id("conflicts"), Expected::Any, soon()).await;
    assert!(matches!(deleted, Err(Error::NotFound { .. })), "{deleted:?}");
    let applied = objects.apply(&cluster("conflicts", "c"), current, soon()).await;
    assert!(matches!(applied, Err(Error::Conflict { .. })), "{applied:?}");
    let status = objects.apply_status(&reported, Expected::Any, soon()).await;
    assert!(matches!(status, Err(Error::NotFound { .. })), "{status:?}");
}

async fn status_and_the_rest_do_not_touch_each_other(Fixture { objects, .. }: &Fixture) {
    let made = objects.create(&cluster("status", "a"), soon()).await.unwrap();
    let ready = ClusterStatus { state: "ready".to_owned(), ..ClusterStatus::default() };
    let mut reported = cluster("status", "not to be seen");
    reported.status = Some(ready.clone());
    let reported = objects.apply_status(&reported, Expected::Any, soon()).await.unwrap();
    assert_eq!(reported.status, Some(ready.clone()));
    assert_eq!((context(&reported), reported.metadata.generation), ("a", Some(1)));
    assert_ne!(version(&reported), version(&made));
    let same = objects.apply_status(&reported, Expected::Any, soon()).await.unwrap();
    assert_eq!(version(&same), version(&reported));

    let mut respecified = cluster("status", "b");
    respecified.status = Some(ClusterStatus::default());
    let respecified = objects.apply(&respecified, Expected::Any, soon()).await.unwrap();
    assert_eq!(respecified.status, Some(ready));
    assert_eq!((context(&respecified), respecified.metadata.generation), ("b", Some(2)));
}

async fn an_apply_takes_away_what_it_does_not_name(Fixture { objects, .. }: &Fixture) {
    let mut full = labelled(labelled(cluster("taken", "a"), "x", "1"), "y", "2");
    let annotations = [("note".to_owned(), "kept for now".to_owned())];
    full.metadata.annotations = Some(annotations.into());
    objects.create(&full, soon()).await.unwrap();
    let mut bare = labelled(cluster("taken", "a"), "y", "3");
    bare.spec.context = None;
    objects.apply(&bare, Expected::Any, soon()).await.unwrap();
    let found = objects.get::<Cluster>(&id("taken"), soon()).await.unwrap().unwrap();
    let labels = found.metadata.labels.unwrap_or_default();
    assert_eq!(labels, BTreeMap::from([("y".to_owned(), "3".to_owned())]));
    assert_eq!(found.metadata.annotations.unwrap_or_default(), BTreeMap::new());
    assert_eq!(found.spec.context, None);
}

async fn one_of_many_creators_wins(Fixture { objects, .. }: &Fixture) {
    for round in 0..5 {
        let name = format!("contested-{round}");
        let create = |i: i32| {
            let wanted = cluster(&name, &i.to_string());
            async move { objects.create(&wanted, soon()).await }
        };
        let results = each(0..50, 50, create).await;
        let made: Vec<_> = results.iter().filter_map(|result| result.as_ref().ok()).collect();
        assert_eq!(made.len(), 1);
        let refused = |result: &&Result<_, _>| matches!(result, Err(Error::Exists { .. }));
        assert_eq!(results.iter().filter(refused).count(), 49, "{results:?}");
        let found = objects.get::<Cluster>(&id(&name), soon()).await.unwrap().unwrap();
        assert_eq!(context(&found), context(made[0]));
    }
}

async fn no_update_is_lost_between_appliers(Fixture { objects, .. }: &Fixture) {
    objects.create(&cluster("counter", "0"), soon()).await.unwrap();
    let count = |_| async {
        for _ in 0..10 {
            loop {
                let found = objects.get::<Cluster>(&id("counter"), soon()).await.unwrap().unwrap();
                let next = context(&found).parse::<u32>().unwrap() + 1;
                let wanted = cluster("counter", &next.to_string());
                let expected = Expected::Version(version(&found));
                match objects.apply(&wanted, expected, soon()).await {
                    Ok(_) => break,
                    Err(Error::Conflict { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    };
    each(0..8, 8, count).await;
    let found = objects.get::<Cluster>(&id("counter"), soon()).await.unwrap().unwrap();
    assert_eq!(context(&found), "80");
}

async fn a_watch_tells_everything_in_order(Fixture { objects, .. }: &Fixture) {
    let wanted = |name: &str, context: &str| labelled(cluster(name, context), "check", "order");
    objects.create(&wanted("order-a", "1"), soon()).await.unwrap();
    let mut watch = objects.watch::<Cluster>(of("order"));
    assert_eq!(short(&next(&mut watch).await), "restarted order-a=1");

    for i in 2..=50 {
        let applied = wanted("order-a", &i.to_string());
        objects.apply(&applied, Expected::Any, soon()).await.unwrap();
        // Nothing changes, so nothing is told.
        objects.apply(&applied, Expected::Any, soon()).await.unwrap();
    }
    objects.create(&wanted("order-b", "1"), soon()).await.unwrap();
    objects.delete::<Cluster>(&id("order-a"), Expected::Any, soon()).await.unwrap();
    objects.create(&wanted("order-a", "again"), soon()).await.unwrap();

    for i in 2..=50 {
        assert_eq!(short(&next(&mut watch).await), format!("applied order-a={i}"));
    }
    for told in ["applied order-b=1", "deleted order-a", "applied order-a=again"] {
        assert_eq!(short(&next(&mut watch).await), told);
    }
}

async fn a_watch_goes_on_where_a_listing_was(Fixture { objects, .. }: &Fixture) {
    let wanted = |name: &str, context: &str| labelled(cluster(name, context), "check", "resume");
    objects.create(&wanted("resume-a", "1"), soon()).await.unwrap();
    let listing = objects.list::<Cluster>(&of("resume"), soon()).await.unwrap();
    assert_eq!(listing.items.len(), 1);
    objects.apply(&wanted("resume-a", "2"), Expected::Any, soon()).await.unwrap();
    objects.create(&wanted("resume-b", "1"), soon()).await.unwrap();
    objects.delete::<Cluster>(&id("resume-a"), Expected::Any, soon()).await.unwrap();

    let mut watch = objects.watch_after::<Cluster>(of("resume"), listing.version);
    let mut versions = Vec::new();
    for told in ["applied resume-a=2", "applied resume-b=1", "deleted resume-a"] {
        let event = next(&mut watch).await;
        assert_eq!(short(&event), told);
        let (Event::Applied(object) | Event::Deleted(object)) = event else { unreachable!() };
        versions.push(version(&object));
    }
    // From any event on, the same follow, whatever it was.
    for (seen, told) in [(0, "applied resume-b=1"), (1, "deleted resume-a")] {
        let mut watch = objects.watch_after::<Cluster>(of("resume"), versions[seen].clone());
        assert_eq!(short(&next(&mut watch).await), told);
    }
    let mut watch = objects.watch_after::<Cluster>(of("resume"), versions[2].clone());
    objects.create(&wanted("resume-c", "1"), soon()).await.unwrap();
    assert_eq!(short(&next(&mut watch).await), "applied resume-c=1");
}

async fn a_version_that_makes_no_sense_is_a_restart(Fixture { objects, .. }: &Fixture) {
    let wanted = labelled(cluster("nonsense", "1"), "check", "nonsense");
    objects.create(&wanted, soon()).await.unwrap();
    let mut watch = objects.watch_after::<Cluster>(of("nonsense"), Version("yesterday".to_owned()));
    assert_eq!(short(&next(&mut watch).await), "restarted nonsense=1");
    objects.delete::<Cluster>(&id("nonsense"), Expected::Any, soon()).await.unwrap();
    assert_eq!(short(&next(&mut watch).await), "deleted nonsense");
}

async fn a_selection_is_the_same_in_lists_and_watches(Fixture { objects, .. }: &Fixture) {
    let wanted = |name: &str, tier: &str| {
        labelled(labelled(cluster(name, tier), "check", "select"), "tier", tier)
    };
    for (name, tier) in [("select-a", "front"), ("select-b", "back"), ("select-c", "edge")] {
        objects.create(&wanted(name, tier), soon()).await.unwrap();
    }
    let within = |selector: &str| Within {
        labels: Some(format!("check=select,{selector}").parse().unwrap()),
        ..Within::default()
    };
    for (selector, expected) in [
        ("tier=front", vec!["select-a"]),
        ("tier!=front", vec!["select-b", "select-c"]),
        ("tier in (front,edge)", vec!["select-a", "select-c"]),
        ("tier notin (front,edge)", vec!["select-b"]),
        ("tier", vec!["select-a", "select-b", "select-c"]),
        ("!tier", vec![]),
        ("other notin (x)", vec!["select-a", "select-b", "select-c"]),
    ] {
        let listing = objects.list::<Cluster>(&within(selector), soon()).await.unwrap();
        let mut names: Vec<_> = listing.items.iter().map(name).collect();
        names.sort();
        assert_eq!(names, expected, "{selector}");
    }

    let mut watch = objects.watch::<Cluster>(within("tier=front"));
    assert_eq!(short(&next(&mut watch).await), "restarted select-a=front");
    objects.apply(&wanted("select-b", "front"), Expected::Any, soon()).await.unwrap();
    assert_eq!(short(&next(&mut watch).await), "applied select-b=front");
    objects.apply(&wanted("select-a", "back"), Expected::Any, soon()).await.unwrap();
    assert_eq!(short(&next(&mut watch).await), "deleted select-a", "it left the selection");
    objects.delete::<Cluster>(&id("select-a"), Expected::Any, soon()).await.unwrap();
    objects.delete::<Cluster>(&id("select-b"), Expected::Any, soon()).await.unwrap();
    assert_eq!(short(&next(&mut watch).await), "deleted select-b");
}

async fn namespaces_are_apart(fixture: &Fixture) {
    let Fixture { objects, namespace, other_namespace } = fixture;
    for namespace in [namespace, other_namespace] {
        objects.create(&secret(namespace, "same-name"), soon()).await.unwrap();
    }
    objects.create(&secret(namespace, "second"), soon()).await.unwrap();
    let within = Within { namespace: Some(namespace.clone()), ..Within::default() };
    let names = |listing: objects::Listing<Secret>| {
        let mut names: Vec<_> = listing.items.iter().map(name).collect();
        names.sort();
        names
    };
    let listing = objects.list::<Secret>(&within, soon()).await.unwrap();
    assert_eq!(names(listing), ["same-name", "second"]);
    let everywhere = objects.list::<Secret>(&Within::default(), soon()).await.unwrap();
    assert!(everywhere.items.len() >= 3);

    let mut watch = objects.watch::<Secret>(within.clone());
    assert!(matches!(next(&mut watch).await, Event::Restarted(all) if all.len() == 2));
    let id = Id::namespaced(other_namespace, "same-name");
    objects.delete::<Secret>(&id, Expected::Any, soon()).await.unwrap();
    let id = Id::namespaced(namespace, "same-name");
    assert!(objects.get::<Secret>(&id, soon()).await.unwrap().is_some());
    objects.delete::<Secret>(&id, Expected::Any, soon()).await.unwrap();
    let Event::Deleted(gone) = next(&mut watch).await else { panic!("not a deletion") };
    assert_eq!(Id::of(&gone), id);
}

async fn a_watched_map_follows_the_store(Fixture { objects, .. }: &Fixture) {
    let wanted = |name: &str, context: &str| labelled(cluster(name, context), "check", "watched");
    objects.create(&wanted("watched-a", "1"), soon()).await.unwrap();
    let tasks = Tasks::new("watched");
    let contexts: Snapshot<Watched<String, String>> =
        objects.watched_as(of("watched"), &tasks, |cluster: Cluster| cluster.spec.context);
    let mut changes = KeyChanges::of(&contexts);
    let mut changed = async || soon().bound(changes.changed()).await.unwrap();
    let now = |name: &str, context: Option<&str>| (name.to_owned(), context.map(ToOwned::to_owned));
    assert_eq!(changed().await, [now("watched-a", Some("1"))]);
    assert!(contexts.load().synced);
    objects.create(&wanted("watched-b", "1"), soon()).await.unwrap();
    assert_eq!(changed().await, [now("watched-b", Some("1"))]);
    // Of these two only the second makes a difference.
    let again = labelled(wanted("watched-b", "1"), "other", "label");
    objects.apply(&again, Expected::Any, soon()).await.unwrap();
    objects.apply(&wanted("watched-a", "2"), Expected::Any, soon()).await.unwrap();
    assert_eq!(changed().await, [now("watched-a", Some("2"))]);
    objects.delete::<Cluster>(&id("watched-a"), Expected::Any, soon()).await.unwrap();
    assert_eq!(changed().await, [now("watched-a", None)]);
    assert!(tasks.shutdown(Duration::from_secs(5)).await.is_empty());
}

async fn finalizers_hold_an_object(Fixture { objects, .. }: &Fixture) {
    const FIRST: &str = "fairlead.dev/first";
    const SECOND: &str = "fairlead.dev/second";
    let held = |finalizers: &[&str]| {
        let mut wanted = labelled(cluster("held", "a"), "check", "finalizers");
        wanted.metadata.finalizers = Some(finalizers.iter().map(ToString::to_string).collect());
        wanted
    };
    let apply = async |wanted: &Cluster| objects.apply(wanted, Expected::Any, soon()).await;
    let delete = async || objects.delete::<Cluster>(&id("held"), Expected::Any, soon()).await;

    apply(&held(&[FIRST, SECOND])).await.unwrap();
    let mut watch = objects.watch::<Cluster>(of("finalizers"));
    next(&mut watch).await;
    let waiting = |finalizers: &[&str]| {
        Deletion::Waiting(finalizers.iter().map(ToString::to_string).collect())
    };
    assert_eq!(delete().await.unwrap(), waiting(&[FIRST, SECOND]));
    let marked = objects.get::<Cluster>(&id("held"), soon()).await.unwrap().unwrap();
    assert!(marked.metadata.deletion_timestamp.is_some());
    assert_eq!(delete().await.unwrap(), waiting(&[FIRST, SECOND]), "twice is once");
    let again = objects.create(&held(&[]), soon()).await;
    assert!(matches!(again, Err(Error::Exists { .. })), "{again:?}");

    let more = apply(&held(&[FIRST, SECOND, "fairlead.dev/third"])).await;
    assert!(matches!(more, Err(Error::Invalid { .. })), "{more:?}");
    apply(&held(&[SECOND])).await.unwrap();
    let left = objects.get::<Cluster>(&id("held"), soon()).await.unwrap().unwrap();
    assert_eq!(left.metadata.finalizers.as_deref(), Some(&[SECOND.to_owned()][..]));
    assert_eq!(left.metadata.deletion_timestamp, marked.metadata.deletion_timestamp);
    apply(&held(&[])).await.unwrap();
    assert_eq!(objects.get::<Cluster>(&id("held"), soon()).await.unwrap(), None);

    for told in ["applied held=a", "applied held=a", "deleted held"] {
        assert_eq!(short(&next(&mut watch).await), told);
    }
}

async fn the_invalid_is_refused(Fixture { objects, namespace, .. }: &Fixture) {
    let mut spread = cluster("invalid", "a");
    spread.metadata.namespace = Some(namespace.clone());
    let mut unlocated = secret(namespace, "invalid");
    unlocated.metadata.namespace = None;
    let mut unlabelled = cluster("invalid", "a");
    unlabelled = labelled(unlabelled, "not a key", "a");
    let mut empty = cluster("invalid", "a");
    empty.spec.kubeconfig_secret.name = String::new();
    for wrong in [cluster("In_Valid", "a"), cluster("", "a"), spread, unlabelled, empty] {
        for refused in [
            objects.create(&wrong, soon()).await,
            objects.apply(&wrong, Expected::Any, soon()).await,
        ] {
            assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
        }
    }
    let refused = objects.create(&unlocated, soon()).await;
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    let hash = Some("plain text".to_owned());
    let spec = UserSpec { password_hash: hash, roles: vec![], disabled: false };
    let refused = objects.create(&User::new("invalid", spec), soon()).await;
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    let refused = objects.get::<Secret>(&Id::cluster("invalid"), soon()).await;
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    assert_eq!(objects.get::<Cluster>(&id("invalid"), soon()).await.unwrap(), None);
}

async fn the_late_is_refused(Fixture { objects, .. }: &Fixture) {
    let past = Deadline::at(Instant::now() - Duration::from_millis(1));
    let late = |result: Result<(), Error>| {
        assert!(matches!(result, Err(Error::TooLate { .. })), "{result:?}");
    };
    let wanted = cluster("late", "a");
    late(objects.create(&wanted, past).await.map(drop));
    late(objects.apply(&wanted, Expected::Any, past).await.map(drop));
    late(objects.apply_status(&wanted, Expected::Any, past).await.map(drop));
    late(objects.delete::<Cluster>(&id("late"), Expected::Any, past).await.map(drop));
    late(objects.get::<Cluster>(&id("late"), past).await.map(drop));
    late(objects.list::<Cluster>(&Within::default(), past).await.map(drop));
    assert_eq!(objects.get::<Cluster>(&id("late"), soon()).await.unwrap(), None);
}

async fn ten_thousand_objects_are_nothing_special(Fixture { objects, .. }: &Fixture) {
    const MANY: usize = 10_000;
    let create = |i: usize| async move {
        let wanted = labelled(cluster(&format!("many-{i:05}"), "a"), "check", "many");
        let wanted = labelled(wanted, "hundred", &(i / 100).to_string());
        objects.create(&wanted, soon()).await.unwrap();
    };
    each(0..MANY, 64, create).await;
    let listing = objects.list::<Cluster>(&of("many"), soon()).await.unwrap();
    assert_eq!(listing.items.len(), MANY);
    let hundred = Within {
        labels: Some("check=many,hundred in (7,93)".parse().unwrap()),
        ..Within::default()
    };
    let listing = objects.list::<Cluster>(&hundred, soon()).await.unwrap();
    assert_eq!(listing.items.len(), 200);
    let mut watch = objects.watch::<Cluster>(of("many"));
    let Event::Restarted(all) = next(&mut watch).await else { panic!("not a restart") };
    assert_eq!(all.len(), MANY);
    objects
        .apply(&labelled(cluster("many-05000", "b"), "check", "many"), Expected::Any, soon())
        .await
        .unwrap();
    assert_eq!(short(&next(&mut watch).await), "applied many-05000=b");
}
