//! The Gate at ten times the load that what is behind it can bear.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bench::Table;
use stallproof::Deadline;
use stallproof::gate::{Gate, GateConfig, InFlightLimits, Priority};
use tokio::sync::Semaphore;

use crate::percentile;

/// What is behind the gate: this many at once, each for this long. More at once only wait longer.
const PLACES: usize = 8;
const SERVICE: Duration = Duration::from_millis(4);
const PATIENCE: Duration = Duration::from_millis(200);
const RUN: Duration = Duration::from_secs(4);

#[derive(Default)]
struct Tally {
    in_time: u64,
    late: u64,
    refused: Vec<f64>,
}

pub(crate) fn run(table: &mut Table) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime can be built");
    let capacity = PLACES as f64 / SERVICE.as_secs_f64();
    let peak = runtime.block_on(peak());
    let open = runtime.block_on(load(None, capacity * 10.0));
    let limits = InFlightLimits { min: 2, initial: 32, max: 512 };
    let gate = Gate::new(GateConfig { limits, ..GateConfig::new("bench") });
    let mut gated = runtime.block_on(load(Some(gate), capacity * 10.0));

    let per_second = |tally: &Tally| tally.in_time as f64 / RUN.as_secs_f64();
    let (ours, without) = (per_second(&gated), per_second(&open));
    let rivals = [("peak: as many clients as places", peak), ("no gate", without)];
    table.row("answered in time per second at 10 times the load", "/s", ours, &rivals);
    table.must("at least 90 % of peak", ours >= 0.9 * peak);
    table.row("let in and answered too late", " requests", gated.late as f64, &[]);
    table.must("none", gated.late == 0);
    table.row("the same with no gate", " requests", open.late as f64, &[]);
    table.row("time to refuse, p99", "ns", percentile(&mut gated.refused, 99.0), &[]);
    table.must("under 10 ms", percentile(&mut gated.refused, 99.0) < 10e6);
}

async fn load(gate: Option<Gate>, per_second: f64) -> Tally {
    let backend = Arc::new(Semaphore::new(PLACES));
    let tick = Duration::from_millis(1);
    let mut requests = tokio::task::JoinSet::new();
    let mut tally = Tally::default();
    let began = Instant::now();
    let mut sent = 0u64;
    while began.elapsed() < RUN {
        let due = (began.elapsed().as_secs_f64() * per_second) as u64;
        while sent < due {
            sent += 1;
            requests.spawn(request(gate.clone(), backend.clone()));
        }
        tokio::time::sleep(tick).await;
        while let Some(answer) = requests.try_join_next() {
            tally.count(&answer.expect("a request does not panic"));
        }
    }
    // What was sent in time may still be answered in time; what is left then is late.
    let drain = async {
        while let Some(answer) = requests.join_next().await {
            tally.count(&answer.expect("a request does not panic"));
        }
    };
    let _ = Deadline::after(PATIENCE * 2).bound(drain).await;
    tally.late += requests.len() as u64;
    tally
}

/// The most that what is behind the gate can do: a client for each place, one request after another.
async fn peak() -> f64 {
    let backend = Arc::new(Semaphore::new(PLACES));
    let end = Instant::now() + RUN;
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..PLACES {
        let backend = backend.clone();
        clients.spawn(async move {
            let mut answered = 0u64;
            while Instant::now() < end {
                request(None, backend.clone()).await;
                answered += 1;
            }
            answered
        });
    }
    clients.join_all().await.iter().sum::<u64>() as f64 / RUN.as_secs_f64()
}

enum Answer {
    InTime,
    Late,
    Refused(f64),
}

impl Tally {
    fn count(&mut self, answer: &Answer) {
        match answer {
            Answer::InTime => self.in_time += 1,
            Answer::Late => self.late += 1,
            Answer::Refused(nanos) => self.refused.push(*nanos),
        }
    }
}

async fn request(gate: Option<Gate>, backend: Arc<Semaphore>) -> Answer {
    let came = Instant::now();
    let deadline = Deadline::after(PATIENCE);
    let permit = match &gate {
        None => None,
        Some(gate) => match gate.admit(Priority::Normal, deadline).await {
            Ok(permit) => Some(permit),
            Err(_) => return Answer::Refused(came.elapsed().as_nanos() as f64),
        },
    };
    let place = backend.acquire().await.expect("the backend stays open");
    tokio::time::sleep(SERVICE).await;
    drop(place);
    drop(permit);
    if came.elapsed() <= PATIENCE { Answer::InTime } else { Answer::Late }
}
