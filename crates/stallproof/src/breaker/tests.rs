use proptest::prelude::*;
use tokio::time::advance;

use super::*;

const CONFIG: BreakerConfig = BreakerConfig {
    name: "test",
    failures: 3,
    open: Curve { first: Duration::from_secs(1), most: Duration::from_secs(60) },
    probe: Duration::from_secs(10),
    tenants: 4,
    forget: Duration::from_secs(600),
};

fn trip<T: Clone + Eq + Hash + fmt::Debug>(breakers: &Breakers<T>, tenant: &T) {
    for _ in 0..CONFIG.failures {
        breakers.try_pass(tenant).unwrap().failed();
    }
}

/// Waits out the open interval and answers it.
async fn wait_out(breaker: &Breaker) -> Duration {
    let Open { retry_after } = breaker.try_pass().unwrap_err();
    advance(retry_after).await;
    retry_after
}

#[tokio::test(start_paused = true)]
async fn failures_in_a_row_trip_it() {
    let breaker = Breaker::new(CONFIG);
    for _ in 0..5 {
        breaker.try_pass().unwrap().failed();
        breaker.try_pass().unwrap().failed();
        breaker.try_pass().unwrap().succeeded();
    }
    assert_eq!(breaker.status(), None);
    trip(&breaker.0, &());
    let Open { retry_after } = breaker.try_pass().unwrap_err();
    assert!(CONFIG.open.first / 2 <= retry_after && retry_after <= CONFIG.open.first);
}

#[tokio::test(start_paused = true)]
async fn one_probe_decides() {
    let breaker = Breaker::new(CONFIG);
    trip(&breaker.0, &());
    wait_out(&breaker).await;

    let probe = breaker.try_pass().unwrap();
    assert_eq!(breaker.status().unwrap().state, State::HalfOpen);
    assert!(breaker.try_pass().is_err(), "one probe at a time");
    probe.succeeded();

    let status = breaker.status().unwrap();
    assert_eq!((status.state, status.failures), (State::Closed, 0));
    let _both = (breaker.try_pass().unwrap(), breaker.try_pass().unwrap());
}

