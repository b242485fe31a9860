// clippy takes a module for a test only under a plain `cfg(test)`.
#![allow(clippy::unwrap_used)]

use std::sync::mpsc;

use super::*;

/// Long enough for any machine; reached only by a test that fails.
const PATIENT: Duration = Duration::from_secs(60);

fn quick() -> WatchdogLimits {
    WatchdogLimits {
        tick: Duration::from_millis(10),
        name_after: Duration::from_millis(200),
        fail_after: Duration::from_millis(600),
    }
}

/// Waits for something that must come, however slow the machine.
pub(super) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what}: never happened");
        thread::sleep(Duration::from_millis(5));
    }
}

fn named(watchdog: &Watchdog, name: &str) -> Option<Stall> {
    watchdog.stalls().into_iter().find(|stall| stall.name == name)
}

/// A watchdog without threads, driven tick by tick with a made-up clock.
struct Driven {
    shared: Shared,
    now: Instant,
}

impl Driven {
    fn new() -> Self {
        Self { shared: Shared::new(WatchdogLimits::default(), None), now: Instant::now() }
    }

    fn beacon(&self, name: &'static str, severity: Severity) -> Beacon {
        let (beacon, moves) = Beacon::new();
        self.shared.add(name.into(), severity, Source::Beacon(moves));
        beacon
    }

    /// One tick that took `slept` in all.
    fn tick(&mut self, slept: Duration) {
        let asleep_since = self.now;
        self.now += slept;
        self.shared.wake(asleep_since, self.now);
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.tick(self.shared.limits.tick);
        }
    }

    fn stalls(&self) -> Vec<Stall> {
        self.shared.stalls.lock().clone()
    }
}

#[test]
fn a_beacon_that_owes_and_does_not_beat_is_named_and_recovers() {
    let mut driven = Driven::new();
    let beacon = driven.beacon("importer", Severity::Critical);
    let owed = beacon.owe();
    driven.run(Duration::from_secs(3));
    assert_eq!(driven.stalls(), []);
    driven.run(Duration::from_secs(2));
    let stalls = driven.stalls();
    assert_eq!(stalls[0].name, "importer");
    assert!(!stalls[0].failing);
    driven.run(Duration::from_secs(25));
    assert!(driven.stalls()[0].failing);
    drop(owed);
    driven.run(Duration::from_secs(1));
    assert_eq!(driven.stalls(), []);
}

#[test]
fn a_beacon_that_owes_nothing_may_rest_for_ever() {
    let mut driven = Driven::new();
    let beacon = driven.beacon("importer", Severity::Critical);
    beacon.beat();
    driven.run(Duration::from_secs(3600));
    assert_eq!(driven.stalls(), []);
}

#[test]
fn short_work_back_to_back_is_progress_without_a_beat() {
    let mut driven = Driven::new();
    let beacon = driven.beacon("importer", Severity::Critical);
    let mut owed = beacon.owe();
    for _ in 0..60 {
        driven.run(Duration::from_secs(1));
        drop(owed);
        owed = beacon.owe();
    }
    assert_eq!(driven.stalls(), []);
}

#[test]
fn a_stop_of_the_whole_process_raises_no_alarm() {
    let mut driven = Driven::new();
    let beacon = driven.beacon("importer", Severity::Critical);
    let _owed = beacon.owe();
    driven.run(Duration::from_secs(1));
    driven.tick(Duration::from_secs(600));
    assert_eq!(driven.stalls(), []);
    // A true stall is still found after it.
    driven.run(Duration::from_secs(5));
    assert_eq!(driven.stalls().len(), 1);
}

#[test]
fn a_dropped_beacon_is_forgotten_even_while_stalled() {
    let mut driven = Driven::new();
    let beacon = driven.beacon("importer", Severity::Critical);
    let owed = beacon.owe();
    driven.run(Duration::from_secs(40));
    assert!(driven.stalls()[0].failing);
    drop((beacon, owed));
    driven.run(Duration::from_secs(1));
    assert_eq!(driven.stalls(), []);
}

