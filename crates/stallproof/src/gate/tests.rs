use std::cell::{Cell, RefCell};
use std::pin::{Pin, pin};
use std::task::Poll;

use futures::stream::{FuturesUnordered, StreamExt};
use futures::{FutureExt, poll};
use tokio::sync::Semaphore;
use tokio::time::{advance, sleep, sleep_until};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// A gate for `places` requests, no more and no less.
fn gate(places: usize, queue: usize) -> Gate {
    let limits = InFlightLimits { min: places, initial: places, max: places };
    Gate::new(GateConfig { limits, queue, ..GateConfig::new("test") })
}

type Asking<'a> = Pin<Box<dyn Future<Output = Result<Permit, Overloaded>> + 'a>>;

fn ask(gate: &Gate, priority: Priority) -> Asking<'_> {
    Box::pin(gate.admit(priority, Deadline::after(60 * SECOND)))
}

async fn enter(gate: &Gate) -> Permit {
    ask(gate, Priority::Normal).await.expect("there is a place")
}

/// Teaches the gate that requests take `service`.
async fn teach(gate: &Gate, service: Duration) {
    for _ in 0..50 {
        let permit = enter(gate).await;
        advance(service).await;
        drop(permit);
    }
}

#[tokio::test(start_paused = true)]
async fn priorities_are_strict_and_within_one_it_is_first_come_first_served() {
    let gate = gate(1, 10);
    let first = enter(&gate).await;
    let order = [Priority::Low, Priority::Normal, Priority::Normal, Priority::Critical];
    let mut asking: Vec<_> = order.map(|priority| ask(&gate, priority)).into();
    for one in &mut asking {
        assert!(poll!(one).is_pending());
    }
    assert_eq!(gate.status().queued, [1, 0, 2, 1]);
    let mut held = first;
    for expected in [3, 1, 2, 0] {
        drop(held);
        let mut let_in = Vec::new();
        for (nth, one) in asking.iter_mut().enumerate() {
            if let Poll::Ready(permit) = poll!(&mut *one) {
                let_in.push((nth, permit.expect("it was let in")));
                *one = Box::pin(std::future::pending());
            }
        }
        let (nth, permit) = let_in.pop().expect("one was let in");
        assert_eq!((nth, let_in.len()), (expected, 0));
        held = permit;
    }
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_evicts_the_youngest_of_the_lowest_priority_below_its_own() {
    let gate = gate(1, 3);
    let _held = enter(&gate).await;
    let mut older = ask(&gate, Priority::Low);
    let mut younger = ask(&gate, Priority::Low);
    let mut normal = ask(&gate, Priority::Normal);
    assert!(poll!(&mut older).is_pending() && poll!(&mut younger).is_pending());
    assert!(poll!(&mut normal).is_pending());
    let Poll::Ready(Err(full)) = poll!(ask(&gate, Priority::Low)) else {
        panic!("there is nothing below low");
    };
    assert_eq!(full.reason, Reason::Full);

    let mut high = ask(&gate, Priority::High);
    assert!(poll!(&mut high).is_pending());
    let Poll::Ready(Err(evicted)) = poll!(&mut younger) else { panic!("it keeps its place") };
    assert_eq!(evicted.reason, Reason::Evicted);
    assert!(poll!(&mut older).is_pending() && poll!(&mut normal).is_pending());
}

#[tokio::test(start_paused = true)]
async fn what_is_predicted_to_be_late_is_refused_at_once() {
    let gate = gate(2, 100);
    teach(&gate, SECOND).await;
    let (_a, _b) = (enter(&gate).await, enter(&gate).await);
    let within = |wait| gate.admit(Priority::Normal, Deadline::after(wait));
    // One of two places comes free every half second; then it takes a second.
    let late = within(SECOND).now_or_never().expect("at once").unwrap_err();
    assert_eq!(late.reason, Reason::TooLate);
    let mut in_time = pin!(within(2 * SECOND));
    assert!(poll!(&mut in_time).is_pending());
    // Behind that one the same deadline is too short.
    let behind = within(2 * SECOND - 10 * MS).now_or_never().expect("at once").unwrap_err();
    assert_eq!(behind.reason, Reason::TooLate);
    assert!(behind.retry_after >= SECOND, "{:?} is before the queue drains", behind.retry_after);
}

#[tokio::test(start_paused = true)]
async fn a_gate_whose_requests_are_all_stuck_soon_refuses_at_once() {
    let gate = gate(2, 100);
    teach(&gate, MS).await;
    let (_a, _b) = (enter(&gate).await, enter(&gate).await);
    let mut waiting = ask(&gate, Priority::Normal);
    assert!(poll!(&mut waiting).is_pending());
    advance(20 * SECOND).await;
    let soon = gate.admit(Priority::Normal, Deadline::after(5 * SECOND));
    let refused = soon.now_or_never().expect("at once").unwrap_err();
    assert_eq!(refused.reason, Reason::TooLate);
}

#[tokio::test(start_paused = true)]
async fn one_that_can_no_longer_make_it_is_told_while_that_is_of_use() {
    let gate = gate(1, 10);
    teach(&gate, SECOND).await;
    let _held = enter(&gate).await;
    let began = Instant::now();
    let refused = gate.admit(Priority::Normal, Deadline::after(5 * SECOND)).await.unwrap_err();
    assert_eq!(refused.reason, Reason::TooLate);
    assert!(began.elapsed() < 5 * SECOND, "{:?}", began.elapsed());
    assert_eq!(gate.status().queued, [0; 4]);
}

#[tokio::test(start_paused = true)]
async fn an_estimate_that_is_wrong_heals() {
    let gate = gate(4, 10);
    teach(&gate, 60 * SECOND).await;
    for _ in 0..100 {
        let quick = gate.admit(Priority::Normal, Deadline::after(SECOND)).await;
        let quick = quick.expect("a gate that is not half full lets it try");
        advance(MS).await;
        drop(quick);
    }
    assert!(gate.status().service < SECOND);
}

#[tokio::test(start_paused = true)]
async fn going_away_while_queued_or_just_let_in_gives_the_place_back() {
    let gate = gate(1, 10);
    let held = enter(&gate).await;
    let mut first = ask(&gate, Priority::Normal);
    let mut second = ask(&gate, Priority::Normal);
    let mut third = ask(&gate, Priority::Normal);
    assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
    assert!(poll!(&mut third).is_pending());
    drop(first);
    drop(held);
    assert_eq!(gate.status().in_flight, 1, "the second was let in and does not know");
    drop(second);
    assert!(matches!(poll!(&mut third), Poll::Ready(Ok(_))));
    assert_eq!(gate.status().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn shedding_refuses_the_low_also_those_that_wait_and_never_the_critical() {
    let gate = gate(1, 10);
    let held = enter(&gate).await;
    let mut low = ask(&gate, Priority::Low);
    let mut normal = ask(&gate, Priority::Normal);
    assert!(poll!(&mut low).is_pending() && poll!(&mut normal).is_pending());
    gate.shed(Shedding::Low);
    assert!(matches!(poll!(&mut low), Poll::Ready(Err(Overloaded { reason: Reason::Shed, .. }))));
    assert!(poll!(&mut normal).is_pending());
    gate.shed(Shedding::High);
    assert!(poll!(&mut normal).is_ready());
    drop(held);
    assert!(ask(&gate, Priority::High).await.is_err());
    assert!(ask(&gate, Priority::Critical).await.is_ok());
    gate.shed(Shedding::None);
    assert!(ask(&gate, Priority::Low).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn errors_that_come_back_at_once_do_not_look_like_speed() {
    let gate = gate(4, 10);
    teach(&gate, SECOND).await;
    let usual = gate.status().service;
    for _ in 0..100 {
        enter(&gate).await.ignore();
        enter(&gate).await.fail();
    }
    assert_eq!(gate.status().service, usual);
}

/// Ten times the load that a backend of 16 workers can bear, for ten seconds; each request is worth
/// something for 200 ms.
#[tokio::test(start_paused = true)]
async fn at_ten_times_the_load_nearly_all_capacity_is_spent_on_answers_in_time() {
    const WORKERS: usize = 16;
    const SERVICE: Duration = Duration::from_millis(20);
    let gate = Gate::new(GateConfig::new("test"));
    let backend = Semaphore::new(WORKERS);
    let (good, late) = (Cell::new(0u32), Cell::new(0u32));
    let refusals = RefCell::new(Vec::new());
    let request = || async {
        let came = Instant::now();
        let deadline = Deadline::after(200 * MS);
        match gate.admit(Priority::Normal, deadline).await {
            Ok(_permit) => {
                let _worker = backend.acquire().await.expect("never closed");
                sleep(SERVICE).await;
                let count = if deadline.has_passed() { &late } else { &good };
                count.set(count.get() + 1);
            }
            Err(_) => refusals.borrow_mut().push(came.elapsed()),
        }
    };
    let mut crowd = FuturesUnordered::new();
    let began = Instant::now();
    for tick in 1..=10_000 {
        // 8 a millisecond are ten times 16 / 20 ms.
        crowd.extend((0..8).map(|_| request()));
        let next = Deadline::at(began + tick * MS);
        let _ = next.bound(crowd.by_ref().for_each(async |()| {})).await;
        sleep_until(next.instant()).await;
    }
    while crowd.next().await.is_some() {}
    let peak = 10.0 / SERVICE.as_secs_f64() * WORKERS as f64;
    let goodput = f64::from(good.get()) / peak;
    assert!(goodput >= 0.9, "goodput {goodput:.3}, late {}", late.get());
    assert_eq!(late.get(), 0, "goodput {goodput:.3}");
    let mut refusals = refusals.take();
    refusals.sort();
    let slow = refusals[refusals.len() * 99 / 100];
    println!("goodput {goodput:.3}, p99 to refuse {slow:?}, {:?}", gate.status());
    assert!(slow < 10 * MS, "p99 to refuse {slow:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_let_in_and_what_is_refused_is_counted() {
    let gate = gate(1, 0);
    let mut registry = Registry::default();
    gate.register(&mut registry);
    let _held = enter(&gate).await;
    assert!(ask(&gate, Priority::Low).await.is_err());
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        r#"gate_limit{gate="test"} 1"#,
        r#"gate_in_flight{gate="test"} 1"#,
        r#"gate_queued{gate="test",priority="low"} 0"#,
        r#"gate_admitted_total{gate="test",priority="normal"} 1"#,
        r#"gate_refused_total{gate="test",reason="full"} 1"#,
        r#"gate_wait_seconds_count{gate="test"} 1"#,
    ] {
        assert!(text.lines().any(|has| has == line), "{line} is not in\n{text}");
    }
}

fn ask_for<'a>(gate: &'a Gate, caller: &'a str, within: Duration) -> Asking<'a> {
    Box::pin(gate.admit_for(caller, Priority::Normal, Deadline::after(within)))
}

/// All that `caller` gets at once.
fn fill(gate: &Gate, caller: &str, requests: usize) -> (Vec<Permit>, usize) {
    let mut held = Vec::new();
    let mut others = 0;
    for _ in 0..requests {
        match ask_for(gate, caller, 60 * SECOND).now_or_never() {
            Some(Ok(permit)) => held.push(permit),
            _ => others += 1,
        }
    }
    (held, others)
}

#[tokio::test(start_paused = true)]
async fn one_callers_slow_requests_keep_no_other_out() {
    let gate = gate(8, 100);
    let (hog, waiting) = fill(&gate, "hog", 100);
    assert_eq!((hog.len(), waiting), (4, 96));
    // However many do the same, something is left for the next.
    let (second, _) = fill(&gate, "second", 100);
    let (third, _) = fill(&gate, "third", 100);
    assert_eq!((second.len(), third.len()), (2, 1));
    let user = ask_for(&gate, "user", SECOND).now_or_never().expect("at once");
    drop(user.expect("a place was left"));
    // Its own requests are in its own way alone.
    let mut more = ask_for(&gate, "hog", 60 * SECOND);
    assert!(poll!(&mut more).is_pending());
    drop(hog);
    assert!(matches!(poll!(&mut more), Poll::Ready(Ok(_))));
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_shared_too() {
    let gate = gate(1, 64);
    let _held = enter(&gate).await;
    let mut waiting = Vec::new();
    let mut refused = 0;
    for _ in 0..1000 {
        let mut one = ask_for(&gate, "hog", 3600 * SECOND);
        match poll!(&mut one) {
            Poll::Pending => waiting.push(one),
            Poll::Ready(answer) => {
                assert_eq!(answer.expect_err("the gate is full").reason, Reason::Share);
                refused += 1;
            }
        }
    }
    assert_eq!((waiting.len(), refused), (32, 968));
    let mut user = ask_for(&gate, "user", SECOND);
    assert!(poll!(&mut user).is_pending(), "the other half is for others");
}

#[tokio::test(start_paused = true)]
async fn a_place_that_comes_free_goes_to_the_caller_that_holds_fewest_and_then_in_turn() {
    let gate = gate(2, 100);
    let one = ask_for(&gate, "busy", 60 * SECOND).await.expect("there is a place");
    let held = ask_for(&gate, "other", 60 * SECOND).await.expect("there is a place");
    let order = ["busy", "busy", "busy", "user"];
    let mut asking: Vec<_> = order.map(|caller| ask_for(&gate, caller, 60 * SECOND)).into();
    for one in &mut asking {
        assert!(poll!(one).is_pending());
    }
    // The user came last and holds nothing.
    drop(held);
    let Poll::Ready(Ok(_user)) = poll!(&mut asking[3]) else { panic!("it was not its turn") };
    assert!(poll!(&mut asking[0]).is_pending());
    drop(one);
    assert!(matches!(poll!(&mut asking[0]), Poll::Ready(Ok(_))));
}

#[tokio::test(start_paused = true)]
async fn one_callers_slow_requests_do_not_make_anothers_look_hopeless() {
    let gate = gate(8, 100);
    let _first = fill(&gate, "slow", 1);
    for _ in 0..50 {
        let (slow, _) = fill(&gate, "slow", 3);
        advance(30 * SECOND).await;
        drop(slow);
    }
    let (slow, _) = fill(&gate, "slow", 100);
    let _others = fill(&gate, "others", 1);
    assert!(gate.status().service > 20 * SECOND);
    // More than half of the gate is taken, by requests that take half a minute.
    assert_eq!(slow.len(), 3);
    let quick = ask_for(&gate, "user", SECOND).now_or_never().expect("at once");
    quick.expect("a second is enough for its own requests").ignore();
    // The one that knows better of its own is told at once.
    let hopeless = ask_for(&gate, "slow", SECOND).now_or_never().expect("at once");
    assert_eq!(hopeless.expect_err("its own take longer").reason, Reason::TooLate);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_of_one_caller_does_not_delay_the_promise_to_another() {
    let gate = gate(4, 4096);
    for _ in 0..50 {
        let (quick, _) = fill(&gate, "hog", 2);
        advance(100 * MS).await;
        drop(quick);
    }
    let held: Vec<_> = ["hog", "hog", "b", "c"].map(|caller| fill(&gate, caller, 1).0).into();
    assert_eq!(gate.status().in_flight, 4);
    let mut line: Vec<_> = (0..200).map(|_| ask_for(&gate, "hog", 60 * SECOND)).collect();
    for one in &mut line {
        assert!(poll!(one).is_pending());
    }
    // A line of two hundred would take five seconds; a user's turn comes first.
    let mut user = ask_for(&gate, "user", SECOND);
    assert!(poll!(&mut user).is_pending());
    drop(held);
    assert!(matches!(poll!(&mut user), Poll::Ready(Ok(_))));
}

#[tokio::test(start_paused = true)]
async fn alone_a_caller_is_not_held_back_for_long() {
    let limits = InFlightLimits { min: 4, initial: 8, max: 128 };
    let gate = Gate::new(GateConfig { limits, ..GateConfig::new("test") });
    let most = Cell::new(0);
    let mut workers: FuturesUnordered<_> = (0..32)
        .map(|_| async {
            for _ in 0..1000 {
                let permit = ask_for(&gate, "user", 60 * SECOND).await.expect("in time");
                most.set(most.get().max(gate.status().in_flight));
                sleep(10 * MS).await;
                drop(permit);
            }
        })
        .collect();
    while workers.next().await.is_some() {}
    assert_eq!(most.get(), 32, "the limit rose to twice what it uses");
}
