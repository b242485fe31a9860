//! The same queue with less and more evidence of how long it lasts.

use crate::report::{FaultClass, Finding, Level, Report, Severity};

/// Goroutines `first..first + count` wait in `Store.Get`, `minutes` long.
fn waiting(first: u32, count: u32, minutes: &str) -> String {
    (first..first + count)
        .map(|id| {
            format!(
                "goroutine {id} [sync.Mutex.Lock{minutes}]:
sync.runtime_SemacquireMutex(0x0?, 0x0?, 0x0?)
\t/go/src/runtime/sema.go:77 +0x25
sync.(*Mutex).lockSlow(0xc000012340)
\t/go/src/sync/mutex.go:171 +0x15d
sync.(*Mutex).Lock(...)
\t/go/src/sync/mutex.go:90
main.(*Store).Get(0xc000012340, {{0x1?, 0x1?}})
\t/src/store.go:10 +0x1
created by main.main in goroutine 1
\t/src/main.go:2 +0x1

"
            )
        })
        .collect()
}

fn goroutine(id: u32, state: &str, frames: &[&str]) -> String {
    let frames: String = frames.iter().map(|f| format!("{f}\n\t/src/store.go:20 +0x1\n")).collect();
    format!(
        "goroutine {id} [{state}]:\n{frames}created by main.main in goroutine 1\n\t/src/main.go:3 +0x1\n\n"
    )
}

fn dump(parts: &[String]) -> String {
    let main = "goroutine 1 [select]:\nmain.main()\n\t/src/main.go:1 +0x1\n\n";
    format!("{main}{}", parts.concat())
}

fn examine(dumps: &[&str]) -> Report {
    crate::examine_all(dumps.iter().map(|d| ("dump", d.as_bytes())))
}

fn only(report: &Report) -> &Finding {
    let [found] = report.findings.as_slice() else { panic!("{:#?}", report.findings) };
    found
}

#[test]
fn one_dump_of_a_lock_without_an_owner_is_not_likely_a_lost_unlock() {
    let report = examine(&[&dump(&[waiting(100, 30, "")])]);
    let found = only(&report);
    assert_eq!((found.class, found.confidence.level), (FaultClass::LostUnlock, Level::Possible));
    assert_eq!(found.severity, Severity::Minor);
    let report = examine(&[&dump(&[waiting(100, 30, ", 7 minutes")])]);
    let found = only(&report);
    assert_eq!((found.class, found.confidence.level), (FaultClass::LostUnlock, Level::Likely));
    assert_eq!(found.severity, Severity::Critical);
}

#[test]
fn a_second_dump_tells_a_stall_from_a_busy_lock() {
    let (first, stuck) = (dump(&[waiting(100, 30, "")]), dump(&[waiting(100, 32, "")]));
    let report = examine(&[&first, &stuck]);
    let found = only(&report);
    assert_eq!((found.class, found.confidence.level), (FaultClass::LostUnlock, Level::Likely));
    assert!(!found.collect_next.iter().any(|c| c.contains("second dump")), "there is one");
    // Goroutine 100 has had the lock and is gone.
    let report = examine(&[&first, &dump(&[waiting(101, 31, "")])]);
    let found = only(&report);
    assert_eq!((found.class, found.severity), (FaultClass::HotLock, Severity::Minor));
    // Everybody has.
    assert!(examine(&[&first, &dump(&[waiting(900, 1, "")])]).findings.is_empty());
}

#[test]
fn a_lock_whose_holder_runs_is_hot_unless_it_lasts() {
    let runs = goroutine(7, "runnable", &["main.(*Store).Get(0xc000012340, {0x1?, 0x1?})"]);
    let report = examine(&[&dump(&[waiting(100, 30, ""), runs.clone()])]);
    let found = only(&report);
    assert_eq!((found.class, found.severity), (FaultClass::HotLock, Severity::Minor));
    assert_eq!(found.holders[0].confidence.level, Level::Possible);
    let report = examine(&[&dump(&[waiting(100, 30, ", 9 minutes"), runs])]);
    assert_eq!(only(&report).class, FaultClass::HeldAcrossWork);
}

#[test]
fn what_is_called_on_the_very_value_is_not_said_to_be_tied_to_nothing() {
    let two = [
        goroutine(7, "IO wait", &["main.(*Store).load(0xc000012340)", "main.serve()"]),
        goroutine(8, "IO wait", &["main.(*Store).save(0xc000012340)", "main.serve()"]),
    ];
    let report = examine(&[&dump(&[waiting(100, 30, ""), two.concat()])]);
    let found = only(&report);
    let why = &found.holders[0].confidence.why;
    assert!(why.contains("very value") && !why.contains("nothing ties"), "{why}");
    assert!(found.no_holder.as_ref().is_some_and(|w| !w.contains("nothing shown ties")));
}

#[test]
fn a_stale_receiver_below_an_exact_one_of_another_value_is_another_instance() {
    let other = goroutine(
        7,
        "IO wait",
        &["main.(*Store).fill(0xc000012340?)", "main.(*Store).Load(0xc000099990)", "main.serve()"],
    );
    let report = examine(&[&dump(&[waiting(100, 30, ""), other])]);
    assert_eq!(only(&report).class, FaultClass::LostUnlock);
    assert!(only(&report).holders.is_empty());
}

#[test]
fn a_client_of_the_programs_own_is_io() {
    let calls = goroutine(
        7,
        "select",
        &[
            "main.(*stream).recvMsg(0xc000077770)",
            "main.(*client).Invoke(0xc000077770)",
            "main.(*Store).Renew(0xc000012340)",
            "main.serve()",
        ],
    );
    let report = examine(&[&dump(&[waiting(100, 30, ""), calls])]);
    assert_eq!(only(&report).class, FaultClass::HeldAcrossIo);
    assert_eq!(only(&report).holders[0].frame, "main.(*Store).Renew");
}

#[test]
fn idle_workers_are_no_finding_however_many() {
    let workers: String = (100..2600)
        .map(|id| goroutine(id, "chan receive", &["main.(*Pool).worker(0xc000055550)"]))
        .collect();
    assert!(examine(&[&dump(&[workers])]).findings.is_empty());
}