#[test]
fn stalls_are_counted_once_each() {
    let mut driven = Driven::new();
    let beacon = driven.beacon("importer", Severity::Noted);
    for _ in 0..3 {
        let owed = beacon.owe();
        driven.run(Duration::from_secs(60));
        drop(owed);
        driven.run(Duration::from_secs(1));
    }
    let stalls = driven.shared.metrics.stalls.get_or_create(&Label { name: "importer".into() });
    assert_eq!(stalls.get(), 3);
}

#[test]
fn a_closure_that_owes_is_named_by_the_real_threads_and_fails_after_the_evidence() {
    let dir = tempfile::tempdir().unwrap();
    let evidence = Evidence::new(dir.path());
    evidence.source("ledger.json", || b"[]".to_vec());
    let watchdog = Watchdog::start(quick(), Some(evidence));
    let stuck = Arc::new(AtomicBool::new(true));
    let owed = Arc::clone(&stuck);
    watchdog
        .watch("lanes", Severity::Critical, move || Progress { owed: owed.load(SeqCst), count: 0 });
    let reason = eventually("failing", || match watchdog.health() {
        Health::Failing { reason } => Some(reason),
        Health::Live => None,
    });
    assert!(reason.starts_with("lanes made no progress"), "{reason}");
    let saved = |what: &str| {
        std::fs::read_dir(dir.path()).unwrap().any(|event| {
            event.unwrap().file_name().to_string_lossy().ends_with(&format!("-{what}-lanes"))
        })
    };
    assert!(saved("failing"), "liveness failed before the evidence was there");

    stuck.store(false, SeqCst);
    eventually("recovery", || (watchdog.health() == Health::Live).then_some(()));
}

#[test]
fn a_closure_that_hangs_is_named_and_holds_up_no_other() {
    let watchdog = Watchdog::start(quick(), None);
    let (release, hang) = mpsc::channel::<()>();
    let hang = std::sync::Mutex::new(hang);
    let asked = Arc::new(AtomicU64::new(0));
    watchdog.each_tick("hangs", move || {
        let _ = hang.lock().unwrap().recv();
    });
    let count = Arc::clone(&asked);
    watchdog.watch("moves", Severity::Critical, move || Progress {
        owed: true,
        count: count.fetch_add(1, SeqCst),
    });
    watchdog.watch("stuck", Severity::Noted, || Progress { owed: true, count: 0 });
    eventually("hangs is named", || named(&watchdog, "hangs"));
    eventually("stuck is named", || named(&watchdog, "stuck"));
    let before = asked.load(SeqCst);
    eventually("the others are still asked", || (asked.load(SeqCst) > before + 10).then_some(()));
    drop(release);
    eventually("hangs recovers", || named(&watchdog, "hangs").is_none().then_some(()));
}

#[test]
fn dropping_the_watchdog_does_not_wait_for_a_closure_that_hangs() {
    let watchdog = Watchdog::start(quick(), None);
    let (_release, hang) = mpsc::channel::<()>();
    let (entered, inside) = mpsc::sync_channel(1);
    let hang = std::sync::Mutex::new(hang);
    watchdog.each_tick("hangs", move || {
        let _ = entered.try_send(());
        let _ = hang.lock().unwrap().recv();
    });
    inside.recv_timeout(PATIENT).unwrap();
    drop(watchdog);
}

#[test]
fn a_closure_that_panics_stops_nobody() {
    let watchdog = Watchdog::start(quick(), None);
    // A panic without the hook, which would print for longer than a closure may hang here.
    watchdog.each_tick("panics", || std::panic::resume_unwind(Box::new("on purpose")));
    watchdog.watch("stuck", Severity::Noted, || Progress { owed: true, count: 0 });
    eventually("stuck is named", || named(&watchdog, "stuck"));
    eventually("panics is not", || named(&watchdog, "panics").is_none().then_some(()));
}
