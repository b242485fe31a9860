use std::future::ready;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use shuttle::{check_pct, check_random, future, thread};

use super::*;

type Cells = Fresh<u8, u64, ()>;

const CONFIG: FreshConfig = FreshConfig {
    name: "explored",
    yes: Duration::from_secs(3600),
    no: Duration::from_secs(3600),
    lookup: Duration::from_secs(3600),
    answers: 4,
    lookups: 4,
};

fn explore(race: fn()) {
    check_random(race, 2000);
    check_pct(race, 1000, 3);
}

fn late() -> Deadline {
    Deadline::after(Duration::from_secs(3600))
}

async fn look(world: Arc<AtomicU64>) -> Result<Option<u64>, ()> {
    let seen = world.load(SeqCst);
    // What was seen is on its way back for a while.
    future::yield_now().await;
    Ok(Some(seen))
}

async fn ask(cells: &Cells, world: &Arc<AtomicU64>) -> u64 {
    let world = Arc::clone(world);
    let answer = cells.get(&0, late(), move |_| look(world)).await;
    *answer.expect("lookups do not fail here").value.expect("nor answer no")
}

/// The world changes, then the cache is reset: who asks after that never sees the old world.
#[test]
fn a_reset_reaches_every_call_after_it() {
    fn race(reset: fn(&Cells)) {
        let cells = Cells::new(CONFIG);
        let world = Arc::new(AtomicU64::new(1));
        let changed = Arc::new(AtomicBool::new(false));
        let callers: Vec<_> = (0..3)
            .map(|_| {
                let (cells, world, changed) = (cells.clone(), world.clone(), changed.clone());
                thread::spawn(move || {
                    future::block_on(async {
                        for _ in 0..2 {
                            let least = if changed.load(SeqCst) { 2 } else { 1 };
                            thread::yield_now();
                            let seen = ask(&cells, &world).await;
                            assert!(seen >= least, "an answer from before the reset");
                        }
                    });
                })
            })
            .collect();
        world.store(2, SeqCst);
        reset(&cells);
        changed.store(true, SeqCst);
        assert_eq!(future::block_on(ask(&cells, &world)), 2);
        for caller in callers {
            caller.join().unwrap();
        }
        assert_eq!(future::block_on(ask(&cells, &world)), 2, "a disowned answer was kept");
        assert_eq!(cells.0.state.lock().under_way, 0);
    }
    explore(|| race(|cells| cells.reset(&0)));
    explore(|| race(Cells::reset_all));
}

/// One of the callers leaves at any moment; the others are answered all the same. A lookup that
/// nobody drives would leave nobody to run, which shuttle reports as a deadlock.
#[test]
fn a_caller_that_leaves_takes_nobody_along() {
    explore(|| {
        let cells = Cells::new(CONFIG);
        let world = Arc::new(AtomicU64::new(7));
        let leaver = future::spawn({
            let (cells, world) = (cells.clone(), world.clone());
            async move { ask(&cells, &world).await }
        });
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let (cells, world) = (cells.clone(), world.clone());
                future::spawn(async move { ask(&cells, &world).await })
            })
            .collect();
        thread::yield_now();
        leaver.abort();
        for caller in callers {
            assert_eq!(future::block_on(caller).unwrap(), 7);
        }
        let _ = future::block_on(leaver);
        let state = cells.0.state.lock();
        assert_eq!((state.under_way, state.flights.len()), (0, 0));
    });
}

/// Lookups of one key never overlap while there is no reset, and never exceed their bound.
#[test]
fn one_key_has_one_lookup_at_a_time() {
    explore(|| {
        let cells = Cells::new(CONFIG);
        let inside = Arc::new(AtomicU64::new(0));
        let callers: Vec<_> = (0..3)
            .map(|_| {
                let (cells, inside) = (cells.clone(), inside.clone());
                thread::spawn(move || {
                    let alone = move |_| async move {
                        assert_eq!(inside.fetch_add(1, SeqCst), 0, "two lookups at once");
                        future::yield_now().await;
                        inside.fetch_sub(1, SeqCst);
                        Err(())
                    };
                    let failed = future::block_on(cells.get(&0, late(), alone));
                    assert!(matches!(failed, Err(LookupError::Failed(_))), "{failed:?}");
                })
            })
            .collect();
        for caller in callers {
            caller.join().unwrap();
        }
        let after = future::block_on(cells.get(&0, late(), |_| ready(Ok(Some(1)))));
        assert_eq!(after.unwrap().value.as_deref(), Some(&1), "an error was kept");
    });
}
