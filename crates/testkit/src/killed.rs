//! [`killed`]: a process that acknowledges what it writes is killed at any moment, again and again, and
//! whoever opens its files afterwards must find everything that it acknowledged.
//!
//! ```text
//! test ──► this program again, the same test: `write` ──► files
//!   ▲                     └── acknowledge ──► pipe ──┐
//!   └── `check` of what was acknowledged ◄── SIGKILL ┘
//! ```
//!
//! Contract:
//! - A seed decides when. Every other process is killed after its first acknowledgement, the others at any
//!   moment from their first instruction on: while they open what the one before left.
//! - `FAIRLEAD_KILLS` says how often, `FAIRLEAD_SEED` with which seed. Use `cargo test` for many, because
//!   nextest ends tests that take long.
//! - A process that ends by itself fails the test, and so do processes that hardly came to write.
//!
//! `kill -9` takes the process and leaves the kernel: what was written and not synced is still there. What a
//! power failure leaves is the affair of the simulated disk (`crates/simulation`).

#![allow(
    clippy::print_stdout,
    reason = "how many kills showed it is for whoever reads the test's output"
)]

use std::fmt::Display;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use std::{env, io, process, thread};

use fastrand::Rng;
use tempfile::TempDir;

const DIR: &str = "FAIRLEAD_TEST_KILLED_DIR";
const LIFE: &str = "FAIRLEAD_TEST_KILLED_LIFE";
const SAID: &str = "acknowledged ";
/// How often, unless somebody says so: a second or two.
const KILLS: u64 = 12;
/// How long a process may take to its first acknowledgement on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a process lives after its first acknowledgement, at most.
const AFTER: Duration = Duration::from_millis(30);

/// One process that was killed.
#[derive(Debug)]
pub struct Killed {
    /// Its number, from zero on.
    pub life: u64,
    /// What it acknowledged, in order.
    pub acknowledged: Vec<String>,
}

/// How many processes were killed, and how much they had acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kills {
    pub kills: u64,
    pub acknowledged: u64,
}

/// Says to whoever kills this process that something is durable.
pub fn acknowledge(what: impl Display) {
    // One write: a line that is cut off was not said.
    let line = format!("{SAID}{what}\n");
    io::stdout().write_all(line.as_bytes()).expect("the test reads what is acknowledged");
}

/// How often to kill, and with which seed.
pub fn kills_and_seed() -> (u64, u64) {
    let number = |name: &str| {
        let text = env::var(name).ok()?;
        Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
    };
    (number("FAIRLEAD_KILLS").unwrap_or(KILLS), number("FAIRLEAD_SEED").unwrap_or(7))
}

/// Has `write` write into a directory in a process of its own and in the next, each of which is killed; after
/// each `check` looks at the directory. `test` is the calling test's whole name, as libtest has it. `write` is
/// told the number of its life, and must not return.
pub fn killed(test: &str, write: impl FnOnce(&Path, u64), mut check: impl FnMut(&Path, &Killed)) {
    if let Some(dir) = env::var_os(DIR).map(PathBuf::from) {
        let life = env::var(LIFE).ok().and_then(|life| life.parse().ok()).unwrap_or_default();
        end_with_the_test();
        // libtest may have begun a line.
        let _ = io::stdout().write_all(b"\n");
        write(&dir, life);
        panic!("what is to be killed has ended by itself");
    }
    let (kills, seed) = kills_and_seed();
    let dir = TempDir::new().expect("a directory can be made");
    let mut random = Rng::with_seed(seed);
    let mut start = Duration::from_millis(20);
    let mut sum = Kills::default();
    for life in 0..kills {
        let when = match life % 2 {
            0 => When::Acknowledged(AFTER.mul_f64(random.f64())),
            _ => When::Begun(2 * start.mul_f64(random.f64())),
        };
        let (acknowledged, first) = run(test, dir.path(), life, when);
        start = first.unwrap_or(start);
        sum.kills += 1;
        sum.acknowledged += acknowledged.len() as u64;
        check(dir.path(), &Killed { life, acknowledged });
    }
    let Kills { kills, acknowledged } = sum;
    println!("{test}: seed {seed}: {kills} kills, {acknowledged} acknowledged writes");
    assert!(2 * acknowledged >= kills, "{acknowledged} writes in {kills} lives show nothing");
}

/// When a process is killed.
#[derive(Clone, Copy)]
enum When {
    /// So long after it was begun.
    Begun(Duration),
    /// So long after its first acknowledgement.
    Acknowledged(Duration),
}

/// Ended however the test ends.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Begins a process and kills it. Returns what it acknowledged, and how long the first took it.
fn run(test: &str, dir: &Path, life: u64, when: When) -> (Vec<String>, Option<Duration>) {
    let program = env::current_exe().expect("a test knows its program");
    let began = Instant::now();
    let child = Command::new(program)
        .args(["--exact", test, "--nocapture"])
        .env(DIR, dir)
        .env(LIFE, life.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut process = Process(child.expect("a test can begin itself"));
    let said = process.0.stdout.take().expect("it is a pipe");
    let mut errors = process.0.stderr.take().expect("it is a pipe");
    let errors = thread::spawn(move || {
        let mut text = String::new();
        let _ = errors.read_to_string(&mut text);
        text
    });
    let (first, acknowledges) = channel();
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        for line in BufReader::new(said).split(b'\n').map_while(Result::ok) {
            if let Some(what) = line.strip_prefix(SAID.as_bytes()) {
                all.push(String::from_utf8_lossy(what).into_owned());
                let _ = first.send(began.elapsed());
            }
        }
        all
    });
    let (mut took, mut ended) = (None, None);
    match when {
        When::Begun(wait) => thread::sleep(wait),
        When::Acknowledged(wait) => match acknowledges.recv_timeout(PATIENCE) {
            Ok(first) => {
                took = Some(first);
                thread::sleep(wait);
            }
            Err(RecvTimeoutError::Timeout) => panic!("nothing was acknowledged in {PATIENCE:?}"),
            // It has closed its output: it ends.
            Err(RecvTimeoutError::Disconnected) => ended = process.0.wait().ok(),
        },
    }
    ended = ended.or(process.0.try_wait().expect("a process can be looked at"));
    drop(process);
    let acknowledged = reader.join().expect("the reader does not panic");
    let errors = errors.join().expect("the reader does not panic");
    if let Some(status) = ended {
        panic!("life {life} of {test} ended by itself: {status}\n{errors}");
    }
    (acknowledged, took)
}

/// Ends this process when the test has ended, however that did.
fn end_with_the_test() {
    thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        process::exit(1);
    });
}
