use std::collections::HashSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;

use prometheus_client::registry::Registry;
use proptest::prelude::*;
use tokio::time::advance;
use tracing::Dispatch;
use tracing::field::{Field, Visit};

use super::*;

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn all(ledger: &Ledger) -> Vec<OpView> {
    ledger.in_flight(&Filter { limit: usize::MAX, ..Filter::default() })
}

fn metrics(ledger: &Ledger) -> String {
    let mut registry = Registry::default();
    ledger.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)
        .expect("a string takes any text");
    text
}

#[track_caller]
fn assert_metric(ledger: &Ledger, line: &str) {
    let text = metrics(ledger);
    assert!(text.lines().any(|l| l == line), "no line `{line}` in\n{text}");
}

#[tokio::test(start_paused = true)]
async fn an_operation_shows_its_steps_and_what_it_waits_on() {
    let ledger = Ledger::default();
    let holder = ledger.begin("commit", "pod-1", "east");
    holder.step("fsync");
    let op = ledger.begin("add", "pod-2", "east");
    advance(secs(1)).await;
    op.step("connect");
    advance(secs(2)).await;
    op.waits_on("the pool", Some(holder.id()));

    let listed = ledger.in_flight(&Filter { kind: Some("add".into()), ..Filter::default() });
    assert_eq!(
        listed,
        [OpView {
            id: op.id(),
            kind: "add",
            key: "pod-2".into(),
            tenant: "east".into(),
            age_ms: 3000,
            step: "connect",
            step_age_ms: 2000,
            steps: vec![StepView { name: "begin".into(), ms: 1000 }],
            waits_on: Some(WaitView {
                what: "the pool".into(),
                holder: Some(holder.id()),
                holder_doing: Some("commit pod-1 of east, in fsync for 3.0s".into()),
            }),
            late: false,
        }]
    );

    op.step("write");
    assert_eq!(all(&ledger).iter().find(|view| view.id == op.id()).unwrap().waits_on, None);
    op.finish(Outcome::Done);
    holder.finish(Outcome::Done);
    assert!(all(&ledger).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_has_left_is_still_numbered() {
    let ledger = Ledger::default();
    let holder = ledger.begin("commit", "pod-1", "east");
    let op = ledger.begin("add", "pod-2", "east");
    op.waits_on("the pool", Some(holder.id()));
    let id = holder.id();
    drop(holder);
    let wait = all(&ledger)[0].waits_on.clone().unwrap();
    assert_eq!((wait.holder, wait.holder_doing), (Some(id), None));
}

#[tokio::test(start_paused = true)]
async fn the_oldest_come_first_whatever_their_kind() {
    let ledger = Ledger::default();
    let mut ops = Vec::new();
    for n in 0..200 {
        let tenant = if n % 2 == 0 { "even" } else { "odd" };
        ops.push(ledger.begin(["a", "b", "c"][n % 3], n.to_string(), tenant));
        advance(Duration::from_millis(1)).await;
    }
    let keys = |filter| -> Vec<String> {
        ledger.in_flight(&filter).into_iter().map(|view| view.key).collect()
    };
    assert_eq!(keys(Filter { limit: 4, ..Filter::default() }), ["0", "1", "2", "3"]);
    let odd = Filter { tenant: Some("odd".into()), limit: 3, ..Filter::default() };
    assert_eq!(keys(odd), ["1", "3", "5"]);
    let b = Filter { kind: Some("b".into()), limit: 3, ..Filter::default() };
    assert_eq!(keys(b), ["1", "4", "7"]);
    assert_eq!(keys(Filter::default()).len(), 200);
    assert_eq!(ledger.count(), [("a", 67), ("b", 67), ("c", 66)]);
}

#[test]
fn every_end_is_counted_by_outcome() {
    let ledger = Ledger::default();
    for outcome in Outcome::ALL {
        ledger.begin("add", "pod", "east").finish(outcome);
    }
    drop(ledger.begin("add", "pod", "east"));
    let panicking = ledger.clone();
    let panicked = thread::spawn(move || {
        let _op = panicking.begin("add", "pod", "east");
        panic!("as the test wants");
    });
    panicked.join().unwrap_err();

    assert_metric(&ledger, "operations_finished_total{kind=\"add\",outcome=\"done\"} 1");
    assert_metric(&ledger, "operations_finished_total{kind=\"add\",outcome=\"failed\"} 2");
    assert_metric(&ledger, "operations_finished_total{kind=\"add\",outcome=\"cancelled\"} 2");
    assert_metric(&ledger, "operations_in_flight{kind=\"add\"} 0");
    assert_metric(&ledger, "operation_duration_seconds_count{kind=\"add\"} 7");
}

#[tokio::test(start_paused = true)]
async fn metrics_tell_age_and_steps() {
    let ledger = Ledger::default();
    let op = ledger.begin("add", "pod", "east");
    op.step("connect");
    advance(secs(3)).await;
    let _younger = ledger.begin("add", "pod", "east");
    assert_metric(&ledger, "operations_in_flight{kind=\"add\"} 2");
    assert_metric(&ledger, "operations_oldest_seconds{kind=\"add\"} 3.0");
    op.finish(Outcome::Done);
    let labels = "kind=\"add\",step=\"connect\"";
    assert_metric(&ledger, &format!("operation_step_duration_seconds_sum{{{labels}}} 3.0"));
}

#[tokio::test(start_paused = true)]
async fn a_late_operation_is_named_once() {
    let ledger = Ledger::default();
    ledger.expect("slow", secs(60));
    let op = ledger.begin("add", "pod", "east");
    let _slow = ledger.begin("slow", "pod", "east");
    advance(secs(9)).await;
    assert!(ledger.name_late(Instant::now()).is_empty());
    advance(secs(1)).await;
    let younger = ledger.begin("add", "pod", "east");
    let named: Vec<_> = ledger.name_late(Instant::now()).iter().map(|view| view.id).collect();
    assert_eq!(named, [op.id()]);
    assert!(ledger.name_late(Instant::now()).is_empty());
    advance(secs(10)).await;
    let named: Vec<_> = ledger.name_late(Instant::now()).iter().map(|view| view.id).collect();
    assert_eq!(named, [younger.id()]);
    drop((op, younger));
    assert_metric(&ledger, "operations_late_total{kind=\"add\"} 2");
    assert_metric(&ledger, "operations_late_total{kind=\"slow\"} 0");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_late_operation_says_which_step_took_how_long() {
    let (log, _kept) = Log::of_this_thread();
    let ledger = Ledger::new(LedgerConfig { late_after: secs(5) });
    let op = ledger.begin("add", "pod-1", "east");
    advance(secs(1)).await;
    op.step("connect");
    advance(secs(7)).await;
    op.step("write");
    op.finish(Outcome::Failed);
    ledger.begin("add", "pod-2", "east").finish(Outcome::Done);

    let lines = log.lines();
    let [line] = lines.as_slice() else { panic!("one line was expected: {lines:?}") };
    assert!(line.contains("late operation ended"), "{line}");
    assert!(line.contains("steps=begin 1000 ms, connect 7000 ms, write 0 ms"), "{line}");
    assert!(line.contains("outcome=failed"), "{line}");
    assert_metric(&ledger, "operations_late_total{kind=\"add\"} 1");
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_late_operations_is_a_few_lines() {
    let (log, _kept) = Log::of_this_thread();
    let ledger = Ledger::default();
    let flood = |kind| -> Vec<Op> { (0..5000).map(|_| ledger.begin(kind, "k", "t")).collect() };
    let ops = [flood("add"), flood("delete")];
    let other = ledger.begin("other kind", "k", "t");
    advance(secs(20)).await;

    let named = ledger.name_late(Instant::now());
    assert_eq!(named.len(), 2 * LINES + 1);
    assert!(named.iter().any(|view| view.id == other.id()), "a flood hides no other kind");
    assert_eq!(log.lines().len(), named.len() + 2, "the rest of a kind is one line");
    assert_eq!(log.lines().iter().filter(|line| line.contains("more=4990")).count(), 2);
    assert!(ledger.name_late(Instant::now()).is_empty());

    log.clear();
    drop(ops);
    assert_eq!(log.lines().len(), 2 * LINES);
    advance(secs(1)).await;
    ledger.name_late(Instant::now());
    assert_eq!(log.lines().iter().filter(|line| line.contains("more=4990")).count(), 2);
    assert_metric(&ledger, "operations_late_total{kind=\"add\"} 5000");
    assert_metric(&ledger, "operations_late_total{kind=\"delete\"} 5000");
}

#[test]
fn kinds_and_steps_past_the_bound_share_a_label() {
    static NAMES: std::sync::LazyLock<Vec<String>> =
        std::sync::LazyLock::new(|| (0..KINDS + 10).map(|n| format!("name-{n}")).collect());
    let ledger = Ledger::default();
    let ops: Vec<Op> = NAMES.iter().map(|kind| ledger.begin(kind, "k", "t")).collect();
    let count = ledger.count();
    assert_eq!(count.len(), KINDS);
    assert_eq!(count.last(), Some(&("other", 11)));
    for op in &ops {
        assert_eq!(ledger.0.find(op.id()).unwrap().id, op.id());
    }

    for step in NAMES.iter() {
        ops[0].step(step);
    }
    let kind = ledger.0.kind(&NAMES[0]);
    assert_eq!(kind.meters.steps.named().count(), STEPS);
    // Its name is shown all the same.
    assert_eq!(all(&ledger)[0].step, NAMES.last().unwrap());
}

#[test]
fn a_listing_of_100_000_never_holds_a_lock_for_more_than_a_page() {
    let ledger = Ledger::default();
    let ops: Vec<Op> = (0..100_000).map(|_| ledger.begin("add", "k", "t")).collect();
    let shelf = &ledger.0.kind("add").shelves[shard()];

    // In the middle of a listing, between pages, the shelf is free: operations come and go.
    let mut listing = shelf.by_age();
    for op in &ops[..1000] {
        let listed = listing.next().unwrap();
        assert_eq!(listed.id, op.id());
        assert!(!shelf.open.is_locked());
        drop(ledger.begin("add", "k", "t"));
    }
    let mut after = 0;
    let mut pages = 0;
    loop {
        let page = shelf.page(after);
        assert!(page.len() <= PAGE);
        let Some(last) = page.last() else { break };
        after = last.id.0 >> SHELF_BITS;
        pages += 1;
    }
    assert_eq!(pages, 100_000_usize.div_ceil(PAGE));
    let oldest = ledger.in_flight(&Filter { limit: 10, ..Filter::default() });
    assert_eq!(oldest.len(), 10);
}

#[test]
fn listings_and_naming_run_beside_threads_that_begin_and_end() {
    const THREADS: usize = 8;
    const OPS: usize = 3000;
    let ledger = Ledger::new(LedgerConfig { late_after: Duration::ZERO });
    let stays = ledger.begin("stays", "k", "t");
    let (running, ended) = (AtomicUsize::new(THREADS), AtomicBool::new(false));
    let named = thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for n in 0..OPS {
                    let op = ledger.begin(["a", "b"][n % 2], "k", "t");
                    op.step("one");
                    op.waits_on("stays", Some(stays.id()));
                    op.step("two");
                    op.finish(Outcome::Done);
                }
                if running.fetch_sub(1, SeqCst) == 1 {
                    ended.store(true, SeqCst);
                }
            });
        }
        let mut named = HashSet::new();
        loop {
            let last = ended.load(SeqCst);
            let listed = all(&ledger);
            let ids: HashSet<_> = listed.iter().map(|view| view.id).collect();
            assert_eq!(ids.len(), listed.len(), "listed twice");
            assert!(ids.contains(&stays.id()), "what is there throughout is listed");
            for view in ledger.name_late(Instant::now()) {
                assert!(named.insert(view.id), "named twice");
            }
            if last {
                break named;
            }
        }
    });
    assert!(named.contains(&stays.id()));
    assert_eq!(all(&ledger).len(), 1);
    // Everything is late here: each is counted once, whether it was named or only ended.
    let total = THREADS * OPS / 2;
    for kind in ["a", "b"] {
        assert_metric(&ledger, &format!("operations_late_total{{kind=\"{kind}\"}} {total}"));
        let labels = format!("kind=\"{kind}\",outcome=\"done\"");
        assert_metric(&ledger, &format!("operations_finished_total{{{labels}}} {total}"));
    }
}

