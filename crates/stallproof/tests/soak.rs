//! Ten times the load, for `STALLPROOF_SOAK_SECONDS` (2 by default): requests pass a gate and then the
//! lanes, some go to the lanes past the gate; some keys are stuck, some callers go away, some deadlines are too short. What is checked
//! does not depend on speed: limits hold at all times, and at the end everything is accounted for
//! and every place is free.
//!
//! `STALLPROOF_SOAK_SECONDS=600 cargo test -p stallproof --release --test soak -- --nocapture`
#![cfg(not(feature = "shuttle"))]

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use stallproof::gate::GateConfig;
use stallproof::lanes::LanesConfig;
use stallproof::lanes::Stage;
use stallproof::{Deadline, Gate, Lanes, Ledger, Priority, Refused, Work};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const WORKERS: usize = 16;
const KEYS: u64 = 32;
/// Work takes 1 ms on average, so that this many callers who never pause are ten times too many.
const CALLERS: u64 = 10 * WORKERS as u64;

#[derive(Debug, Default)]
struct Tally {
    submitted: AtomicU64,
    done: AtomicU64,
    overloaded: AtomicU64,
    full: AtomicU64,
    expired: AtomicU64,
    cancelled: AtomicU64,
    busy: [AtomicUsize; KEYS as usize],
    running: AtomicUsize,
}

/// Counts work in and out, also when it is dropped in the middle.
struct Inside<'a>(&'a Tally, u64);

impl<'a> Inside<'a> {
    fn enter(tally: &'a Tally, key: u64) -> Self {
        assert_eq!(tally.busy[key as usize].fetch_add(1, Relaxed), 0, "two at once on key {key}");
        assert!(tally.running.fetch_add(1, Relaxed) < WORKERS, "more at once than workers");
        Self(tally, key)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Relaxed);
        self.0.busy[self.1 as usize].fetch_sub(1, Relaxed);
    }
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

enum Answer {
    Done,
    Overloaded,
    Refused(Refused),
}

async fn request(gate: &Gate, lanes: &Lanes<u64>, ledger: &Ledger, tally: &Tally, dice: &mut Dice) {
    let priority = Priority::ALL[dice.roll(4) as usize];
    let deadline = Deadline::after(Duration::from_millis(5 + dice.roll(200)));
    let key = dice.roll(KEYS);
    let tenant = if dice.roll(10) < 9 { "flood".to_owned() } else { dice.roll(8).to_string() };
    let take =
        if key == 0 { Duration::from_secs(60) } else { Duration::from_micros(dice.roll(2000)) };
    let patience = match dice.roll(5) {
        0 => Duration::from_micros(dice.roll(5000)),
        _ => Duration::from_secs(60),
    };
    let past_the_gate = dice.roll(4) == 0;
    let op = ledger.begin("soak", key.to_string(), tenant.clone());
    tally.submitted.fetch_add(1, Relaxed);
    let answer = timeout(patience, async {
        let permit = if past_the_gate {
            None
        } else {
            match gate.admit(priority, deadline).await {
                Ok(permit) => Some(permit),
                Err(_) => return Answer::Overloaded,
            }
        };
        let work = Work { op: Some(&op), ..Work::new(key, &tenant, deadline) };
        let done = lanes.run(work, async {
            let _inside = Inside::enter(tally, key);
            sleep(take).await;
        });
        match done.await {
            Ok(()) => Answer::Done,
            Err(refused) => {
                if let Some(permit) = permit {
                    permit.ignore();
                }
                Answer::Refused(refused)
            }
        }
    });
    let count = match answer.await {
        Err(_) => &tally.cancelled,
        Ok(Answer::Done) => &tally.done,
        Ok(Answer::Overloaded) => &tally.overloaded,
        Ok(Answer::Refused(Refused::Full { .. })) => &tally.full,
        Ok(Answer::Refused(Refused::Expired(Stage::Queued | Stage::Running))) => &tally.expired,
        Ok(Answer::Refused(Refused::Closed)) => unreachable!("closed only at the end"),
    };
    count.fetch_add(1, Relaxed);
    // A refused caller would come back at once otherwise, and the test would measure the loop.
    sleep(Duration::from_micros(dice.roll(1000))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_times_the_load_leaves_nothing_behind() {
    let seconds = std::env::var("STALLPROOF_SOAK_SECONDS").map_or(2, |text| {
        text.parse().expect("STALLPROOF_SOAK_SECONDS is a whole number of seconds")
    });
    let seed = RandomState::new().hash_one(seconds);
    println!("seed {seed}, {seconds} s");
    let until = Instant::now() + Duration::from_secs(seconds);

    let mut config = LanesConfig::new("soak", WORKERS);
    config.limits.queue = 64;
    config.limits.queue_per_tenant = 48;
    let limits = config.limits;
    let lanes = Arc::new(Lanes::new(config));
    let queue = 64;
    let gate = Gate::new(GateConfig { queue, ..GateConfig::new("soak") });
    let (tally, ledger) = (Arc::new(Tally::default()), Ledger::default());

    let mut callers = JoinSet::new();
    for nth in 0..CALLERS {
        let (gate, lanes, ledger) = (gate.clone(), Arc::clone(&lanes), ledger.clone());
        let (tally, mut dice) = (Arc::clone(&tally), Dice(seed ^ nth.wrapping_mul(0x9E37_79B9)));
        callers.spawn(async move {
            while Instant::now() < until {
                request(&gate, &lanes, &ledger, &tally, &mut dice).await;
            }
        });
    }
    while Instant::now() < until {
        let status = lanes.status();
        assert!(status.running <= limits.workers && status.queued <= limits.queue);
        for tenant in &status.tenants {
            assert!(tenant.running <= limits.per_tenant, "{tenant:?}");
            assert!(tenant.queued <= limits.queue_per_tenant, "{tenant:?}");
        }
        assert!(gate.status().queued.iter().sum::<usize>() <= queue);
        sleep(Duration::from_millis(20)).await;
    }
    while let Some(ended) = callers.join_next().await {
        ended.expect("no caller panicked");
    }

    lanes.close();
    timeout(Duration::from_secs(60), lanes.closed()).await.expect("nothing runs any more");
    println!("{tally:?}\n{:?}", gate.status());
    let get = |count: &AtomicU64| count.load(Relaxed);
    let answered = [&tally.done, &tally.overloaded, &tally.full, &tally.expired, &tally.cancelled];
    assert_eq!(get(&tally.submitted), answered.into_iter().map(get).sum::<u64>());
    assert!(get(&tally.done) > 0);
    let left = lanes.status();
    assert_eq!((left.queued, left.running, left.tenants.len()), (0, 0, 0));
    assert_eq!((gate.status().in_flight, gate.status().queued), (0, [0; Priority::COUNT]));
}
