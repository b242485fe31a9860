use std::sync::Mutex;
use std::time::Duration;

use proptest::prelude::*;
use stallproof::ledger::Filter;
use stallproof::snapshot::Changes;
use stallproof::{Snapshot, Tasks};

use super::*;

const PACE: Pace = Pace {
    attempt: Duration::from_secs(5),
    resync: Duration::from_secs(60),
    settle: Duration::from_secs(1),
    retry: Curve { first: Duration::from_secs(2), most: Duration::from_secs(30) },
};

/// What a test lets an attempt do.
#[derive(Clone, Copy, Debug)]
enum Script {
    Succeeds,
    Again(u64),
    Finishes,
    Fails(&'static str),
    Takes(u64),
    Hangs,
    Panics,
}

use Script::{Again, Fails, Finishes, Hangs, Panics, Succeeds, Takes};

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Failure(&'static str);

/// Does what the script says, then succeeds for ever. Notes when each attempt began and ended.
struct Scripted {
    script: Vec<Script>,
    wanted: Snapshot<u64>,
    changes: Changes<u64>,
    made: Arc<Mutex<Vec<Made>>>,
}

#[derive(Clone, Copy, Debug)]
struct Made {
    began: Instant,
    ended: Option<Instant>,
    /// What was wanted when it began.
    wanted: u64,
}

impl Reconciler for Scripted {
    type Error = Failure;

    async fn reconcile(&mut self, attempt: &Attempt) -> Result<Next, Failure> {
        attempt.step("apply");
        let made = Made { began: Instant::now(), ended: None, wanted: *self.wanted.load() };
        self.made.lock().unwrap().push(made);
        let does = if self.script.is_empty() { Succeeds } else { self.script.remove(0) };
        let result = match does {
            Succeeds => Ok(Next::OnChange),
            Again(seconds) => Ok(Next::Within(Duration::from_secs(seconds))),
            Finishes => Ok(Next::Finished),
            Fails(why) => Err(Failure(why)),
            Takes(seconds) => {
                sleep(Duration::from_secs(seconds)).await;
                Ok(Next::OnChange)
            }
            Hangs => pending().await,
            Panics => panic!("as the script says"),
        };
        self.made.lock().unwrap().last_mut().unwrap().ended = Some(Instant::now());
        result
    }

    async fn changed(&mut self) {
        self.changes.changed().await;
    }
}

/// One scripted reconciler that runs.
struct Bench {
    tasks: Tasks,
    ledger: Ledger,
    wanted: Snapshot<u64>,
    made: Arc<Mutex<Vec<Made>>>,
    began: Instant,
}

impl Bench {
    fn new() -> Self {
        Self {
            tasks: Tasks::new("test"),
            ledger: Ledger::default(),
            wanted: Snapshot::new(0),
            made: Arc::default(),
            began: Instant::now(),
        }
    }

    fn scripted(&self, script: &[Script]) -> Scripted {
        let (wanted, made) = (self.wanted.clone(), Arc::clone(&self.made));
        Scripted { script: script.to_vec(), changes: wanted.subscribe(), wanted, made }
    }

    fn start(script: &[Script]) -> (Self, TaskHandle<()>) {
        let bench = Self::new();
        let (ledger, stop) = (bench.ledger.clone(), bench.tasks.stopping());
        let work = reconcile("work", "a".to_owned(), PACE, bench.scripted(script), ledger, stop);
        let task = bench.tasks.spawn("work", work);
        (bench, task)
    }

    fn change(&self) {
        self.wanted.update(|wanted| {
            *wanted += 1;
            true
        });
    }

    /// When attempts began, in seconds since the start.
    fn times(&self) -> Vec<f64> {
        let made = self.made.lock().unwrap();
        made.iter().map(|made| (made.began - self.began).as_secs_f64()).collect()
    }

    /// The time from each attempt to the next.
    fn gaps(&self) -> Vec<f64> {
        self.times().windows(2).map(|pair| pair[1] - pair[0]).collect()
    }
}

async fn seconds(seconds: f64) {
    sleep(Duration::from_secs_f64(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_made_at_once_and_then_now_and_then() {
    let (bench, _task) = Bench::start(&[]);
    seconds(1000.0).await;
    assert!(bench.times()[0] < 0.01);
    let gaps = bench.gaps();
    assert!(gaps.len() >= 12, "{gaps:?}");
    assert!(gaps.iter().all(|gap| (45.0..=75.1).contains(gap)), "{gaps:?}");
    assert!(gaps.iter().any(|gap| *gap < 58.0) && gaps.iter().any(|gap| *gap > 62.0), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn changes_that_come_together_are_one_attempt() {
    let (bench, _task) = Bench::start(&[]);
    seconds(10.0).await;
    for _ in 0..8 {
        bench.change();
        seconds(0.1).await;
    }
    seconds(20.0).await;
    let times = bench.times();
    assert_eq!(times.len(), 2, "{times:?}");
    assert!((10.9..11.2).contains(&times[1]), "once they have settled: {times:?}");
    assert_eq!(bench.made.lock().unwrap()[1].wanted, 8, "and it sees the last of them");
}

#[tokio::test(start_paused = true)]
async fn a_change_during_an_attempt_is_followed_by_another() {
    let (bench, _task) = Bench::start(&[Takes(4)]);
    seconds(2.0).await;
    bench.change();
    seconds(10.0).await;
    let times = bench.times();
    assert_eq!(times.len(), 2, "{times:?}");
    assert!((4.9..5.2).contains(&times[1]), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn failures_wait_longer_each_time_and_a_success_begins_anew() {
    let mut script = vec![Fails("no"); 8];
    script.extend([Succeeds, Fails("no"), Fails("no")]);
    let (bench, _task) = Bench::start(&script);
    seconds(400.0).await;
    let gaps = bench.gaps();
    // Half of each wait is by chance.
    for (gap, most) in gaps.iter().zip([2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0]) {
        assert!((most / 2.0..=most + 0.1).contains(gap), "{gap} of {most}: {gaps:?}");
    }
    assert!(gaps[8] >= 45.0, "after a success it waits for a change: {gaps:?}");
    assert!(gaps[9] <= 2.1, "and begins anew: {gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn a_change_brings_a_failed_attempt_back_sooner_but_a_flood_of_changes_is_no_flood_of_attempts()
 {
    let (bench, _task) = Bench::start(&[Fails("no"); 1000]);
    seconds(300.0).await;
    let before = bench.times().len();
    bench.change();
    seconds(7.0).await;
    assert_eq!(bench.times().len(), before + 1, "within a fifth of the longest wait");

    let before = bench.times().len();
    for _ in 0..1200 {
        bench.change();
        seconds(0.1).await;
    }
    let attempts = bench.times().len() - before;
    assert!((15..=45).contains(&attempts), "{attempts} attempts in two minutes");
}

#[tokio::test(start_paused = true)]
async fn a_stuck_attempt_is_on_the_ledger_and_is_dropped_at_its_deadline() {
    let (bench, _task) = Bench::start(&[Hangs]);
    seconds(4.0).await;
    let all = bench.ledger.in_flight(&Filter::default());
    let [op] = all.as_slice() else { panic!("not one operation: {all:?}") };
    assert_eq!((op.kind, &*op.key, op.step), ("work", "a", "apply"));
    seconds(4.0).await;
    assert_eq!(bench.times().len(), 2, "it is tried again: {:?}", bench.times());
    assert!((6.0..7.1).contains(&bench.times()[1]), "after the wait: {:?}", bench.times());
    assert!(bench.ledger.in_flight(&Filter::default()).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_reconciler_may_ask_to_look_again_sooner_and_may_be_finished() {
    let (bench, task) = Bench::start(&[Again(0), Again(3), Again(1000), Finishes]);
    task.await.unwrap();
    let times = bench.times();
    assert!(times[1] < 0.1 && (2.9..3.2).contains(&times[2]), "{times:?}");
    assert!((48.0..=78.2).contains(&times[3]), "never later than it would be: {times:?}");
}

#[tokio::test(start_paused = true)]
async fn it_ends_with_its_tasks_also_in_the_middle_of_an_attempt() {
    let (bench, task) = Bench::start(&[Hangs]);
    seconds(1.0).await;
    assert!(bench.tasks.shutdown(Duration::from_millis(10)).await.is_empty());
    task.await.unwrap();
    assert!(bench.ledger.in_flight(&Filter::default()).is_empty());
}

#[test]
fn a_failure_is_told_once_until_it_is_another_or_over() {
    let mut trouble = Trouble::default();
    let mut met = |failure: &str| {
        let before = trouble.0.clone();
        trouble.met("work", "a", failure.to_owned(), 1);
        assert_eq!(trouble.0.as_deref(), Some(failure));
        before != trouble.0
    };
    assert!(met("away") && !met("away") && met("forbidden") && met("away"));
    trouble.over("work", "a");
    assert_eq!(trouble.0, None);
}

#[tokio::test(start_paused = true)]
async fn a_stuck_key_costs_one_place_and_the_others_go_on() {
    let bench = Bench::new();
    let mut all = Reconcilers::new("work", PACE, 2, &bench.ledger, &bench.tasks);
    let stuck = Bench::new();
    all.begin(&"stuck", || stuck.scripted(&[Hangs; 100]));
    let keys: Vec<String> = (0..20).map(|number| format!("key-{number}")).collect();
    let keys: Vec<&'static str> = keys.into_iter().map(|key| &*key.leak()).collect();
    for key in &keys {
        all.begin(key, || bench.scripted(&[Takes(1)]));
    }
    seconds(3.0).await;
    let in_flight = bench.ledger.in_flight(&Filter::default());
    let waiting = in_flight.iter().filter(|op| op.waits_on.is_some()).count();
    assert_eq!(in_flight.len() - waiting, 2, "two places: {in_flight:?}");
    seconds(18.0).await;
    assert_eq!(bench.times().len(), 20, "one after the other through the place that is left");
    assert!(stuck.times().len() >= 2, "and the stuck one goes on trying");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_removed_ends_and_one_that_panicked_is_begun_anew() {
    let bench = Bench::new();
    let mut all = Reconcilers::new("work", PACE, 4, &bench.ledger, &bench.tasks);
    all.begin(&"a", || bench.scripted(&[Hangs]));
    all.begin(&"b", || bench.scripted(&[Panics]));
    seconds(1.0).await;
    assert_eq!(bench.times().len(), 2);
    all.begin(&"a", || -> Scripted { panic!("it is under way") });
    all.begin(&"b", || bench.scripted(&[]));
    seconds(1.0).await;
    assert_eq!(bench.times().len(), 3);
    all.retain(|key| *key == "b");
    seconds(1.0).await;
    assert!(bench.ledger.in_flight(&Filter::default()).is_empty(), "its attempt was dropped");
    all.remove(&"b");
    seconds(200.0).await;
    assert_eq!(bench.times().len(), 3);
}

fn script() -> impl Strategy<Value = Script> {
    prop_oneof![
        3 => Just(Succeeds),
        2 => Just(Fails("no")),
        1 => (0..5u64).prop_map(Takes),
        1 => (0..90u64).prop_map(Again),
        1 => Just(Hangs),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever attempts do and whenever changes come: attempts never overlap, none is made more than
    /// a resync after the last, and the last change of all is seen by an attempt that succeeded.
    #[test]
    fn no_change_is_missed_whatever_attempts_do(
        script in prop::collection::vec(script(), 0..12),
        changes in prop::collection::vec(0..20_000u64, 0..30),
    ) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        let (wanted, made) = runtime.block_on(async {
            let (bench, _task) = Bench::start(&script);
            for wait in changes {
                sleep(Duration::from_millis(wait)).await;
                bench.change();
            }
            // For all that may still fail, and a resync.
            seconds(600.0).await;
            let wanted = *bench.wanted.load();
            let made = bench.made.lock().unwrap().clone();
            (wanted, made)
        });
        for pair in made.windows(2) {
            let end = pair[0].ended.unwrap_or(pair[0].began + PACE.attempt);
            prop_assert!(pair[1].began >= end, "two at once: {pair:?}");
            prop_assert!(pair[1].began - end <= Duration::from_secs(76), "forgotten: {pair:?}");
        }
        prop_assert!(made.iter().any(|made| made.wanted == wanted && made.ended.is_some()));
    }
}