proptest! {
    #[test]
    fn steps_add_up_to_the_age(took in prop::collection::vec(0_u64..5000, 0..40), rest in 0_u64..5000) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let ledger = Ledger::default();
            let op = ledger.begin("add", "k", "t");
            for ms in &took {
                advance(Duration::from_millis(*ms)).await;
                op.step("next");
            }
            advance(Duration::from_millis(rest)).await;
            let view = all(&ledger).pop().unwrap();
            let ended: u64 = view.steps.iter().map(|step| step.ms).sum();
            prop_assert_eq!(ended, took.iter().sum::<u64>());
            prop_assert_eq!(view.step_age_ms, rest);
            prop_assert_eq!(view.age_ms, ended + rest);
            let folded = took.len().saturating_sub(KEPT_STEPS);
            prop_assert_eq!(view.steps.len(), took.len().min(KEPT_STEPS) + usize::from(folded > 0));
            if folded > 0 {
                prop_assert_eq!(&view.steps.last().unwrap().name, &format!("({folded} more)"));
            }
            op.finish(Outcome::Done);
            let steps = &ledger.0.kind("add").meters.steps;
            let observed: u64 = steps.iter().map(Histogram::count).sum();
            prop_assert_eq!(observed, took.len() as u64 + 1, "every step is observed, kept or not");
            Ok(())
        })?;
    }
}

