//! What people give the doctor: dumps, logs, metrics, and archives of them.

use doctor::goroutine;

/// Goroutine profiles as text.
pub(super) fn goroutines(bytes: &[u8]) {
    let _ = goroutine::parse_stacks("input", bytes);
    let _ = goroutine::parse_counted("input", bytes);
    let _ = goroutine::parse_tables("input", bytes);
}

/// A profile in pprof's own form.
pub(super) fn pprof(bytes: &[u8]) {
    let _ = goroutine::parse_protobuf("input", bytes);
}

/// How the kinds of evidence begin.
const BEGINNINGS: [&[u8]; 10] = [
    b"2025-01-01T00:00:00.000Z INFO started\n",
    b"{\"level\":\"error\",\"ts\":1735689600.5,\"msg\":\"x\",\"caller\":\"a.go:1\"}\n",
    b"E0101 00:00:00.000000       1 a.go:1] x\n",
    b"2025-01-01T00:00:00.000|ERRO|CTL|a.b: x - id=1\n",
    b"# HELP a_seconds x\n# TYPE a_seconds histogram\na_seconds_bucket{le=\"1\"} 1\n",
    b"Full thread dump OpenJDK 64-Bit Server VM (17 mixed mode):\n\n\"main\" #1 prio=5 tid=0x1 nid=0x1\n",
    b"Thread 0x00007f0000000001 (most recent call first):\n  File \"a.py\", line 1 in f\n",
    b"Thread 1 (Thread 0x1 (LWP 1) \"a\"):\n#0  0x1 in f (self=0x1) at a.rs:1\n",
    b"{\"in_flight\":1,\"by_kind\":[],\"operations\":[",
    b"goroutine 1 [semacquire, 5 minutes]:\nsync.(*Mutex).Lock(0x1)\n\t/a.go:1 +0x1\n",
];

/// A log, metrics, a dump of threads, our own ledger: the first byte says how the evidence begins, and each zero
/// begins another file. The same files have the same report, and it reads back as the same.
pub(super) fn kinds(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let beginning = BEGINNINGS[usize::from(*first) % BEGINNINGS.len()];
    let files: Vec<Vec<u8>> =
        rest.split(|byte| *byte == 0).take(3).map(|file| [beginning, file].concat()).collect();
    let inputs = || files.iter().map(|file| ("input", file.as_slice()));
    let json = doctor::render::json(&doctor::examine_all(inputs()));
    assert_eq!(doctor::render::json(&doctor::examine_all(inputs())), json);
    let read: doctor::Report = serde_json::from_str(&json).expect("a report reads back");
    assert_eq!(doctor::render::json(&read), json);
}

/// Anything: the report is JSON that reads back.
pub(super) fn examine(bytes: &[u8]) {
    let report = doctor::examine("input", bytes);
    let json = doctor::render::json(&report);
    serde_json::from_str::<doctor::Report>(&json).expect("a report reads back");
}
