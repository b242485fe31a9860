//! How long users and probes wait while strangers flood every listener from one address, against the same
//! with nobody there: a real process, one new connection for each request.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

#[path = "../tests/running/mod.rs"]
mod running;
#[path = "../tests/strangers/mod.rs"]
mod strangers;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bench::Table;
use running::Up;
use serde_json::Value;
use strangers::{Listeners, Strangers};

/// Of each kind of connection, to each listener.
const EACH: usize = 300;
const REQUESTS: usize = 1000;
/// Idle and flooded in turn, so that what else the machine does falls on both.
const TURNS: usize = 3;
/// For the flood to take all that it gets.
const RISE: Duration = Duration::from_secs(3);

struct Waits {
    user: Vec<Duration>,
    probe: Vec<Duration>,
}

fn main() -> ExitCode {
    let dir = tempfile::tempdir().unwrap();
    let (up, at) = Listeners::up(&dir.path().join("data"), None);
    up.wait_until_ready_says("fleet");
    measure(&up, REQUESTS / 4);
    let (mut idle, mut flooded) = (Waits::none(), Waits::none());
    for _ in 0..TURNS {
        idle.add(measure(&up, REQUESTS));
        let strangers = Strangers::flood(at, EACH);
        std::thread::sleep(RISE);
        flooded.add(measure(&up, REQUESTS));
        drop(strangers);
        std::thread::sleep(RISE);
    }
    let mut table = Table::new("flood");
    let (ours, rival) = (p99(flooded.user), p99(idle.user));
    table.row("a user's request, p99, strangers on every listener", "ns", ours, &[("idle", rival)]);
    table.must("at most 1.5 times idle", ours <= 1.5 * rival);
    let (ours, rival) = (p99(flooded.probe), p99(idle.probe));
    table.row("/livez, p99, strangers on every listener", "ns", ours, &[("idle", rival)]);
    table.must("under 100 ms", ours < 1e8);
    table.finish()
}

impl Waits {
    fn none() -> Self {
        Self { user: Vec::new(), probe: Vec::new() }
    }

    fn add(&mut self, more: Self) {
        self.user.extend(more.user);
        self.probe.extend(more.probe);
    }
}

fn measure(up: &Up, requests: usize) -> Waits {
    let mut waits = Waits::none();
    let livez = format!("{}/livez", up.admin);
    for nth in 0..requests {
        let began = Instant::now();
        assert_eq!(up.get("/clusters").status, 200);
        waits.user.push(began.elapsed());
        if nth % 5 == 0 {
            let began = Instant::now();
            assert_eq!(up.send("GET", &livez, &[], &Value::Null).status, 200);
            waits.probe.push(began.elapsed());
        }
    }
    waits
}

fn p99(mut waits: Vec<Duration>) -> f64 {
    waits.sort_unstable();
    waits[waits.len() * 99 / 100].as_nanos() as f64
}
