use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use proptest::prelude::*;
use stallproof::Deadline;
use tempfile::TempDir;

use super::*;
use crate::Expected;
use crate::kinds::{User, UserSpec};

type Roles = Watched<String, Vec<String>>;

fn user(name: &str, role: &str) -> User {
    let roles = vec![role.to_owned()];
    User::new(name, UserSpec { password_hash: None, roles, disabled: role == "disabled" })
}

/// Keeps the roles of those who are not disabled.
fn roles(user: User) -> Option<Vec<String>> {
    (!user.spec.disabled).then_some(user.spec.roles)
}

fn map(namespace: &str, name: &str, text: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.namespace = Some(namespace.to_owned());
    map.metadata.name = Some(name.to_owned());
    map.data = Some([("text".to_owned(), text.to_owned())].into());
    map
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn store() -> (TempDir, Tasks, Objects) {
    let dir = tempfile::tempdir().unwrap();
    let tasks = Tasks::new("test");
    let objects = Objects::embedded(dir.path(), &tasks).unwrap();
    (dir, tasks, objects)
}

/// The value, once it is as `wanted` says.
async fn until<T: Clone>(snapshot: &Snapshot<T>, wanted: impl Fn(&T) -> bool) -> View<T> {
    let mut changes = snapshot.subscribe();
    let seen = async {
        let mut view = snapshot.load();
        while !wanted(&view) {
            view = changes.changed().await;
        }
        view
    };
    soon().bound(seen).await.expect("the snapshot is never as wanted")
}

#[tokio::test]
async fn what_is_kept_of_each_object_is_published_and_follows_the_store() {
    let (_dir, tasks, objects) = store();
    objects.create(&user("ada", "reader"), soon()).await.unwrap();
    objects.create(&user("bob", "disabled"), soon()).await.unwrap();
    let snapshot: Snapshot<Roles> = objects.watched_as(Within::default(), &tasks, roles);
    assert!(!snapshot.load().synced, "nothing is told before the store has spoken");

    let view = synced(&snapshot).await;
    assert_eq!(view.keys().collect::<Vec<_>>(), ["ada"], "of bob nothing is kept");

    objects.apply(&user("bob", "writer"), Expected::Any, soon()).await.unwrap();
    until(&snapshot, |roles| roles.get("bob").is_some_and(|bob| bob == &["writer"])).await;
    objects.apply(&user("bob", "disabled"), Expected::Any, soon()).await.unwrap();
    until(&snapshot, |roles| !roles.contains_key("bob")).await;
    objects.delete::<User>(&Id::cluster("ada"), Expected::Any, soon()).await.unwrap();
    until(&snapshot, |roles| roles.is_empty()).await;
    tasks.shutdown(Duration::from_secs(5)).await;
}

#[test]
fn what_changes_nothing_that_is_kept_is_not_published() {
    let snapshot = Snapshot::<Roles>::default();
    let take = |event| snapshot.update(|watched| watched.take(event, roles));
    assert!(take(Event::Restarted(vec![user("ada", "reader")])));
    let mut heartbeat = user("ada", "reader");
    heartbeat.metadata.resource_version = Some("7".to_owned());
    assert!(!take(Event::Applied(heartbeat.clone())));
    assert!(!take(Event::Restarted(vec![heartbeat])), "a list that is read again");
    assert!(!take(Event::Deleted(user("nobody", "reader"))));
    assert_eq!(snapshot.load().generation(), 1);
    assert!(take(Event::Restarted(vec![])));
    assert!(snapshot.load().is_empty());
}

#[test]
fn an_empty_list_is_news_once() {
    let mut watched = Roles::default();
    assert!(watched.take(Event::Restarted(vec![]), roles), "now it is known that there is nothing");
    assert!(!watched.take(Event::Restarted(vec![]), roles));
}

#[tokio::test(start_paused = true)]
async fn keys_that_changed_are_told_once_however_many_generations_were_skipped() {
    let snapshot = Snapshot::<Roles>::default();
    let take = |event| snapshot.update(|watched| watched.take(event, roles));
    let mut changes = KeyChanges::of(&snapshot);
    let mut changed =
        async || tokio::time::timeout(Duration::from_secs(1), changes.changed()).await.ok();
    let waits = changed().await;
    assert_eq!(waits, None, "nothing has changed");

    take(Event::Restarted(vec![]));
    assert_eq!(changed().await, Some(vec![]), "all is told, and it is nothing");
    take(Event::Applied(user("ada", "reader")));
    take(Event::Applied(user("ada", "writer")));
    take(Event::Applied(user("bob", "reader")));
    take(Event::Applied(user("eve", "reader")));
    take(Event::Deleted(user("eve", "reader")));
    let role = |role: &str| Some(vec![role.to_owned()]);
    let told = vec![("ada".to_owned(), role("writer")), ("bob".to_owned(), role("reader"))];
    assert_eq!(changed().await, Some(told));

    take(Event::Restarted(vec![user("bob", "reader")]));
    assert_eq!(changed().await, Some(vec![("ada".to_owned(), None)]));
    let late = KeyChanges::of(&snapshot).changed().await;
    assert_eq!(late, [("bob".to_owned(), role("reader"))], "who comes late is told what is there");
}

#[tokio::test]
async fn one_object_is_followed_and_what_cannot_be_read_leaves_what_was_known() {
    let (_dir, tasks, objects) = store();
    let id = Id::namespaced("ours", "number");
    let read = |found: Option<ConfigMap>| match found {
        None => Some(0),
        Some(map) => map.data?.get("text")?.parse::<u32>().ok(),
    };
    let snapshot = objects.watched_one(&id, None, &tasks, read);
    assert_eq!(*snapshot.load(), None);
    until(&snapshot, |number| *number == Some(0)).await;
    // Its namesake elsewhere and its neighbour are not it.
    objects.create(&map("theirs", "number", "1"), soon()).await.unwrap();
    objects.create(&map("ours", "other", "2"), soon()).await.unwrap();
    objects.create(&map("ours", "number", "3"), soon()).await.unwrap();
    until(&snapshot, |number| number.is_some_and(|number| number > 0)).await;
    assert_eq!(*snapshot.load(), Some(3));

    objects.apply(&map("ours", "number", "four"), Expected::Any, soon()).await.unwrap();
    objects.apply(&map("ours", "number", "5"), Expected::Any, soon()).await.unwrap();
    let view = until(&snapshot, |number| *number != Some(3)).await;
    assert_eq!(*view, Some(5), "what cannot be read is never published");
    objects.delete::<ConfigMap>(&id, Expected::Any, soon()).await.unwrap();
    until(&snapshot, |number| *number == Some(0)).await;
    tasks.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn only_the_namespaces_that_are_named_are_watched_and_one_that_stays_is_not_read_again() {
    let (_dir, _tasks, objects) = store();
    let secret = |namespace: &str, name: &str| {
        let mut secret = Secret::default();
        secret.metadata.namespace = Some(namespace.to_owned());
        secret.metadata.name = Some(name.to_owned());
        secret
    };
    for namespace in ["a", "b", "c"] {
        objects.create(&secret(namespace, "first"), soon()).await.unwrap();
    }
    let mut watched = WatchedIn::<Secret>::new(&objects);
    assert!(watched.synced(), "of no namespace everything is known");
    let of = |namespaces: &[&str]| namespaces.iter().map(|&name| name.to_owned()).collect();
    watched.watch(&of(&["a", "b"]));
    assert!(!watched.synced());
    while !watched.synced() {
        soon().bound(watched.changed()).await.unwrap();
    }
    assert!(watched.get("a", "first").is_some() && watched.get("b", "first").is_some());
    assert!(watched.get("c", "first").is_none());

    watched.watch(&of(&["b", "c"]));
    assert!(watched.get("a", "first").is_none());
    assert!(watched.get("b", "first").is_some(), "it stays known");
    while !watched.synced() {
        soon().bound(watched.changed()).await.unwrap();
    }
    objects.create(&secret("b", "second"), soon()).await.unwrap();
    soon().bound(watched.changed()).await.unwrap();
    assert!(watched.get("b", "second").is_some());
    assert!(watched.get("c", "first").is_some());
}

#[derive(Clone, Debug, Default)]
struct Counts {
    users: usize,
    maps: usize,
}

impl Index<User> for Counts {
    fn reset(&mut self, all: Vec<User>) -> bool {
        self.users = all.len();
        true
    }

    fn apply(&mut self, _: User) -> bool {
        self.users += 1;
        true
    }

    fn delete(&mut self, _: User) -> bool {
        self.users -= 1;
        true
    }
}

impl Index<ConfigMap> for Counts {
    fn reset(&mut self, all: Vec<ConfigMap>) -> bool {
        self.maps = all.len();
        true
    }

    fn apply(&mut self, _: ConfigMap) -> bool {
        self.maps += 1;
        true
    }

    fn delete(&mut self, _: ConfigMap) -> bool {
        self.maps -= 1;
        true
    }
}

#[tokio::test]
async fn an_index_of_several_kinds_is_kept_by_a_watch_of_each() {
    let (_dir, tasks, objects) = store();
    let counts = Snapshot::<Counts>::default();
    let users = objects.watch::<User>(Within::default());
    tasks.spawn("users", users.keep(counts.clone(), tasks.stopping()));
    let maps = objects.watch::<ConfigMap>(Within::default());
    tasks.spawn("maps", maps.keep(counts.clone(), tasks.stopping()));
    objects.create(&user("ada", "reader"), soon()).await.unwrap();
    objects.create(&map("ours", "one", "1"), soon()).await.unwrap();
    until(&counts, |counts| counts.users == 1 && counts.maps == 1).await;
    objects.delete::<User>(&Id::cluster("ada"), Expected::Any, soon()).await.unwrap();
    until(&counts, |counts| counts.users == 0 && counts.maps == 1).await;
    let leftover = tasks.shutdown(Duration::from_secs(5)).await;
    assert!(leftover.is_empty(), "a watch ends with its tasks: {leftover:?}");
}

/// An event about a few users, each with a few roles.
fn event() -> impl Strategy<Value = Event<User>> {
    let one = || ("[a-e]", prop::sample::select(vec!["reader", "writer", "disabled"]));
    prop_oneof![
        1 => prop::collection::vec(one(), 0..6).prop_map(|all| {
            // Names are unique in a list.
            let all: BTreeMap<String, _> = all.into_iter().collect();
            Event::Restarted(all.iter().map(|(name, role)| user(name, role)).collect())
        }),
        4 => one().prop_map(|(name, role)| Event::Applied(user(&name, role))),
        2 => one().prop_map(|(name, role)| Event::Deleted(user(&name, role))),
    ]
}

proptest! {
    /// Whatever is told, and whenever a subscriber looks, the map is what the store has, and the
    /// changes of keys add up to it.
    #[test]
    fn the_map_and_its_changes_agree_with_what_was_told(
        events in prop::collection::vec((event(), any::<bool>()), 1..40),
    ) {
        let snapshot = Snapshot::<Roles>::default();
        let mut changes = KeyChanges::of(&snapshot);
        let (mut stored, mut mirror) = (BTreeMap::new(), BTreeMap::new());
        for (event, looks) in events {
            match &event {
                Event::Restarted(all) => {
                    stored = all.iter().map(|user| (user.name_any(), user.clone())).collect();
                }
                Event::Applied(user) => drop(stored.insert(user.name_any(), user.clone())),
                Event::Deleted(user) => drop(stored.remove(&user.name_any())),
            }
            let before = snapshot.load();
            let published = snapshot.update(|watched| watched.take(event, roles));
            let now = snapshot.load();
            prop_assert_eq!(published, *before != *now);
            let kept = stored.clone().into_iter().filter_map(|(name, user)| Some((name, roles(user)?)));
            prop_assert_eq!(now.iter().map(|(k, v)| (k.clone(), v.clone())).collect::<BTreeMap<_, _>>(),
                kept.collect::<BTreeMap<_, _>>());
            if looks {
                use futures::FutureExt;
                for (name, roles) in changes.changed().now_or_never().into_iter().flatten() {
                    match roles {
                        Some(roles) => prop_assert_ne!(mirror.insert(name, roles.clone()), Some(roles)),
                        None => prop_assert!(mirror.remove(&name).is_some()),
                    }
                }
                let now: BTreeMap<_, _> = now.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
                prop_assert_eq!(&mirror, &now);
            }
        }
    }
}
