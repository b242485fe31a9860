//! Every reader is total: whatever the bytes, there is a report, soon, and it is the same report
//! the next time. Inputs are the fixtures, mutated in the ways that real evidence is damaged.
//!
//! A failure names its case; `DOCTOR_FUZZ_CASE=n` runs that one again. `DOCTOR_FUZZ_SECONDS` and
//! `DOCTOR_FUZZ_SEED` make a longer and another run.

#[path = "../examples/generate.rs"]
mod generate;

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use generate::Rng;

/// Far above what an input of this size needs on a busy machine, far below a quadratic reader.
const PATIENCE: Duration = Duration::from_secs(20);
const LARGEST: usize = 256 << 10;

#[test]
fn any_bytes_give_the_same_report_twice_and_soon() {
    let corpus = corpus();
    if let Some(case) = number("DOCTOR_FUZZ_CASE") {
        return check(&corpus, case);
    }
    let first = number("DOCTOR_FUZZ_SEED").unwrap_or(1);
    let budget = Duration::from_secs(number("DOCTOR_FUZZ_SECONDS").unwrap_or(5));
    let begun = Instant::now();
    let cases = (first..).take_while(|_| begun.elapsed() < budget);
    println!("{} inputs", cases.map(|case| check(&corpus, case)).count());
}

fn check(corpus: &[Vec<u8>], case: u64) {
    let input = mutated(corpus, case);
    let (tell, told) = sync_channel(1);
    let worker = {
        let input = input.clone();
        std::thread::spawn(move || {
            let twice = [report(&input), report(&input)];
            // The other end is gone when this took too long.
            let _ = tell.send(twice);
        })
    };
    let fault = match told.recv_timeout(PATIENCE) {
        Ok([one, two]) if one == two => match serde_json::from_str::<doctor::Report>(&one) {
            Ok(_) => return,
            Err(error) => format!("the report is not JSON that reads back: {error}"),
        },
        Ok([one, two]) => format!("two reports of the same bytes differ:\n{one}\n{two}"),
        Err(RecvTimeoutError::Timeout) => format!("no report after {PATIENCE:?}"),
        Err(RecvTimeoutError::Disconnected) => {
            let panic = worker.join().expect_err("it dropped its end by panicking");
            let text = panic.downcast_ref::<String>().map(String::as_str);
            text.or(panic.downcast_ref::<&str>().copied())
                .unwrap_or("a panic without a text")
                .to_owned()
        }
    };
    let head = input[..input.len().min(2000)].escape_ascii();
    panic!("{fault}\nDOCTOR_FUZZ_CASE={case} runs it again; {} bytes: {head}", input.len());
}

fn report(input: &[u8]) -> String {
    serde_json::to_string(&doctor::examine("fuzz", input)).expect("a report is plain values")
}

/// What the repository has of each kind of input, whole, and compressed ones also unpacked.
fn corpus() -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    collect(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")), &mut files);
    files.sort();
    let mut corpus: Vec<Vec<u8>> = Vec::new();
    for file in files {
        let bytes = std::fs::read(&file).expect("a fixture is readable");
        let mut plain = Vec::new();
        if GzDecoder::new(&bytes[..]).read_to_end(&mut plain).is_ok() {
            // Each member of an archive is an input of its own: a dump in one form.
            if file.to_string_lossy().ends_with(".tar.gz") {
                corpus.extend(members(&plain));
            }
            corpus.push(plain);
        }
        corpus.push(bytes);
    }
    corpus.push(generate::debug2(60, 1));
    corpus.push(generate::debug1(200_000));
    corpus.push(generate::protobuf(200_000));
    corpus
}

fn members(archive: &[u8]) -> Vec<Vec<u8>> {
    let mut archive = tar::Archive::new(archive);
    let entries = archive.entries().expect("a fixture is a tar");
    let read = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
        let mut bytes = Vec::new();
        entry.expect("a member").read_to_end(&mut bytes).expect("a member is whole");
        bytes
    };
    entries.map(read).collect()
}

fn collect(directory: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("the tests' directory is readable") {
        let path = entry.expect("the tests' directory is readable").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_none_or(|e| e != "rs") {
            files.push(path);
        }
    }
}

/// The input of a case: one of the corpus after one to six mutations.
fn mutated(corpus: &[Vec<u8>], case: u64) -> Vec<u8> {
    let mut rng = Rng::new(case);
    let mut bytes = corpus[rng.below(corpus.len())].clone();
    for _ in 0..=rng.below(6) {
        mutate(&mut bytes, corpus, &mut rng);
        bytes.truncate(LARGEST);
    }
    if rng.below(16) == 0 {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&bytes).expect("memory");
        bytes = gzip.finish().expect("memory");
    }
    bytes
}

