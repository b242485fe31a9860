//! Every schedule that shuttle can find: no permit is lost, none is given twice. A lost wake-up is a
//! deadlock, which shuttle reports by itself.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use shuttle::future::{JoinHandle, block_on, spawn, yield_now};

use super::*;

const SCHEDULES: usize = 3_000;

fn gate(places: usize, queue: usize) -> Gate {
    let limits = InFlightLimits { min: places, initial: places, max: places };
    Gate::new(GateConfig { limits, queue, ..GateConfig::new("explored") })
}

fn request(
    gate: &Gate,
    inside: &Arc<AtomicUsize>,
    priority: Priority,
) -> JoinHandle<Result<(), Overloaded>> {
    request_of(gate, inside, priority, None)
}

fn request_of(
    gate: &Gate,
    inside: &Arc<AtomicUsize>,
    priority: Priority,
    caller: Option<&'static str>,
) -> JoinHandle<Result<(), Overloaded>> {
    struct Out(Arc<AtomicUsize>);
    impl Drop for Out {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Relaxed);
        }
    }
    let (gate, inside) = (gate.clone(), Arc::clone(inside));
    spawn(async move {
        let deadline = Deadline::after(Duration::from_secs(3600));
        let permit = gate.admit_as(caller, priority, deadline).await?;
        assert_eq!(inside.fetch_add(1, Relaxed), 0, "two in one place");
        let out = Out(inside);
        yield_now().await;
        yield_now().await;
        drop(out);
        permit.ignore();
        Ok(())
    })
}

fn explore(test: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(test.clone(), SCHEDULES);
    shuttle::check_pct(test, SCHEDULES, 3);
}

fn assert_empty(gate: &Gate) {
    let status = gate.status();
    assert_eq!((status.in_flight, status.queued), (0, [0; Priority::COUNT]));
    assert!(gate.0.queue.lock().is_empty());
}

#[test]
fn cancelling_races_with_being_let_in() {
    explore(|| {
        block_on(async {
            let (gate, inside) = (gate(1, 10), Arc::default());
            let tasks = [Priority::Low, Priority::Normal, Priority::Low, Priority::High]
                .map(|priority| request(&gate, &inside, priority));
            tasks[1].abort();
            yield_now().await;
            tasks[2].abort();
            for (nth, task) in tasks.into_iter().enumerate() {
                match task.await {
                    Ok(done) => assert_eq!(done, Ok(())),
                    Err(_) => assert!(nth == 1 || nth == 2),
                }
            }
            assert_empty(&gate);
        });
    });
}

#[test]
fn evicting_and_shedding_race_with_being_let_in() {
    explore(|| {
        block_on(async {
            let (gate, inside) = (gate(1, 1), Arc::default());
            let tasks = [Priority::Low, Priority::Low, Priority::High, Priority::Critical]
                .map(|priority| request(&gate, &inside, priority));
            let shedder = {
                let gate = gate.clone();
                spawn(async move { gate.shed(Shedding::Low) })
            };
            shedder.await.expect("not aborted");
            let mut served = 0;
            for task in tasks {
                match task.await.expect("not aborted") {
                    Ok(()) => served += 1,
                    Err(overloaded) => assert_ne!(overloaded.reason, Reason::TooLate),
                }
            }
            assert!(served > 0);
            assert_empty(&gate);
        });
    });
}

#[test]
fn callers_that_go_race_with_callers_that_come() {
    explore(|| {
        block_on(async {
            let (gate, inside) = (gate(1, 4), Arc::default());
            let callers = [Some("a"), Some("a"), Some("b"), None, Some("a")];
            let tasks = callers.map(|caller| request_of(&gate, &inside, Priority::Normal, caller));
            tasks[1].abort();
            yield_now().await;
            tasks[2].abort();
            for (nth, task) in tasks.into_iter().enumerate() {
                match task.await {
                    Ok(Ok(())) => {}
                    Ok(Err(refused)) => assert_eq!(refused.reason, Reason::Share),
                    Err(_) => assert!(nth == 1 || nth == 2),
                }
            }
            assert_empty(&gate);
        });
    });
}