#[tokio::test(start_paused = true)]
async fn every_failed_probe_lengthens_the_interval() {
    let breaker = Breaker::new(CONFIG);
    trip(&breaker.0, &());
    let since = breaker.status().unwrap().since;
    let mut last = Duration::ZERO;
    for _ in 0..5 {
        let interval = wait_out(&breaker).await;
        assert!(interval >= last);
        last = interval;
        breaker.try_pass().unwrap().failed();
    }
    let status = breaker.status().unwrap();
    assert_eq!((status.state, status.failures), (State::Open, CONFIG.failures + 5));
    assert_eq!(status.since, since, "probes do not change since when it is open");
    assert_eq!(breaker.0.0.trips.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_probe_gives_its_place_back() {
    let breaker = Breaker::new(CONFIG);
    trip(&breaker.0, &());
    wait_out(&breaker).await;
    drop(breaker.try_pass().unwrap());
    let probe = breaker.try_pass().expect("the place is free at once");
    assert_eq!(breaker.status().unwrap().failures, CONFIG.failures);
    probe.succeeded();
    drop(breaker.try_pass().unwrap());
    assert_eq!(breaker.status().unwrap().state, State::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_hangs_does_not_keep_the_breaker_open() {
    let breaker = Breaker::new(CONFIG);
    trip(&breaker.0, &());
    wait_out(&breaker).await;
    let hung = breaker.try_pass().unwrap();
    assert_eq!(wait_out(&breaker).await, CONFIG.probe);
    let second = breaker.try_pass().unwrap();
    drop(hung);
    assert!(breaker.try_pass().is_err(), "the second probe keeps its place");
    second.succeeded();
    assert!(breaker.try_pass().is_ok());
}

#[tokio::test(start_paused = true)]
async fn stragglers_do_not_trip_it_again() {
    let breaker = Breaker::new(CONFIG);
    let stragglers: Vec<_> = (0..50).map(|_| breaker.try_pass().unwrap()).collect();
    trip(&breaker.0, &());
    wait_out(&breaker).await;
    breaker.try_pass().unwrap().succeeded();
    stragglers.into_iter().for_each(Attempt::failed);
    let status = breaker.status().unwrap();
    assert_eq!((status.state, status.failures), (State::Closed, 0));
}

#[tokio::test(start_paused = true)]
async fn tenants_trip_alone_and_the_well_cost_nothing() {
    let breakers = Breakers::new(CONFIG);
    trip(&breakers, &"dead");
    for _ in 0..10 {
        breakers.try_pass(&"well").unwrap().succeeded();
        drop(breakers.try_pass(&"idle").unwrap());
    }
    assert!(breakers.try_pass(&"dead").is_err());
    let list = breakers.list();
    assert_eq!(list.len(), 1);
    assert_eq!((list[0].tenant, list[0].state, list[0].failures), ("dead", State::Open, 3));
    assert!(list[0].next_probe.unwrap() > Instant::now());
}

#[tokio::test(start_paused = true)]
async fn a_crowd_of_stumbling_tenants_does_not_close_an_open_breaker() {
    let breakers = Breakers::new(CONFIG);
    trip(&breakers, &0);
    for tenant in 1..100 {
        breakers.try_pass(&tenant).unwrap().failed();
    }
    assert_eq!(breakers.list().len(), CONFIG.tenants);
    assert!(breakers.try_pass(&0).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_nobody_calls_is_forgotten() {
    let breakers = Breakers::new(CONFIG);
    trip(&breakers, &"gone");
    advance(CONFIG.open.first + CONFIG.forget).await;
    assert_eq!(breakers.list(), []);
    assert!(breakers.try_pass(&"gone").is_ok());
}

#[tokio::test(start_paused = true)]
async fn no_configuration_overflows_the_clock() {
    let for_ever = Curve { first: Duration::MAX, most: Duration::MAX };
    let (probe, forget) = (Duration::MAX, Duration::MAX);
    let breaker =
        Breaker::new(BreakerConfig { failures: 0, open: for_ever, probe, forget, ..CONFIG });
    breaker.try_pass().unwrap().failed();
    wait_out(&breaker).await;
    breaker.try_pass().unwrap().succeeded();
}

#[derive(Clone, Debug)]
enum Step {
    Pass,
    Succeed(usize),
    Fail(usize),
    Abandon(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Pass),
        1 => (0_usize..8).prop_map(Step::Succeed),
        4 => (0_usize..8).prop_map(Step::Fail),
        1 => (0_usize..8).prop_map(Step::Abandon),
        2 => (0_u64..5000).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_an_open_breaker_lets_one_probe_pass_in_time(
        steps in proptest::collection::vec(step(), 0..120),
        chance in 0.0..1.0,
    ) {
        let mut now = Instant::now();
        let mut machine = Machine::new(now);
        let mut under_way: Vec<u64> = vec![];
        let mut number = 0;
        for step in steps {
            let before = machine.status(());
            match step {
                Step::Pass => {
                    number += 1;
                    match machine.pass(number, now, CONFIG.probe) {
                        Ok(()) => {
                            under_way.push(number);
                            if before.state != State::Closed {
                                prop_assert_eq!(machine.status(()).state, State::HalfOpen);
                                prop_assert!(machine.pass(number + 1, now, CONFIG.probe).is_err());
                            }
                        }
                        Err(Open { retry_after }) => {
                            prop_assert!(before.state != State::Closed);
                            prop_assert!(!retry_after.is_zero());
                            prop_assert!(retry_after <= CONFIG.open.most.max(CONFIG.probe));
                            prop_assert_eq!(before.next_probe, Some(now + retry_after));
                        }
                    }
                }
                Step::Succeed(at) if at < under_way.len() => {
                    machine.succeeded(under_way.swap_remove(at), now);
                    let after = machine.status(());
                    prop_assert!(after.state == State::Closed || after == before);
                }
                Step::Fail(at) if at < under_way.len() => {
                    let tripped = machine.failed(under_way.swap_remove(at), now, &CONFIG, chance);
                    let after = machine.status(());
                    prop_assert_eq!(tripped, before.state == State::Closed && after.state == State::Open);
                    prop_assert!(after.state != State::Closed || after.failures < CONFIG.failures);
                }
                Step::Abandon(at) if at < under_way.len() => {
                    machine.abandoned(under_way.swap_remove(at), now);
                    prop_assert_eq!(machine.status(()).failures, before.failures);
                }
                Step::Wait(millis) => now += Duration::from_millis(millis),
                _ => {}
            }
        }
        // Left alone, it never refuses for longer than it said.
        if let Err(Open { retry_after }) = machine.pass(number + 1, now, CONFIG.probe) {
            now += retry_after;
            prop_assert!(machine.pass(number + 2, now, CONFIG.probe).is_ok());
            machine.succeeded(number + 2, now);
            prop_assert_eq!(machine.status(()).state, State::Closed);
        }
    }
}