#[tokio::test(start_paused = true)]
async fn log_lines_of_an_operation_carry_its_kind_key_tenant_and_id() {
    let (log, _kept) = Log::of_this_thread();
    let ledger = Ledger::new(LedgerConfig { late_after: secs(5) });
    let op = ledger.begin("add", "pod-1", "east");
    let of_op = format!("op{{kind=add key=pod-1 tenant=east id={} }}", op.id().0);
    let work = op.in_span(async {
        warn!("begun");
        tokio::task::yield_now().await;
        let inner = ledger.begin("call", "get", "west");
        inner.in_span(async { warn!("called") }).await;
        warn!("done");
    });
    // The work is polled on a task of its own, and lines between its polls are not its own.
    let mut work = std::pin::pin!(work);
    assert!(futures::poll!(work.as_mut()).is_pending());
    warn!("outside");
    work.await;
    let lines = log.lines();
    let [begun, outside, called, done] = lines.as_slice() else { panic!("{lines:?}") };
    for own in [begun, called, done] {
        assert!(own.starts_with(&of_op), "{own}");
    }
    assert!(called.contains("op{kind=call key=get tenant=west"), "{called}");
    assert!(!outside.contains("op{"), "{outside}");

    log.clear();
    advance(secs(6)).await;
    ledger.name_late(Instant::now());
    op.finish(Outcome::Done);
    let lines = log.lines();
    let [late, ended] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(late.starts_with(&of_op) && late.contains("operation is late"), "{late}");
    assert!(ended.starts_with(&of_op) && ended.contains("late operation ended"), "{ended}");
}

