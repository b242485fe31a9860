//! How long 200,000 goroutines in a file take, in every form, and how much memory beyond the file.
//!
//! ```text
//! cargo bench -p doctor --bench large [-- GOROUTINES]
//! ```
//!
//! Beside each time stand its ratios to rivals from the same run. The floor is as fast as the bytes
//! can be looked at: `memchr` counting the lines, or for the protobuf `flate2` unpacking it. The
//! script folds the stacks of `debug=2` into a map of strings. Times are the processor's, so that a
//! busy machine does not change them. It fails above the limits: 1 s and 16 MB for `debug=2`, 0.2 s
//! for the others; `unfolded` is a protobuf with a sample for each goroutine.

#[path = "../examples/generate.rs"]
mod generate;

use std::collections::HashMap;
use std::hint::black_box;
use std::io::Read as _;
use std::process::ExitCode;
use std::time::Duration;

use bench::Table;
use doctor::Options;
use flate2::read::GzDecoder;

const RUNS: usize = 5;
const MEMORY: u64 = 16_000_000;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // Test runners start benchmarks too, without this.
    if !args.iter().any(|a| a == "--bench") {
        return ExitCode::SUCCESS;
    }
    let goroutines = args.iter().find_map(|a| a.parse().ok()).unwrap_or(200_000);
    let mut table = Table::new("doctor");
    let debug2 = generate::debug2(goroutines, 1);
    memory_beyond(&mut table, &debug2);
    let short = Duration::from_millis(200);
    let mut examine = |form: &str, bytes: Vec<u8>, limit, floor, script| {
        let what = format!("{form}, {goroutines} goroutines, {} MB", bytes.len() / 1_000_000);
        examine(&mut table, &what, &bytes, limit, floor, script);
    };
    examine("debug=2", debug2.clone(), Duration::from_secs(1), lines, Some(fold));
    examine("debug=1", generate::debug1(goroutines), short, lines, None);
    examine("protobuf", generate::protobuf(goroutines), short, unpack, None);
    examine("unfolded", generate::unfolded(goroutines), short, unpack, None);
    in_memory(&mut table, &debug2);
    table.finish()
}

type Rival = fn(&[u8]) -> usize;

/// Adds a row for time, against the least that reading takes.
fn examine(
    table: &mut Table,
    what: &str,
    bytes: &[u8],
    limit: Duration,
    floor: Rival,
    script: Option<Rival>,
) {
    let file = tempfile::NamedTempFile::new().expect("a place for a file");
    std::fs::write(file.path(), bytes).expect("room for the file");
    let path = [file.path().to_string_lossy().into_owned()];
    let time = best(|| look(&path));

    let took = |rival: Rival| best(|| rival(black_box(bytes))).as_nanos() as f64;
    let mut rivals = vec![("only reading it", took(floor))];
    rivals.extend(script.map(|script| ("a script that folds equal stacks", took(script))));
    table.row(what, "ns", time.as_nanos() as f64, &rivals);
    table.must(&format!("within {limit:?}"), time <= limit);
}

fn look(path: &[String]) {
    let (report, _) = doctor::examine_inputs(path, &Options::default(), &mut |_| {});
    assert!(!report.findings.is_empty(), "the stall was not found");
}

/// Adds the row for memory. It must come first: later work finds what the allocator kept of earlier work.
fn memory_beyond(table: &mut Table, bytes: &[u8]) {
    let file = tempfile::NamedTempFile::new().expect("a place for a file");
    std::fs::write(file.path(), bytes).expect("room for the file");
    let resident = memory("VmRSS:");
    // Sets the peak back to what is resident now.
    std::fs::write("/proc/self/clear_refs", "5").expect("the process may clear its own peak");
    look(&[file.path().to_string_lossy().into_owned()]);
    let beyond = memory("VmHWM:").saturating_sub(resident + bytes.len() as u64);
    let what = format!("memory beyond the file, debug=2, {} MB", bytes.len() / 1_000_000);
    table.row(&what, "B", beyond as f64, &[]);
    table.must(&format!("within {} MB", MEMORY / 1_000_000), beyond <= MEMORY);
}

/// The same for bytes that a page or an endpoint has in memory already.
fn in_memory(table: &mut Table, bytes: &[u8]) {
    let time = best(|| doctor::examine("stall.txt", bytes));
    table.row("debug=2 that is in memory already", "ns", time.as_nanos() as f64, &[]);
    table.must("within 1 s", time <= Duration::from_secs(1));
}

/// The shortest of some runs. The kernel keeps a thread's time by its tick, so that a run repeats
/// short work until it takes many ticks.
fn best<T>(mut work: impl FnMut() -> T) -> Duration {
    let mut rounds = 1;
    let mut shortest = Duration::MAX;
    for _ in 0..RUNS {
        loop {
            let begun = processor();
            for _ in 0..rounds {
                black_box(work());
            }
            let time = processor() - begun;
            if time >= Duration::from_millis(50) {
                shortest = shortest.min(time / rounds);
                break;
            }
            rounds *= 2;
        }
    }
    shortest
}

fn lines(bytes: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', bytes).count()
}

fn unpack(bytes: &[u8]) -> usize {
    let mut plain = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut plain).expect("it was packed here")
}

/// Goroutines counted by the text of their functions.
fn fold(bytes: &[u8]) -> usize {
    let mut counts: HashMap<String, u64> = HashMap::new();
    let mut key = String::new();
    for line in String::from_utf8_lossy(bytes).lines() {
        if line.is_empty() {
            *counts.entry(std::mem::take(&mut key)).or_default() += 1;
        } else if !line.starts_with('\t') && !line.starts_with("goroutine ") {
            key.push_str(line.rsplit_once('(').map_or(line, |(function, _)| function));
            key.push('\n');
        }
    }
    counts.len()
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
