//! How long users and probes wait while strangers flood every listener from one address, against the same
//! with nobody there: a real process, one new connection for each request.
//!
//! Strangers have machines of their own, so theirs are a process of this benchmark that gets the processor
//! time which nobody else wants; how many connections they opened is told. What a flood costs the machine
//! and not the process is seen by flooding a second process: the rival `beside`.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "a benchmark")]

#[path = "../tests/running/mod.rs"]
mod running;
#[path = "../tests/strangers/mod.rs"]
mod strangers;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use bench::Table;
use running::Up;
use serde_json::Value;
use strangers::{Listeners, Strangers};

/// Of each kind of connection, to each listener.
const EACH: usize = 300;
const REQUESTS: usize = 1000;
/// Idle and flooded in turn, so that what else the machine does falls on both. Of the turns' p99 the median
/// counts: a machine that others share is away for milliseconds now and then, which is one turn's p99.
const TURNS: usize = 5;
/// For the flood to take all that it gets.
const RISE: Duration = Duration::from_secs(3);

/// Of one turn.
#[derive(Default)]
struct Waits {
    user: Vec<Duration>,
    probe: Vec<Duration>,
}

/// Of all turns, in nanoseconds.
#[derive(Default)]
struct P99s {
    user: Vec<f64>,
    probe: Vec<f64>,
}

/// The addresses to flood: set for the process that is the strangers.
const FLOODED: &str = "FLOOD_BENCH_LISTENERS";

fn main() -> ExitCode {
    if let Ok(at) = std::env::var(FLOODED) {
        return be_strangers(&at);
    }
    let dir = tempfile::tempdir().unwrap();
    let (up, at) = Listeners::up(&dir.path().join("data"), None);
    let (other, beside_at) = Listeners::up(&dir.path().join("other"), None);
    up.wait_until_ready_says("fleet");
    other.wait_until_ready_says("fleet");
    measure(&up, REQUESTS / 4);
    let (mut idle, mut beside, mut flooded) = (P99s::default(), P99s::default(), P99s::default());
    let (mut opened_beside, mut opened) = (0, 0);
    for _ in 0..TURNS {
        idle.add(&measure(&up, REQUESTS));
        let (waits, connections) = with_strangers(beside_at, &up);
        beside.add(&waits);
        opened_beside += connections;
        let (waits, connections) = with_strangers(at, &up);
        flooded.add(&waits);
        opened += connections;
    }
    eprintln!("strangers opened {opened} connections, and {opened_beside} to the process beside");
    let mut table = Table::new("flood");
    let (ours, rivals) = (median(&flooded.user), [median(&idle.user), median(&beside.user)]);
    let named = [("idle", rivals[0]), ("beside", rivals[1])];
    table.row("a user's request, p99, strangers on every listener", "ns", ours, &named);
    table.must("at most 1.5 times idle", ours <= 1.5 * rivals[0]);
    let (ours, rivals) = (median(&flooded.probe), [median(&idle.probe), median(&beside.probe)]);
    let named = [("idle", rivals[0]), ("beside", rivals[1])];
    table.row("/livez, p99, strangers on every listener", "ns", ours, &named);
    table.must("under 100 ms", ours < 1e8);
    table.finish()
}

/// What users of `up` wait for while `at` is flooded, and how many connections strangers opened.
fn with_strangers(at: Listeners, up: &Up) -> (Waits, usize) {
    let at = [at.api, at.admin, at.agents, at.webhook].map(|one| one.to_string()).join(",");
    let mut strangers: Child = Command::new("chrt")
        .args(["--idle", "0"])
        .arg(std::env::current_exe().unwrap())
        .env(FLOODED, at)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("chrt, of util-linux");
    std::thread::sleep(RISE);
    let waits = measure(up, REQUESTS);
    drop(strangers.stdin.take());
    let mut opened = String::new();
    BufReader::new(strangers.stdout.take().unwrap()).read_line(&mut opened).unwrap();
    strangers.wait().unwrap();
    std::thread::sleep(RISE);
    (waits, opened.trim().parse().unwrap())
}

/// Floods until standard input ends, and says how many connections were opened.
fn be_strangers(at: &str) -> ExitCode {
    let at: Vec<_> = at.split(',').map(|one| one.parse().unwrap()).collect();
    let [api, admin, agents, webhook] = at[..] else { panic!("four addresses") };
    let strangers = Strangers::flood(Listeners { api, admin, agents, webhook }, EACH);
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
    println!("{}", strangers.opened());
    ExitCode::SUCCESS
}

impl P99s {
    fn add(&mut self, turn: &Waits) {
        self.user.push(p99(&turn.user));
        self.probe.push(p99(&turn.probe));
    }
}

fn measure(up: &Up, requests: usize) -> Waits {
    let mut waits = Waits::default();
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

fn p99(waits: &[Duration]) -> f64 {
    let mut waits = waits.to_vec();
    waits.sort_unstable();
    waits[waits.len() * 99 / 100].as_nanos() as f64
}

fn median(turns: &[f64]) -> f64 {
    let mut turns = turns.to_vec();
    turns.sort_by(f64::total_cmp);
    turns[turns.len() / 2]
}
