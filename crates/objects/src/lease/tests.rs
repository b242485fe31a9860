use std::sync::Arc;
use std::sync::OnceLock;

use k8s_openapi::api::coordination::v1::Lease;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::*;
use memory_store::MemoryStore;

mod kube;
pub(super) mod memory_store;

const DURATION: Duration = Duration::from_secs(10);

/// tokio's clock, which a test can pause.
pub(super) fn paused_time() -> Moment {
    static ORIGIN: OnceLock<std::time::Instant> = OnceLock::new();
    let now = Instant::now().into_std();
    now.saturating_duration_since(*ORIGIN.get_or_init(|| now))
}

fn lease() -> Id {
    Id::namespaced("ns", "leader")
}

/// When each began to lead, and when its work was told to stop.
type Diary = Arc<Mutex<Vec<(&'static str, &'static str, Instant)>>>;

/// A candidate whose work is to wait for its end.
fn stand(
    name: &'static str,
    store: &MemoryStore,
    tasks: &Tasks,
    diary: &Diary,
) -> Snapshot<Leadership> {
    let timing = Timing::of(DURATION);
    let mut election = Election::new(store.objects(), lease(), name, timing);
    election.clock = Clock::new(paused_time);
    let leadership = election.leadership();
    let (own, diary) = (tasks.clone(), Arc::clone(diary));
    tasks.spawn("election", async move {
        let lead = |leader: Leader| {
            let diary = Arc::clone(&diary);
            let stop = leader.tasks.stopping();
            leader.tasks.spawn("work", async move {
                diary.lock().push((name, "begins", Instant::now()));
                stop.stopped().await;
                diary.lock().push((name, "ends", Instant::now()));
            });
        };
        election.run(&own, lead).await;
    });
    leadership
}

async fn until<T>(snapshot: &Snapshot<T>, wanted: impl Fn(&T) -> bool) {
    let mut changes = snapshot.subscribe();
    let mut current = snapshot.load();
    while !wanted(&current) {
        current = timeout(20 * DURATION, changes.changed()).await.expect("it comes about");
    }
}

fn is_us(leadership: &Leadership) -> bool {
    matches!(leadership, Leadership::Us(_))
}

