//! Every schedule that shuttle can find: no turn is lost, none is given twice. A lost wake-up is a
//! deadlock, which shuttle reports by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use shuttle::future::{block_on, spawn, yield_now};

use super::*;

const SCHEDULES: usize = 3_000;

fn lanes(workers: usize) -> Arc<Lanes<u8>> {
    let mut config = LanesConfig::new("explored", workers);
    config.limits.per_tenant = workers;
    Arc::new(Lanes::new(config))
}

fn work(key: u8) -> Work<'static, u8> {
    Work::new(key, if key == 0 { "a" } else { "b" }, Deadline::after(Duration::from_secs(3600)))
}

/// Under shuttle a scheduling point is where another task may see what this one is doing.
async fn alone(busy: Arc<[AtomicUsize; 2]>, key: u8) {
    struct Out(Arc<[AtomicUsize; 2]>, usize);
    impl Drop for Out {
        fn drop(&mut self) {
            self.0[self.1].fetch_sub(1, Relaxed);
        }
    }
    assert_eq!(busy[key as usize].fetch_add(1, Relaxed), 0, "two at once on key {key}");
    let _out = Out(Arc::clone(&busy), key as usize);
    yield_now().await;
    yield_now().await;
}

fn explore(test: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(test.clone(), SCHEDULES);
    shuttle::check_pct(test, SCHEDULES, 3);
}

#[test]
fn cancelling_races_with_being_given_the_turn() {
    explore(|| {
        block_on(async {
            let (lanes, busy) = (lanes(1), Arc::default());
            let tasks: Vec<_> = [0, 0, 1, 0]
                .into_iter()
                .map(|key| {
                    let (lanes, busy) = (Arc::clone(&lanes), Arc::clone(&busy));
                    spawn(async move { lanes.run(work(key), alone(busy, key)).await })
                })
                .collect();
            // Two go away, whenever that is; the other two must be served.
            tasks[0].abort();
            yield_now().await;
            tasks[2].abort();
            for (nth, task) in tasks.into_iter().enumerate() {
                match task.await {
                    Ok(done) => assert_eq!(done, Ok(())),
                    Err(_) => assert!(nth == 0 || nth == 2),
                }
            }
            let status = lanes.status();
            assert_eq!((status.queued, status.running, status.tenants.len()), (0, 0, 0));
            assert!(!lanes.owes());
        });
    });
}

#[test]
fn closing_races_with_submitting_and_finishing() {
    explore(|| {
        block_on(async {
            let (lanes, busy) = (lanes(1), Arc::default());
            let tasks: Vec<_> = [0, 1, 0]
                .into_iter()
                .map(|key| {
                    let (lanes, busy) = (Arc::clone(&lanes), Arc::clone(&busy));
                    spawn(async move { lanes.run(work(key), alone(busy, key)).await })
                })
                .collect();
            let closer = {
                let lanes = Arc::clone(&lanes);
                spawn(async move { lanes.close() })
            };
            lanes.closed().await;
            let finished = lanes.turns_given();
            closer.await.expect("not aborted");
            let mut done = 0;
            for task in tasks {
                match task.await.expect("not aborted") {
                    Ok(()) => done += 1,
                    Err(refused) => assert_eq!(refused, Refused::Closed),
                }
            }
            assert_eq!((done, lanes.turns_given()), (finished, finished));
        });
    });
}

#[test]
fn keys_of_two_workers_hand_over_without_losing_a_place() {
    explore(|| {
        block_on(async {
            let (lanes, busy) = (lanes(2), Arc::default());
            let tasks: Vec<_> = [0, 1, 0, 1, 0]
                .into_iter()
                .map(|key| {
                    let (lanes, busy) = (Arc::clone(&lanes), Arc::clone(&busy));
                    spawn(async move { lanes.run(work(key), alone(busy, key)).await })
                })
                .collect();
            for task in tasks {
                assert_eq!(task.await.expect("not aborted"), Ok(()));
            }
            assert_eq!(lanes.turns_given(), 5);
        });
    });
}