#[tokio::test(start_paused = true)]
async fn work_in_a_lane_runs_in_its_operations_span() {
    use crate::lanes::{Lanes, LanesConfig, Work};
    let (log, _kept) = Log::of_this_thread();
    let ledger = Ledger::default();
    let op = ledger.begin("add", "pod-1", "east");
    let lanes = Lanes::new(LanesConfig::new("pods", 1));
    let deadline = crate::Deadline::after(secs(1));
    let work = Work { op: Some(&op), ..Work::new("pod-1", "east", deadline) };
    lanes.run(work, async { warn!("wired") }).await.unwrap();
    assert!(log.lines()[0].starts_with("op{kind=add key=pod-1"), "{:?}", log.lines());
}

/// Keeps the log lines of this thread, each after the fields of the spans it was written in.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Lines>>);

#[derive(Default)]
struct Lines {
    lines: Vec<String>,
    /// By id, from 1.
    spans: Vec<String>,
    entered: Vec<u64>,
}

impl Log {
    fn of_this_thread() -> (Self, tracing::subscriber::DefaultGuard) {
        // A lone subscriber is not asked about a line that another thread comes to first.
        static SECOND: OnceLock<Dispatch> = OnceLock::new();
        SECOND.get_or_init(|| Dispatch::new(Self::default()));
        let log = Self::default();
        (log.clone(), tracing::subscriber::set_default(log))
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().lines.clone()
    }

    fn clear(&self) {
        self.0.lock().lines.clear();
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        let mut fields = Fields(String::new());
        span.record(&mut fields);
        let mut log = self.0.lock();
        log.spans.push(format!("{}{{{}}}", span.metadata().name(), fields.0));
        tracing::span::Id::from_u64(log.spans.len() as u64)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn enter(&self, span: &tracing::span::Id) {
        self.0.lock().entered.push(span.into_u64());
    }

    fn exit(&self, span: &tracing::span::Id) {
        assert_eq!(self.0.lock().entered.pop(), Some(span.into_u64()));
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Fields(String::new());
        event.record(&mut line);
        let mut log = self.0.lock();
        let spans: String = log.entered.iter().map(|id| &*log.spans[*id as usize - 1]).collect();
        log.lines.push(format!("{spans} {}", line.0));
    }
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{field}={value:?} ");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0 += &format!("{field}={value} ");
    }
}