fn told(diary: &Diary) -> Vec<(&'static str, &'static str)> {
    diary.lock().iter().map(|(name, what, _)| (*name, *what)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_in_order_hands_over_at_once() {
    let (store, diary) = (MemoryStore::default(), Diary::default());
    let (a, b) = (Tasks::new("a"), Tasks::new("b"));
    let leads = stand("a", &store, &a, &diary);
    until(&leads, is_us).await;
    let follows = stand("b", &store, &b, &diary);
    until(&follows, |who| *who == Leadership::Other("a".to_owned())).await;

    let stopped = Instant::now();
    assert!(a.shutdown(DURATION).await.is_empty());
    until(&follows, is_us).await;
    assert!(stopped.elapsed() < DURATION / 4, "{:?}", stopped.elapsed());
    tokio::task::yield_now().await;
    assert_eq!(told(&diary), [("a", "begins"), ("a", "ends"), ("b", "begins")]);
    assert_eq!(*leads.load(), Leadership::Unknown);
    let Leadership::Us(token) = &*follows.load() else { panic!() };
    assert_eq!(token.term, 2);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_loses_the_store_stops_before_the_next_begins() {
    let (store, diary) = (MemoryStore::default(), Diary::default());
    let (a, b) = (Tasks::new("a"), Tasks::new("b"));
    let leads = stand("a", &store, &a, &diary);
    until(&leads, is_us).await;
    let follows = stand("b", &store.another_way(), &b, &diary);
    until(&follows, |who| *who == Leadership::Other("a".to_owned())).await;

    store.black_hole(true);
    until(&follows, is_us).await;
    tokio::task::yield_now().await;
    assert_eq!(told(&diary), [("a", "begins"), ("a", "ends"), ("b", "begins")]);
    let times: Vec<_> = diary.lock().iter().map(|(.., at)| *at).collect();
    assert!(times[2] - times[1] >= DURATION / 10, "{:?}", times[2] - times[1]);

    // Back among the others it follows.
    store.black_hole(false);
    until(&leads, |who| *who == Leadership::Other("b".to_owned())).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_store_stumbles_keeps_leading() {
    let (store, diary) = (MemoryStore::default(), Diary::default());
    let tasks = Tasks::new("a");
    let leads = stand("a", &store, &tasks, &diary);
    until(&leads, is_us).await;
    for _ in 0..5 {
        store.black_hole(true);
        tokio::time::sleep(DURATION / 3).await;
        store.black_hole(false);
        tokio::time::sleep(DURATION).await;
    }
    assert_eq!(told(&diary), [("a", "begins")]);
}

#[tokio::test(start_paused = true)]
async fn an_aborted_election_takes_its_work_along() {
    let (store, diary) = (MemoryStore::default(), Diary::default());
    let tasks = Tasks::new("a");
    let mut election = Election::new(store.objects(), lease(), "a", Timing::of(DURATION));
    election.clock = Clock::new(paused_time);
    let leads = election.leadership();
    let fences = Arc::new(Mutex::new(Vec::new()));
    let (own, kept, noted) = (tasks.clone(), Arc::clone(&fences), Arc::clone(&diary));
    let running = tasks.spawn("election", async move {
        let lead = |leader: Leader| {
            kept.lock().push(leader.fence.clone());
            let (stop, noted) = (leader.tasks.stopping(), Arc::clone(&noted));
            leader.tasks.spawn("work", async move {
                stop.stopped().await;
                noted.lock().push(("a", "ends", Instant::now()));
            });
        };
        election.run(&own, lead).await;
    });
    until(&leads, is_us).await;
    running.abort();
    assert!(running.await.is_err());
    assert!(!fences.lock()[0].is_valid());
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(told(&diary), [("a", "ends")]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_lost_and_must_run_out() {
    let (store, diary) = (MemoryStore::default(), Diary::default());
    let (a, b) = (Tasks::new("a"), Tasks::new("b"));
    let leads = stand("a", &store, &a, &diary);
    until(&leads, is_us).await;
    let follows = stand("b", &store, &b, &diary);
    until(&follows, |who| *who == Leadership::Other("a".to_owned())).await;

    let deleted = Instant::now();
    let deadline = Deadline::after(DURATION);
    store.objects().delete::<Lease>(&lease(), Expected::Any, deadline).await.unwrap();
    until(&leads, |who| !is_us(who)).await;
    assert!(deleted.elapsed() < DURATION / 2);
    tokio::select! {
        () = until(&leads, is_us) => {}
        () = until(&follows, is_us) => {}
    }
    assert!(deleted.elapsed() >= DURATION, "{:?}", deleted.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_work_ends_gives_the_lease_back() {
    let (store, diary) = (MemoryStore::default(), Diary::default());
    let (a, b) = (Tasks::new("a"), Tasks::new("b"));
    let mut election = Election::new(store.objects(), lease(), "a", Timing::of(DURATION));
    election.clock = Clock::new(paused_time);
    let leads = election.leadership();
    let own = a.clone();
    let (give_up, giving_up) = tokio::sync::watch::channel(());
    a.spawn("election", async move {
        let lead = |leader: Leader| {
            let mut giving_up = giving_up.clone();
            leader.tasks.spawn_essential("work", async move {
                let _ = giving_up.changed().await;
            });
        };
        election.run(&own, lead).await;
    });
    until(&leads, is_us).await;
    let follows = stand("b", &store, &b, &diary);
    until(&follows, |who| *who == Leadership::Other("a".to_owned())).await;
    give_up.send_replace(());
    let given_up = Instant::now();
    until(&follows, is_us).await;
    assert!(given_up.elapsed() < DURATION / 2, "{:?}", given_up.elapsed());
}

#[tokio::test(start_paused = true)]
async fn where_nobody_else_can_write_it_leads_from_the_start() {
    let (store, diary) = (MemoryStore::exclusive(), Diary::default());
    let tasks = Tasks::new("a");
    let started = Instant::now();
    let leads = stand("a", &store, &tasks, &diary);
    until(&leads, is_us).await;
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert!(tasks.shutdown(DURATION).await.is_empty());
    assert_eq!(told(&diary), [("a", "begins"), ("a", "ends")]);
    let kept = store.objects().get::<Lease>(&lease(), Deadline::after(DURATION)).await.unwrap();
    assert_eq!(kept, None, "no lease is kept");
}

#[test]
fn a_lease_has_whole_seconds() {
    assert_eq!(Timing::of(Duration::from_millis(1500)).duration, Duration::from_secs(2));
    assert_eq!(Timing::of(Duration::ZERO).duration, Duration::from_secs(1));
    let timing = Timing::default();
    assert!(timing.renew + 2 * (timing.request + timing.retry) < timing.duration * 4 / 5);
}
