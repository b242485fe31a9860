use std::future::{pending, ready};
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use tokio::sync::oneshot;
use tokio::time::{advance, sleep};

use super::*;

type Names = Fresh<&'static str, u32, Refused>;

#[derive(Debug, PartialEq, thiserror::Error)]
#[error("refused")]
struct Refused;

const CONFIG: FreshConfig = FreshConfig {
    name: "test",
    yes: Duration::from_secs(60),
    no: Duration::from_secs(5),
    lookup: Duration::from_secs(10),
    answers: 100,
    lookups: 8,
};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(1))
}

fn late() -> Deadline {
    Deadline::after(Duration::from_secs(3600))
}

/// Asks where a lookup would answer `found`.
async fn ask(names: &Names, key: &'static str, found: Option<u32>) -> Option<u32> {
    let answer = names.get(&key, late(), move |_| ready(Ok(found))).await.unwrap();
    answer.value.as_deref().copied()
}

type Found = Result<Option<u32>, Refused>;

/// A lookup that answers what is sent.
fn on_call() -> (oneshot::Sender<Found>, impl Future<Output = Found>) {
    let (send, receive) = oneshot::channel();
    (send, async { receive.await.expect("the test answers") })
}

#[tokio::test(start_paused = true)]
async fn a_yes_outlives_a_no() {
    let names = Names::new(CONFIG);
    assert_eq!(ask(&names, "there", Some(1)).await, Some(1));
    assert_eq!(ask(&names, "not", None).await, None);
    assert_eq!(ask(&names, "not", Some(2)).await, None, "a no is kept for a while");

    advance(CONFIG.no).await;
    assert_eq!(ask(&names, "not", Some(2)).await, Some(2), "and not for ever");
    assert_eq!(ask(&names, "there", Some(9)).await, Some(1));
    let answer = names.get(&"there", late(), |_| ready(Ok(Some(9)))).await.unwrap();
    assert_eq!(answer.age(), CONFIG.no);

    advance(CONFIG.yes - CONFIG.no).await;
    assert_eq!(ask(&names, "there", Some(9)).await, Some(9));
}

#[tokio::test(start_paused = true)]
async fn an_answer_ages_from_the_start_of_its_lookup() {
    let names = Names::new(CONFIG);
    let slow = |_| async {
        sleep(CONFIG.no + Duration::from_secs(1)).await;
        Ok(None)
    };
    let answer = names.get(&"a", late(), slow).await.unwrap();
    assert_eq!(answer.age(), CONFIG.no + Duration::from_secs(1));
    assert_eq!(ask(&names, "a", Some(1)).await, Some(1), "too old to be kept");
}

#[tokio::test(start_paused = true)]
async fn a_crowd_makes_one_lookup() {
    let names = Names::new(CONFIG);
    let lookups = Arc::new(AtomicUsize::new(0));
    let calls = (0..1000).map(|_| {
        let lookups = Arc::clone(&lookups);
        names.get(&"a", soon(), move |_| async move {
            lookups.fetch_add(1, Ordering::SeqCst);
            sleep(Duration::from_millis(100)).await;
            Ok(Some(1))
        })
    });
    let answers = futures::future::join_all(calls).await;
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap().value.as_deref() == Some(&1)));
    assert_eq!(lookups.load(Ordering::SeqCst), 1);
    assert_eq!(names.0.counts.joined.get(), 999);
}

