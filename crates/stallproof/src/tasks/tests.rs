use std::future::pending;
use std::sync::mpsc;

use tokio::time::advance;

use super::*;

const GRACE: Duration = Duration::from_secs(10);

fn soon() -> Deadline {
    Deadline::after(GRACE)
}

#[tokio::test(start_paused = true)]
async fn a_task_gives_its_result_and_leaves() {
    let tasks = Tasks::new("fairlead");
    let task = tasks.spawn("adder", async { 1 + 1 });
    assert_eq!(task.await, Ok(2));
    assert_eq!(tasks.list(), []);
    assert_eq!(tasks.shutdown(GRACE).await, []);
}

#[tokio::test(start_paused = true)]
async fn running_tasks_are_listed_with_group_and_age() {
    let tasks = Tasks::new("fairlead");
    let guard = tasks.child("guard");
    tasks.spawn("top", pending::<()>());
    advance(Duration::from_secs(1)).await;
    guard.spawn("ingest", pending::<()>());
    let line = line!() - 1;
    advance(Duration::from_secs(2)).await;

    let listed: Vec<_> =
        tasks.list().into_iter().map(|view| (view.group, view.name, view.age_ms)).collect();
    let expected = [("fairlead", "top", 3000), ("fairlead/guard", "ingest", 2000)];
    assert_eq!(listed, expected.map(|(g, n, age)| (g.to_owned(), n.to_owned(), age)));
    let [ingest] = guard.list().try_into().unwrap();
    assert!(ingest.spawned_at.starts_with(&format!("{}:{line}:", file!())));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_those_who_leave_in_time() {
    let tasks = Tasks::new("fairlead");
    let stop = tasks.stopping();
    tasks.spawn("tidy", async move {
        stop.stopped().await;
        tokio::time::sleep(GRACE / 2).await;
    });
    let began = Instant::now();
    assert_eq!(tasks.shutdown(GRACE).await, []);
    assert_eq!(began.elapsed(), GRACE / 2);
    assert_eq!(tasks.stopping().reason(), Some("shutdown"));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_names_and_aborts_who_does_not_leave() {
    let tasks = Tasks::new("fairlead");
    let deaf = tasks.child("guard").spawn("deaf", pending::<()>());
    let line = line!() - 1;
    tasks.spawn("good", {
        let stop = tasks.stopping();
        async move { stop.stopped().await }
    });
    advance(Duration::from_secs(5)).await;

    let [left] = tasks.shutdown(GRACE).await.try_into().unwrap();
    assert_eq!(left.name, "fairlead/guard/deaf");
    assert_eq!(left.running_for, Duration::from_secs(15));
    assert_eq!((left.spawned_at.file(), left.spawned_at.line()), (file!(), line));
    assert!(!left.blocked);
    assert_eq!(deaf.await, Err(TaskError::Aborted));
    assert_eq!(tasks.list(), []);
}

#[tokio::test(start_paused = true)]
async fn a_blocked_thread_is_reported_as_one() {
    let tasks = Tasks::new("fairlead");
    let (begun, begins) = tokio::sync::oneshot::channel();
    let (free, blocked) = mpsc::channel::<()>();
    let work = move || {
        begun.send(()).unwrap();
        let _ = blocked.recv();
    };
    let task = tasks.spawn_blocking("stuck", soon(), work).await.unwrap();
    begins.await.unwrap();
    // Blocking work keeps the paused clock still, so there is no grace to wait for.
    let shutdown = tasks.shutdown(Duration::ZERO);
    let time = async {
        tokio::task::yield_now().await;
        advance(ABORT_GRACE).await;
    };
    let (left, ()) = tokio::join!(shutdown, time);
    assert_eq!(left.len(), 1);
    assert!(left[0].blocked);
    assert_eq!(tasks.list().len(), 1, "it is still there, and still known");
    drop(free);
    assert_eq!(task.await, Ok(()));
    assert_eq!(tasks.list(), []);
}

#[tokio::test(start_paused = true)]
async fn a_group_stops_without_its_siblings() {
    let tasks = Tasks::new("fairlead");
    let (guard, mesh) = (tasks.child("guard"), tasks.child("mesh"));
    for group in [&guard, &mesh] {
        let stop = group.stopping();
        group.spawn("waits", async move { stop.stopped().await });
    }
    assert_eq!(guard.shutdown(GRACE).await, []);
    assert!(guard.stopping().is_stopped());
    assert!(!mesh.stopping().is_stopped() && !tasks.stopping().is_stopped());
    assert_eq!(tasks.list().len(), 1);
    tasks.stop("signal");
    assert_eq!(mesh.stopping().reason(), Some("signal"));
    assert_eq!(guard.stopping().reason(), Some("shutdown"));
}

#[tokio::test(start_paused = true)]
async fn a_panic_ends_its_task_and_no_other() {
    let tasks = Tasks::new("fairlead");
    let other = tasks.spawn("other", async { tokio::task::yield_now().await });
    let task = tasks.spawn("broken", async { panic!("as the test wants") });
    assert_eq!(task.await, Err::<(), _>(TaskError::Panicked("as the test wants".into())));
    assert_eq!(other.await, Ok(()));
    let blocking = || assert_eq!(1 + 1, 3, "blocking");
    let task = tasks.spawn_blocking("broken", soon(), blocking).await.unwrap();
    let Err(TaskError::Panicked(said)) = task.await else { panic!("it should have panicked") };
    assert!(said.contains("blocking"), "{said}");
    assert_eq!(tasks.tree.panics.get(), 2);
    assert!(!tasks.stopping().is_stopped());
    assert_eq!(tasks.list(), []);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_an_essential_task_stops_its_group() {
    let tasks = Tasks::new("fairlead");
    let reason_after = async |name: &'static str, task: fn(&Tasks) -> TaskHandle<()>| {
        let group = tasks.child(name);
        let _ = task(&group).await;
        group.stopping().stopped().await;
        group.stopping().reason().unwrap().to_owned()
    };
    let ended = reason_after("a", |group| group.spawn_essential("main", async {})).await;
    assert_eq!(ended, "essential task fairlead/a/main has ended");
    let panicked = |group: &Tasks| group.spawn_essential("main", async { panic!("oh") });
    let panicked = reason_after("b", panicked).await;
    assert_eq!(panicked, "essential task fairlead/b/main panicked: oh");
    let aborted = |group: &Tasks| {
        let task = group.spawn_essential("main", pending());
        task.abort();
        task
    };
    let aborted = reason_after("c", aborted).await;
    assert_eq!(aborted, "essential task fairlead/c/main was aborted");
    assert!(!tasks.stopping().is_stopped());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_handle_leaves_the_task_to_its_group() {
    let tasks = Tasks::new("fairlead");
    drop(tasks.spawn("lives", pending::<()>()));
    tokio::task::yield_now().await;
    assert_eq!(tasks.list().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn work_bound_to_the_stop_is_dropped_with_it() {
    let tasks = Tasks::new("fairlead");
    let stop = tasks.stopping();
    assert_eq!(stop.bound(async { 1 }).await, Some(1));
    tasks.stop("enough");
    assert_eq!(stop.bound(pending::<()>()).await, None);
}

#[tokio::test(start_paused = true)]
async fn blocking_work_is_bounded_and_waits_until_its_deadline() {
    let tasks = Tasks::new("fairlead");
    let mut running = Vec::new();
    let mut frees = Vec::new();
    for _ in 0..BLOCKING {
        let (free, blocked) = mpsc::channel::<()>();
        let work = move || blocked.recv().unwrap_err();
        running.push(tasks.spawn_blocking("work", soon(), work).await.unwrap());
        frees.push(free);
    }
    let refused = tasks.spawn_blocking("late", Deadline::at(Instant::now()), || ()).await;
    assert_eq!(refused.err(), Some(Expired));

    let below = tasks.child("below");
    let waits = below.spawn_blocking("next", soon(), || 7);
    let (next, ()) = tokio::join!(waits, async { drop(frees.pop()) });
    assert_eq!(next.unwrap().await, Ok(7));
    drop(frees);
    for task in running {
        task.await.unwrap();
    }
}

#[test]
fn tasks_that_die_with_their_runtime_leave_too() {
    let tasks = Tasks::new("fairlead");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { drop(tasks.spawn("lives", pending::<()>())) });
    assert_eq!(tasks.tree.gauge.get(), 1);
    drop(runtime);
    assert_eq!((tasks.tree.gauge.get(), tasks.list().len()), (0, 0));
}
