//! How long 200,000 goroutines in a file take, in every form, and how much memory beyond the file.
//!
//! ```text
//! cargo bench -p doctor --bench large [-- GOROUTINES]
//! ```
//!
//! Beside each time stands its ratio to rivals from the same run: `memchr` counting the lines,
//! which is as fast as the bytes can be looked at, and folding the stacks into a map of strings,
//! which is what a script does. Times are the processor's, so that a busy machine does not change
//! them. It fails above the limits: 2 s and 200 MB for `debug=2`, 0.2 s for the protobuf.

#![allow(clippy::print_stdout, reason = "the figures are its result")]

#[path = "../examples/generate.rs"]
mod generate;

use std::collections::HashMap;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;

use doctor::Options;

const RUNS: usize = 5;
const MEMORY: u64 = 200_000_000;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // Test runners start benchmarks too, without this.
    if !args.iter().any(|a| a == "--bench") {
        return ExitCode::SUCCESS;
    }
    let goroutines = args.iter().find_map(|a| a.parse().ok()).unwrap_or(200_000);
    println!("{goroutines} goroutines, best of {RUNS}\n");
    println!("form              MB        ms      MB/s  beyond MB  x memchr  x string fold");
    let within = [
        examine(
            "debug=2",
            generate::debug2(goroutines, 1),
            Duration::from_secs(2),
        ),
        examine(
            "debug=1",
            generate::debug1(goroutines),
            Duration::from_millis(200),
        ),
        examine(
            "protobuf",
            generate::protobuf(goroutines),
            Duration::from_millis(200),
        ),
    ];
    if within.contains(&false) {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Prints one line; whether time and memory are within the limits.
fn examine(form: &str, bytes: Vec<u8>, limit: Duration) -> bool {
    let size = bytes.len();
    // The kernel keeps a thread's time by its tick: short work is repeated.
    let rounds = (50_000_000 / size).clamp(1, 2000) as u32;
    let lines = best(rounds, || {
        memchr::memchr_iter(b'\n', black_box(&bytes)).count()
    });
    let fold = best(rounds, || fold(black_box(&bytes)).len());
    let file = tempfile::NamedTempFile::new().expect("a place for a file");
    std::fs::write(file.path(), &bytes).expect("room for the file");
    drop(bytes);

    let path = [file.path().to_string_lossy().into_owned()];
    let resident = memory("VmRSS:");
    // Sets the peak back to what is resident now.
    std::fs::write("/proc/self/clear_refs", "5").expect("the process may clear its own peak");
    let time = best(rounds, || {
        let (report, _) = doctor::examine_inputs(&path, &Options::default(), &mut |_| {});
        assert!(!report.findings.is_empty(), "the stall was not found");
    });
    let beyond = memory("VmHWM:").saturating_sub(resident + size as u64);

    let megabytes = size as f64 / 1e6;
    let [seconds, lines, fold] = [time, lines, fold].map(|t| t.as_secs_f64());
    println!(
        "{form:<10} {megabytes:>9.3} {:>9.2} {:>9.0} {:>10.1} {:>9.1} {:>14.2}",
        seconds * 1e3,
        megabytes / seconds,
        beyond as f64 / 1e6,
        seconds / lines,
        seconds / fold,
    );
    let within = time <= limit && beyond <= MEMORY;
    if !within {
        println!(
            "           above the limit of {limit:?} and {} MB",
            MEMORY / 1_000_000
        );
    }
    within
}

fn best<T>(rounds: u32, mut work: impl FnMut() -> T) -> Duration {
    let mut shortest = Duration::MAX;
    for _ in 0..RUNS {
        let begun = processor();
        for _ in 0..rounds {
            black_box(work());
        }
        shortest = shortest.min((processor() - begun) / rounds);
    }
    shortest
}

/// The rival: goroutines counted by the text of their functions.
fn fold(bytes: &[u8]) -> HashMap<String, u64> {
    let mut counts = HashMap::new();
    let mut key = String::new();
    for line in String::from_utf8_lossy(bytes).lines() {
        if line.is_empty() {
            *counts.entry(std::mem::take(&mut key)).or_default() += 1;
        } else if !line.starts_with('\t') && !line.starts_with("goroutine ") {
            key.push_str(line.rsplit_once('(').map_or(line, |(function, _)| function));
            key.push('\n');
        }
    }
    counts
}

/// How long this thread has been on a processor.
fn processor() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("this is Linux");
    let nanoseconds = stat.split_whitespace().next().and_then(|n| n.parse().ok());
    Duration::from_nanos(nanoseconds.expect("the kernel gives this figure"))
}

/// A figure of this process in bytes.
fn memory(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find(|line| line.starts_with(name));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kilobytes.expect("the kernel gives this figure") * 1024
}
