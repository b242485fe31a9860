use std::cell::{Cell, RefCell};
use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;

use futures::{FutureExt, poll};
use tokio::time::{advance, sleep};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn lanes(workers: usize, per_tenant: usize) -> Lanes<&'static str> {
    let mut config = LanesConfig::new("test", workers);
    config.limits.per_tenant = per_tenant;
    Lanes::new(config)
}

fn work(key: &'static str) -> Work<'static, &'static str> {
    Work::new(key, "tenant", Deadline::after(60 * SECOND))
}

fn of<'a>(tenant: &'a str, key: &'static str) -> Work<'a, &'static str> {
    Work { tenant, ..work(key) }
}

#[tokio::test(start_paused = true)]
async fn work_on_one_key_runs_alone_and_in_the_order_it_came() {
    let lanes = lanes(8, 8);
    let (order, busy) = (RefCell::new(Vec::new()), Cell::new(false));
    let jobs = (0..10).map(|nth| {
        let (order, busy) = (&order, &busy);
        lanes.run(work("key"), async move {
            assert!(!busy.replace(true));
            sleep(SECOND).await;
            order.borrow_mut().push(nth);
            busy.set(false);
        })
    });
    futures::future::join_all(jobs).await;
    assert_eq!(*order.borrow(), (0..10).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn keys_run_in_parallel_up_to_the_number_of_workers() {
    let lanes = lanes(2, 2);
    let began = Instant::now();
    let done = tokio::join!(
        lanes.run(work("a"), async { sleep(SECOND).await }),
        lanes.run(work("b"), async { sleep(SECOND).await }),
        lanes.run(work("c"), async { sleep(SECOND).await }),
    );
    assert_eq!(done, (Ok(()), Ok(()), Ok(())));
    assert_eq!(began.elapsed(), 2 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_stuck_key_costs_one_worker() {
    let lanes = lanes(2, 2);
    let mut stuck = pin!(lanes.run(work("stuck"), pending::<()>()));
    let mut behind = pin!(lanes.run(work("stuck"), async {}));
    assert!(poll!(&mut stuck).is_pending() && poll!(&mut behind).is_pending());
    for _ in 0..100 {
        assert_eq!(lanes.run(work("other"), async { 1 }).now_or_never(), Some(Ok(1)));
    }
    assert!(!lanes.owes(), "what waits for a stuck key is not owed by the lanes");
}

#[tokio::test(start_paused = true)]
async fn the_line_behind_a_stuck_key_does_not_crowd_out_its_tenant() {
    let mut config = LanesConfig::new("test", 2);
    config.limits =
        LanesLimits { per_tenant: 2, queue_per_tenant: 4, queue_per_key: 3, ..config.limits };
    let lanes = Lanes::new(config);
    let mut line: Vec<_> =
        (0..5).map(|_| Box::pin(lanes.run(work("stuck"), pending::<()>()))).collect();
    for job in &mut line[..4] {
        assert!(poll!(job).is_pending());
    }
    advance(8 * SECOND).await;
    let Poll::Ready(Err(Refused::Full { retry_after })) = poll!(&mut line[4]) else {
        panic!("a fourth waits behind the key");
    };
    assert!(retry_after >= 20 * SECOND, "{retry_after:?} ignores that the holder is stuck");
    let mut one = pin!(lanes.run(work("one"), pending::<()>()));
    let mut two = pin!(lanes.run(work("two"), async {}));
    assert!(poll!(&mut one).is_pending() && poll!(&mut two).is_pending());
    assert_eq!(lanes.status().queued, 4);
}

#[tokio::test(start_paused = true)]
async fn a_stuck_tenant_costs_its_share_and_does_not_look_like_a_stall() {
    let lanes = lanes(3, 2);
    let mut stuck: Vec<_> =
        ["a", "b", "c"].map(|key| Box::pin(lanes.run(of("stuck", key), pending::<()>()))).into();
    for job in &mut stuck {
        assert!(poll!(job).is_pending());
    }
    assert_eq!(lanes.status().tenants[0].running, 2);
    assert!(!lanes.owes());
    assert_eq!(lanes.run(of("well", "d"), async { 1 }).now_or_never(), Some(Ok(1)));

    let mut last = pin!(lanes.run(of("well", "e"), pending::<()>()));
    let mut owed = pin!(lanes.run(of("well", "f"), async {}));
    assert!(poll!(&mut last).is_pending() && poll!(&mut owed).is_pending());
    assert!(lanes.owes(), "now every worker is stuck");
    assert_eq!(lanes.turns_given(), 4);
}

#[tokio::test(start_paused = true)]
async fn queued_work_is_answered_at_its_deadline_and_leaves_the_queue() {
    let lanes = lanes(1, 1);
    let mut running = pin!(lanes.run(work("key"), pending::<()>()));
    assert!(poll!(&mut running).is_pending());
    let began = Instant::now();
    let late = Work::new("key", "tenant", Deadline::after(3 * SECOND));
    assert_eq!(lanes.run(late, async {}).await, Err(Refused::Expired(Stage::Queued)));
    assert_eq!(began.elapsed(), 3 * SECOND);
    assert_eq!(lanes.status().queued, 0);
}

#[tokio::test(start_paused = true)]
async fn running_work_is_dropped_at_its_deadline_and_the_turn_goes_on() {
    let lanes = lanes(1, 1);
    let short = Work::new("key", "tenant", Deadline::after(SECOND));
    let (stuck, next) =
        tokio::join!(lanes.run(short, pending::<()>()), lanes.run(work("key"), async { 1 }));
    assert_eq!(stuck, Err(Refused::Expired(Stage::Running)));
    assert_eq!(next, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn work_whose_deadline_has_passed_is_refused_without_a_turn() {
    let lanes = lanes(1, 1);
    let late = Work::new("key", "tenant", Deadline::at(Instant::now()));
    let ran = lanes.run(late, async { unreachable!("it ran") }).await;
    assert_eq!(ran, Err::<(), _>(Refused::Expired(Stage::Queued)));
    assert_eq!(lanes.turns_given(), 0);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_future_gives_the_place_back_queued_or_running() {
    let lanes = lanes(1, 1);
    let mut running = Box::pin(lanes.run(work("a"), pending::<()>()));
    let mut queued = Box::pin(lanes.run(work("a"), pending::<()>()));
    let mut last = pin!(lanes.run(work("b"), async { 1 }));
    assert!(poll!(&mut running).is_pending() && poll!(&mut queued).is_pending());
    assert!(poll!(&mut last).is_pending());
    drop(queued);
    assert!(poll!(&mut last).is_pending());
    drop(running);
    assert_eq!(poll!(&mut last), Poll::Ready(Ok(1)));
}

#[tokio::test(start_paused = true)]
async fn a_turn_given_to_a_caller_that_never_looked_again_goes_on() {
    let lanes = lanes(1, 1);
    let mut first = Box::pin(lanes.run(work("a"), pending::<()>()));
    let mut second = Box::pin(lanes.run(work("a"), pending::<()>()));
    let mut third = pin!(lanes.run(work("a"), async { 1 }));
    assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
    assert!(poll!(&mut third).is_pending());
    drop(first);
    assert_eq!(lanes.status().running, 1, "the second has its turn and does not know");
    drop(second);
    assert_eq!(poll!(&mut third), Poll::Ready(Ok(1)));
}

#[tokio::test(start_paused = true)]
async fn work_is_gone_before_the_next_turn_of_its_key() {
    struct Held<'a>(&'a Cell<bool>);
    impl Drop for Held<'_> {
        fn drop(&mut self) {
            self.0.set(false);
        }
    }
    let lanes = lanes(1, 1);
    let held = Cell::new(false);
    let job = || async {
        assert!(!held.replace(true), "two at once");
        let _held = Held(&held);
        pending::<()>().await;
    };
    // One is dropped by its caller, one by its deadline; each hands over to the next.
    let mut one = Box::pin(lanes.run(work("key"), job()));
    let two = Work::new("key", "tenant", Deadline::after(SECOND));
    let mut two = Box::pin(lanes.run(two, job()));
    let mut three = Box::pin(lanes.run(work("key"), job()));
    assert!(poll!(&mut one).is_pending() && poll!(&mut two).is_pending());
    assert!(poll!(&mut three).is_pending());
    drop(one);
    assert!(poll!(&mut two).is_pending());
    advance(SECOND).await;
    assert_eq!(poll!(&mut two), Poll::Ready(Err(Refused::Expired(Stage::Running))));
    assert!(poll!(&mut three).is_pending());
    assert!(held.get());
}

#[tokio::test(start_paused = true)]
async fn work_that_panics_gives_its_turn_back() {
    let lanes = lanes(1, 1);
    let bang = lanes.run(work("key"), async { panic!("on purpose") });
    assert!(AssertUnwindSafe(bang).catch_unwind().await.map(|_: Result<(), _>| ()).is_err());
    assert_eq!(lanes.run(work("key"), async { 1 }).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn tenants_take_turns_however_much_one_of_them_brings() {
    let lanes = lanes(1, 1);
    let order = RefCell::new(String::new());
    let keys = ["0", "1", "2", "3", "4", "5"];
    let job = |tenant: &'static str, key| {
        let order = &order;
        lanes.run(of(tenant, key), async move {
            sleep(SECOND).await;
            order.borrow_mut().push_str(tenant);
        })
    };
    let flood = keys.map(|key| job("a", key));
    let few = ["x", "y"].map(|key| job("b", key));
    futures::future::join(futures::future::join_all(flood), futures::future::join_all(few)).await;
    assert_eq!(*order.borrow(), "ababaaaa");
}

#[tokio::test(start_paused = true)]
async fn closing_refuses_the_queued_and_the_new_and_lets_the_running_finish() {
    let lanes = lanes(1, 1);
    let mut running = Box::pin(lanes.run(work("key"), sleep(SECOND)));
    let mut queued = pin!(lanes.run(work("key"), async {}));
    assert!(poll!(&mut running).is_pending() && poll!(&mut queued).is_pending());
    lanes.close();
    assert_eq!(poll!(&mut queued), Poll::Ready(Err(Refused::Closed)));
    assert_eq!(lanes.run(work("new"), async {}).await, Err(Refused::Closed));
    let mut closed = pin!(lanes.closed());
    assert!(poll!(&mut closed).is_pending());
    assert_eq!(running.await, Ok(()));
    closed.await;
}

#[tokio::test(start_paused = true)]
async fn status_names_what_runs_and_waits_longest() {
    let lanes = lanes(1, 1);
    let ledger = crate::Ledger::default();
    let op = ledger.begin("test", "first", "tenant");
    let mut first = pin!(lanes.run(Work { op: Some(&op), ..work("first") }, pending::<()>()));
    assert!(poll!(&mut first).is_pending());
    advance(SECOND).await;
    let mut second = pin!(lanes.run(work("second"), pending::<()>()));
    assert!(poll!(&mut second).is_pending());
    advance(SECOND).await;
    let mut third = pin!(lanes.run(work("third"), pending::<()>()));
    assert!(poll!(&mut third).is_pending());

    let status = lanes.status();
    assert_eq!((status.queued, status.running, status.closed), (2, 1, false));
    let tenant = &status.tenants[0];
    assert_eq!((&*tenant.tenant, tenant.queued, tenant.running), ("tenant", 2, 1));
    let running = Turn { key: "first", op: Some(op.id()), age: 2 * SECOND };
    assert_eq!(tenant.longest_running, Some(running));
    assert_eq!(tenant.longest_queued, Some(Turn { key: "second", op: None, age: SECOND }));
}

#[tokio::test(start_paused = true)]
async fn refusals_are_counted_by_reason_beside_the_queue_and_the_turns() {
    let mut config = LanesConfig::new("store", 1);
    config.limits.queue = 0;
    let lanes = Lanes::new(config);
    let mut registry = Registry::default();
    lanes.register(&mut registry);
    let mut running = pin!(lanes.run(work("a"), pending::<()>()));
    assert!(poll!(&mut running).is_pending());
    let full = lanes.run(work("b"), async {}).await;
    assert!(matches!(full, Err(Refused::Full { .. })), "{full:?}");
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        r#"lanes_running{lanes="store"} 1"#,
        r#"lanes_queued{lanes="store"} 0"#,
        r#"lanes_turns_total{lanes="store"} 1"#,
        r#"lanes_refused_total{lanes="store",reason="full"} 1"#,
        r#"lanes_wait_seconds_count{lanes="store"} 1"#,
    ] {
        assert!(text.lines().any(|has| has == line), "{line} is not in\n{text}");
    }
}