fn mutate(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], rng: &mut Rng) {
    let at = rng.below(bytes.len() + 1);
    let end = at + rng.below((bytes.len() - at).min(4096) + 1);
    match rng.below(16) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..end)),
        2 => splice(bytes, at, &corpus[rng.below(corpus.len())], rng),
        3 => {
            for _ in 0..=rng.below(8) {
                let i = rng.below(bytes.len().max(1));
                if let Some(byte) = bytes.get_mut(i) {
                    *byte ^= 1 << rng.below(8);
                }
            }
        }
        4 => {
            let piece = bytes[at..end].repeat(1 + rng.below(64));
            bytes.splice(at..at, piece);
        }
        5 => lines(bytes, |lines| lines.reverse()),
        6 => lines(bytes, |lines| {
            let i = rng.below(lines.len());
            let copies = vec![lines[i]; 1 + rng.below(200)];
            lines.splice(i..i, copies);
        }),
        7 => lines(bytes, |lines| {
            let (i, j) = (rng.below(lines.len()), rng.below(lines.len()));
            lines.swap(i, j);
        }),
        8 => lines(bytes, |lines| {
            lines.remove(rng.below(lines.len()));
        }),
        9 => replace_number(bytes, at, rng),
        10 => {
            let junk: [&[u8]; 6] = [b"\xff\xfe", b"\0", b"\xc3", b"\xf0\x9f", b"\r", b"\x1b[31m"];
            bytes.splice(at..at, junk[rng.below(6)].iter().copied());
        }
        11 => {
            let nests: [&[u8]; 7] = [b"(", b"{\"a\":", b"[", b".func1", b"[...]", b"\t", b"a/"];
            bytes.splice(at..at, nests[rng.below(7)].repeat(1 + rng.below(20_000)));
        }
        12 => prefix(bytes, rng),
        13 => bytes.retain(|&b| b != b'\n'),
        14 => {
            let crlf = bytes.split(|&b| b == b'\n').collect::<Vec<_>>().join(&b"\r\n"[..]);
            *bytes = crlf;
        }
        _ => {
            let words: [&[u8]; 22] = [
                b"goroutine 18446744073709551616 [select, 99999999999999999999 minutes]:\n",
                b"goroutine profile: total -1\n",
                b"99999999999999999999 @ 0x0\n#\t0x0\tsync.(*RWMutex).Lock+0x0\t:0\n",
                b"-----------+-------------------------------------------------------\n",
                b"      flat  flat%   sum%        cum   cum%\n",
                b"sync.(*Mutex).lockSlow(0x)\n\t:\n",
                b"created by  in goroutine \n\t\n",
                b"# TYPE x histogram\nx_bucket{le=\"+Inf\"} NaN\nx_count -0\n",
                b"{\"level\":\"error\",\"ts\":1e308,\"msg\":\"\\ud800\"}\n",
                b"E1301 99:99:99.999999       1 a.go:1] x\n",
                b"2025-13-41T25:61:61.9999999999|ERRO|CTL|a.b: - id=\n",
                b"PK\x03\x04",
                b"Full thread dump \n\"a\" #1 prio=5 tid=0xffffffffffffffffff nid=0x1 cpu=1e999ms\n",
                b"\"\" prio= tid=0x\n\tat ()\n\t- locked <>\n\t- waiting to lock <\n",
                b"Found one Java-level deadlock:\n",
                b"#18446744073709551616 \"a\" virtual\n      java.base/a.b(c:1)\n",
                b"Thread 0x (idle): \"\n    a (b:\n        Arguments:\n            self: <A at 0x>\n",
                b"Thread 0xffffffffffffffffffff (most recent call first):\n  File \"\", line  in \n",
                b"Thread 1 (Thread 0x1 (LWP 99999999999999999999) \"a\"):\n#0  0x in <<<<a as b>::c>>> (self=0x) at\n",
                b"TID 0:\n#0  0x1 _RNvNtCs1234_7mycrateNtB2_\n#1 _ZN1a1bE.llvm.1\n",
                b"thread 1 \"\" state  wchan \n    a at \n",
                b"{\"threadDump\":{\"threadContainers\":[{\"threads\":[{\"tid\":\"1\"}]}]}}",
            ];
            bytes.splice(at..at, words[rng.below(22)].iter().copied());
        }
    }
}

/// The beginning, the end or the middle of another input in place of this one's.
fn splice(bytes: &mut Vec<u8>, at: usize, other: &[u8], rng: &mut Rng) {
    let from = rng.below(other.len() + 1);
    let to = from + rng.below(other.len() - from + 1);
    if rng.below(2) == 0 {
        bytes.truncate(at);
    }
    bytes.splice(at..at, other[from..to].iter().copied());
}

/// Puts a number that does not fit in the place of the next one.
fn replace_number(bytes: &mut Vec<u8>, at: usize, rng: &mut Rng) {
    let Some(start) = (at..bytes.len()).find(|&i| bytes[i].is_ascii_digit()) else {
        return;
    };
    let end = (start..bytes.len()).find(|&i| !bytes[i].is_ascii_digit()).unwrap_or(bytes.len());
    let numbers: [&[u8]; 7] = [
        b"0",
        b"-1",
        b"4294967296",
        b"18446744073709551615",
        b"18446744073709551616",
        b"999999999999999999999999999999999999999",
        b"1e400",
    ];
    bytes.splice(start..end, numbers[rng.below(7)].iter().copied());
}

/// As if it had gone through a log.
fn prefix(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let prefixes: [&[u8]; 4] = [
        b"Apr 26 18:18:57 node-1 app[412644]: ",
        b"2018-09-29T12:26:49.687740897Z stderr F ",
        b"01:38:02 kubelet[188613]: ",
        b"> ",
    ];
    let prefix = prefixes[rng.below(4)];
    lines(bytes, |lines| {
        *lines = lines.iter().flat_map(|line| [prefix, line]).collect();
    });
}

/// Edits the lines, each with its end.
fn lines(bytes: &mut Vec<u8>, edit: impl FnOnce(&mut Vec<&[u8]>)) {
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|&b| b == b'\n').collect();
    if !lines.is_empty() {
        edit(&mut lines);
        *bytes = lines.concat();
    }
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {value:?}")))
}