#[tokio::test(start_paused = true)]
async fn an_error_reaches_everyone_who_waited_and_is_not_kept() {
    let names = Names::new(CONFIG);
    let (answer, lookup) = on_call();
    let one = names.get(&"a", soon(), |_| lookup);
    let two = names.get(&"a", soon(), |_| pending());
    let (one, two, _) = tokio::join!(one, two, async { answer.send(Err(Refused)) });
    assert!(matches!(one, Err(LookupError::Failed(error)) if *error == Refused));
    assert!(matches!(two, Err(LookupError::Failed(error)) if *error == Refused));
    assert_eq!(ask(&names, "a", Some(1)).await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_an_error_wherever_it_happens() {
    let names = Names::new(CONFIG);
    let inside = names.get(&"a", soon(), |_| async { panic!("in the lookup") }).await;
    assert!(matches!(inside, Err(LookupError::Panicked(said)) if &*said == "in the lookup"));
    let before = names.get(&"a", soon(), |_| -> std::future::Ready<_> { panic!("{}", 1) }).await;
    assert!(matches!(before, Err(LookupError::Panicked(said)) if &*said == "1"));
    assert_eq!(ask(&names, "a", Some(1)).await, Some(1));
    assert_eq!(names.0.state.lock().under_way, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lookup_ends_at_its_own_deadline() {
    let names = Names::new(CONFIG);
    let start = Instant::now();
    let told = Arc::new(Mutex::new(None));
    let stuck = names.get(&"a", late(), {
        let told = Arc::clone(&told);
        move |deadline| {
            *told.lock() = Some(deadline);
            pending()
        }
    });
    assert!(matches!(stuck.await, Err(LookupError::TooSlow(after)) if after == CONFIG.lookup));
    assert_eq!(start.elapsed(), CONFIG.lookup);
    assert_eq!(told.lock().map(Deadline::instant), Some(start + CONFIG.lookup));
}

#[tokio::test(start_paused = true)]
async fn a_callers_deadline_ends_only_its_own_wait() {
    let names = Names::new(CONFIG);
    let lookup = |_| async {
        sleep(Duration::from_secs(5)).await;
        Ok(Some(1))
    };
    let hasty = names.get(&"a", soon(), lookup);
    let patient = names.get(&"a", late(), |_| pending());
    let (hasty, patient) = tokio::join!(hasty, patient);
    assert!(matches!(hasty, Err(LookupError::Expired)));
    assert_eq!(patient.unwrap().value.as_deref(), Some(&1));
}

#[tokio::test(start_paused = true)]
async fn whoever_began_the_lookup_may_go_away() {
    let names = Names::new(CONFIG);
    let (answer, lookup) = on_call();
    let mut leader = Box::pin(names.get(&"a", soon(), |_| lookup));
    let mut follower = Box::pin(names.get(&"a", soon(), |_| pending()));
    assert!((&mut leader).now_or_never().is_none());
    assert!((&mut follower).now_or_never().is_none());
    drop(leader);
    answer.send(Ok(Some(1))).unwrap();
    assert_eq!(follower.await.unwrap().value.as_deref(), Some(&1));
}

#[tokio::test(start_paused = true)]
async fn when_all_are_gone_the_lookup_is_dropped() {
    let names = Names::new(CONFIG);
    let (answer, lookup) = on_call();
    let mut only = Box::pin(names.get(&"a", soon(), |_| lookup));
    assert!((&mut only).now_or_never().is_none());
    drop(only);
    assert!(answer.is_closed(), "nobody is left to drive it");
    assert_eq!(names.0.state.lock().under_way, 0);
    assert!(names.0.state.lock().flights.is_empty());
    assert_eq!(ask(&names, "a", Some(2)).await, Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_reset_reaches_the_next_call() {
    let names = Names::new(CONFIG);
    for reset in [|names: &Names| names.reset(&"a"), |names: &Names| names.reset_all()] {
        names.reset_all();
        assert_eq!(ask(&names, "a", None).await, None);
        reset(&names);
        assert_eq!(ask(&names, "a", Some(1)).await, Some(1));
    }
    ask(&names, "b", Some(1)).await;
    names.reset(&"a");
    assert_eq!(ask(&names, "b", Some(2)).await, Some(1), "other keys keep theirs");
}

#[tokio::test(start_paused = true)]
async fn a_lookup_from_before_a_reset_is_neither_joined_nor_kept() {
    let names = Names::new(CONFIG);
    let (old_answer, lookup) = on_call();
    let mut old = Box::pin(names.get(&"a", soon(), |_| lookup));
    assert!((&mut old).now_or_never().is_none());
    names.reset(&"a");

    let (new_answer, lookup) = on_call();
    let mut new = Box::pin(names.get(&"a", soon(), |_| lookup));
    assert!((&mut new).now_or_never().is_none());
    old_answer.send(Ok(None)).unwrap();
    assert_eq!(old.await.unwrap().value, None, "those who called before the reset are served");

    let joined = names.get(&"a", soon(), |_| pending());
    new_answer.send(Ok(Some(1))).unwrap();
    assert_eq!(joined.await.unwrap().value.as_deref(), Some(&1));
    assert_eq!(new.await.unwrap().value.as_deref(), Some(&1));
    assert_eq!(ask(&names, "a", None).await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn lookups_are_bounded_and_a_stuck_one_frees_its_place_in_time() {
    let names = Names::new(FreshConfig { lookups: 1, ..CONFIG });
    let mut stuck = Box::pin(names.get(&"a", late(), |_| pending()));
    assert!((&mut stuck).now_or_never().is_none());
    names.reset(&"a");
    let refused = names.get(&"b", soon(), |_| ready(Ok(None))).await;
    let Err(LookupError::Busy { retry_after }) = refused else { panic!("{refused:?}") };
    assert_eq!(retry_after, CONFIG.lookup, "nothing better is known yet");
    assert!(stuck.await.is_err());
    assert_eq!(ask(&names, "b", Some(1)).await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_refused_caller_is_told_how_long_lookups_take() {
    let names = Names::new(FreshConfig { lookups: 1, ..CONFIG });
    for _ in 0..100 {
        names.reset_all();
        let brief = |_| async {
            sleep(Duration::from_millis(20)).await;
            Ok(None)
        };
        names.get(&"a", late(), brief).await.unwrap();
    }
    let mut stuck = Box::pin(names.get(&"b", late(), |_| pending()));
    assert!((&mut stuck).now_or_never().is_none());
    let refused = names.get(&"c", soon(), |_| ready(Ok(None))).await;
    let Err(LookupError::Busy { retry_after }) = refused else { panic!("{refused:?}") };
    assert!(retry_after < Duration::from_millis(30), "{retry_after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_has_passed_begins_nothing_but_is_served_what_is_kept() {
    let names = Names::new(CONFIG);
    let passed = || Deadline::at(Instant::now());
    let none = names.get(&"a", passed(), |_| -> std::future::Ready<_> { unreachable!() }).await;
    assert!(matches!(none, Err(LookupError::Expired)));
    ask(&names, "a", Some(1)).await;
    assert!(names.get(&"a", passed(), |_| pending()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn no_answer_is_kept_for_ever() {
    let (yes, no, lookup) = (Duration::MAX, Duration::MAX, Duration::MAX);
    let names = Names::new(FreshConfig { yes, no, lookup, ..CONFIG });
    ask(&names, "a", None).await;
    advance(LONGEST).await;
    assert_eq!(ask(&names, "a", Some(1)).await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn the_metrics_tell_what_lookups_came_to() {
    let names = Names::new(CONFIG);
    ask(&names, "a", Some(1)).await;
    ask(&names, "a", Some(1)).await;
    ask(&names, "b", None).await;
    let mut registry = Registry::default();
    names.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        r#"fresh_hits_total{fresh="test"} 1"#,
        r#"fresh_lookups_total{fresh="test",outcome="yes"} 1"#,
        r#"fresh_lookups_total{fresh="test",outcome="no"} 1"#,
        r#"fresh_lookup_seconds_count{fresh="test"} 2"#,
    ] {
        assert!(text.lines().any(|other| other == line), "no {line} in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_unknown_keys_displaces_no_yes() {
    let names = Fresh::<u32, u32, Refused>::new(FreshConfig { answers: 10, ..CONFIG });
    let get = async |key: u32, found: Option<u32>| {
        names.get(&key, late(), move |_| ready(Ok(found))).await.unwrap().value.as_deref().copied()
    };
    get(0, Some(1)).await;
    for key in 1..1000 {
        get(key, None).await;
    }
    assert_eq!(names.0.state.lock().answers.iter(Instant::now()).count(), 10);
    assert_eq!(get(0, Some(2)).await, Some(1));
}

proptest! {
    #[test]
    fn lifetimes_are_cut_by_a_tenth_at_most(chance in 0.0..1.0, yes in any::<bool>()) {
        let answer = CachedAnswer { value: yes.then(|| Arc::new(())), asked: Instant::now() };
        let life = CONFIG.lifetime(&answer, chance);
        let most = if yes { CONFIG.yes } else { CONFIG.no };
        prop_assert!(most * 9 / 10 <= life && life <= most);
    }

    /// Whatever the order of calls, resets and pauses: what is served is what the last lookup
    /// since the last reset found, and not older than it may be.
    #[test]
    fn what_is_served_is_fresh(steps in proptest::collection::vec((0_u8..6, 0_usize..3), 0..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let names = Fresh::<usize, usize, Refused>::new(FreshConfig { answers: 2, ..CONFIG });
            let mut reset_at = [0; 3];
            for (at, (step, key)) in steps.into_iter().enumerate() {
                match step {
                    0 => advance(Duration::from_secs(2)).await,
                    1 => {
                        names.reset(&key);
                        reset_at[key] = at;
                    }
                    2 if key == 0 => {
                        names.reset_all();
                        reset_at = [at; 3];
                    }
                    _ => {
                        let found = move |_| ready(Ok(Some(at)));
                        let answer = names.get(&key, late(), found).await.unwrap();
                        assert!(answer.age() <= CONFIG.yes);
                        assert!(*answer.value.unwrap() >= reset_at[key], "from before the reset");
                    }
                }
            }
        });
    }
}
