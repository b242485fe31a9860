use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::{env, fs};

use kube::core::DynamicObject;
use stallproof::group_commit::GroupRequests;
use stallproof::tasks::TaskHandle;
use stallproof::{Deadline, GroupCommit, Snapshot, Tasks};
use tempfile::TempDir;

use super::writer::{Meters, QUEUE, Request};
use super::{Embedded, Type};
use crate::kinds::{User, UserSpec};
use crate::store::{Done, Operation};
use crate::{Deletion, Error, Expected, Id, Objects, Within};

fn user(name: &str, role: &str) -> User {
    let roles = vec![role.to_owned()];
    User::new(name, UserSpec { password_hash: None, roles, disabled: false })
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

#[tokio::test]
async fn it_is_closed_when_the_last_handle_is_gone() {
    let (dir, tasks, objects) = store();
    let mut watch = objects.clone().watch::<User>(Within::default());
    watch.next().await.unwrap();
    drop(objects);
    assert_eq!(watch.next().await, None);
    // Whoever sees that it is closed may open it.
    Objects::embedded(dir.path(), &tasks).unwrap();
}

#[tokio::test]
async fn a_full_queue_says_when_to_come_back() {
    let (_dir, _tasks, objects) = store();
    // On one thread nothing of the writer's answers is read before all of these have been asked.
    let creates: Vec<_> = (0..5000).map(|i| user(&format!("u{i}"), "r")).collect();
    let results =
        futures::future::join_all(creates.iter().map(|it| objects.create(it, soon()))).await;
    let made = results.iter().filter(|result| result.is_ok()).count();
    let busy = |result: &&Result<User, Error>| matches!(result, Err(Error::Busy { .. }));
    let refused = results.iter().filter(busy).count();
    assert_eq!(made + refused, 5000);
    assert!(made >= QUEUE);
    let listing = objects.list::<User>(&Within::default(), soon()).await.unwrap();
    assert_eq!(listing.items.len(), made, "what was refused is not there, what was made is");
}

/// The engine with a writer that is this test.
fn without_writer() -> (Arc<Embedded>, GroupRequests<Box<Request>>) {
    let (queue, requests) = GroupCommit::channel(QUEUE);
    let (state, meters) = (Snapshot::default(), Meters::default());
    (Arc::new(Embedded { state, queue, meters }), requests)
}

fn create(engine: &Arc<Embedded>, tasks: &Tasks) -> TaskHandle<Result<Done, Error>> {
    let engine = Arc::clone(engine);
    let object = DynamicObject::new("a", &Type::of::<User>().resource);
    let deadline = Deadline::after(Duration::from_secs(1));
    tasks.spawn("create", async move {
        let operation = Operation::Create(object);
        engine.commit(Type::of::<User>(), operation, deadline).await
    })
}

async fn received(requests: &mut GroupRequests<Box<Request>>) -> Request {
    *requests.next().await.expect("not a write")
}

#[tokio::test(start_paused = true)]
async fn who_waits_too_long_for_a_commit_to_begin_takes_the_request_back() {
    let (engine, mut requests) = without_writer();
    let refused = create(&engine, &Tasks::new("test")).await.unwrap().map(drop);
    assert!(matches!(refused, Err(Error::TooLate { .. })), "{refused:?}");
    assert!(received(&mut requests).await.taken.load(Ordering::Acquire), "nobody may apply it");
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_commit_that_has_begun_is_told_what_became_of_it() {
    let (engine, mut requests) = without_writer();
    let caller = create(&engine, &Tasks::new("test"));
    let request = received(&mut requests).await;
    assert!(!request.taken.swap(true, Ordering::AcqRel));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(request.deadline.has_passed());
    let outcome = Done::Deletion(Deletion::Gone);
    assert!(request.answer.send(Ok(outcome)).is_ok(), "it still waits");
    assert!(caller.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_does_not_hold_its_callers_for_ever() {
    let (engine, mut requests) = without_writer();
    let caller = create(&engine, &Tasks::new("test"));
    let request = received(&mut requests).await;
    request.taken.store(true, Ordering::Release);
    let refused = caller.await.unwrap().map(drop).unwrap_err();
    let cause = std::error::Error::source(&refused).unwrap().to_string();
    assert!(cause.contains("not known"), "{cause}");
}

const INSIDE: &str = "FAIRLEAD_TEST_INSIDE";

/// On a file system of two MiB, in a mount namespace that ends with the process.
#[tokio::test]
async fn a_full_disk_refuses_writes_keeps_reads_and_heals_by_itself() {
    testkit::requires!(root);
    let name = "embedded::tests::a_full_disk_refuses_writes_keeps_reads_and_heals_by_itself";
    if env::var_os(INSIDE).is_none() {
        let script = r#"mount -t tmpfs -o size=2m,mode=0700 tmpfs "$1" && exec "$2" --exact "$3" --nocapture"#;
        let dir = tempfile::tempdir().unwrap();
        let exe = env::current_exe().unwrap();
        let inside = Command::new("unshare")
            .args(["--mount", "sh", "-c", script, "sh"])
            .args([dir.path().as_os_str(), exe.as_os_str(), name.as_ref()])
            .env(INSIDE, dir.path())
            .output()
            .unwrap();
        let said = [inside.stdout, inside.stderr].concat();
        assert!(inside.status.success(), "{}", String::from_utf8_lossy(&said));
        return;
    }
    let dir = env::var_os(INSIDE).unwrap();
    let dir = std::path::Path::new(&dir);
    let tasks = Tasks::new("test");
    let objects = Objects::embedded(dir, &tasks).unwrap();
    let mut watch = objects.watch::<User>(Within::default());
    watch.next().await.unwrap();

    for round in 0..3 {
        let name = |i: usize| format!("u{round}-{i}");
        // All of the rest is somebody else's.
        let ballast = dir.join("ballast");
        fs::write(&ballast, vec![1; 4 << 20]).unwrap_err();
        let mut acknowledged = 0;
        let refused = loop {
            match objects.create(&user(&name(acknowledged), &"r".repeat(200)), soon()).await {
                Ok(_) => acknowledged += 1,
                Err(error) => break error,
            }
            assert!(acknowledged < 20_000, "the disk is not full");
        };
        assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");
        let cause = std::error::Error::source(&refused).unwrap().to_string();
        assert!(cause.contains("objects.redb") && cause.contains("No space left"), "{cause}");

        let listing = objects.list::<User>(&Within::default(), soon()).await.unwrap();
        let there = listing
            .items
            .iter()
            .filter(|it| it.metadata.name.as_ref().unwrap().starts_with(&format!("u{round}-")))
            .count();
        assert_eq!(there, acknowledged, "what was acknowledged can be read, and nothing else");

        fs::remove_file(&ballast).unwrap();
        let healed = async {
            while objects.create(&user(&format!("healed{round}"), "r"), soon()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        soon().bound(healed).await.expect("it heals when there is space again");
        // The watcher was told of everything that was acknowledged, once, and of nothing else.
        let mut told = 0;
        loop {
            let Some(crate::Event::Applied(it)) = watch.next().await else { panic!("a gap") };
            if it.metadata.name == Some(format!("healed{round}")) {
                break;
            }
            told += 1;
        }
        assert_eq!(told, acknowledged);
        for i in 0..acknowledged {
            objects.delete::<User>(&Id::cluster(name(i)), Expected::Any, soon()).await.unwrap();
            watch.next().await.unwrap();
        }
    }
    let before = objects.list::<User>(&Within::default(), soon()).await.unwrap();
    tasks.shutdown(Duration::from_secs(10)).await;
    let objects = Objects::embedded(dir, &Tasks::new("again")).unwrap();
    let after = objects.list::<User>(&Within::default(), soon()).await.unwrap();
    assert_eq!((after.items, after.version), (before.items, before.version));
}
