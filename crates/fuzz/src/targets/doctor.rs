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

/// Anything: the report is JSON that reads back.
pub(super) fn examine(bytes: &[u8]) {
    let report = doctor::examine("input", bytes);
    let json = doctor::render::json(&report);
    serde_json::from_str::<doctor::Report>(&json).expect("a report reads back");
}
