use super::*;

fn plan() -> Soak {
    Soak {
        seed: 7,
        time: Duration::from_secs(60),
        only: Vec::new(),
        dir: PathBuf::new(),
        plugin: PathBuf::new(),
    }
}

fn judged(change: impl FnOnce(&mut Done), memory: u64) -> Report {
    let mut done = Done { load: 60, minimum: 60, checks: 100, ..Done::default() };
    change(&mut done);
    judge(&plan(), Vec::new(), BTreeMap::from([("net", done)]), Vec::new(), memory)
}

#[test]
fn it_holds_when_nothing_is_broken_and_enough_was_done() {
    let report = judged(|_| {}, MEMORY);
    assert!(report.ok, "{report:?}");
    assert!(text(&report).contains("all of it holds"));
}

#[test]
fn each_thing_can_fail() {
    let broken = |done: &mut Done| done.note(Instant::now(), vec!["an address twice".to_owned()]);
    let report = judged(broken, 0);
    assert!(!report.ok);
    assert!(text(&report).contains("an address twice"));
    assert!(text(&report).contains("run it again with --seed 7"));
    assert!(!judged(|_| {}, MEMORY + 1).ok);
    assert!(!judged(|done| done.checks = 0, 0).ok);
}

#[test]
fn a_job_that_did_too_little_makes_it_void() {
    let report = judged(|done| done.load = 59, 0);
    assert!(!report.ok);
    assert_eq!(report.void.unwrap(), "net did 59 of at least 60");
    let nothing = judge(&plan(), Vec::new(), BTreeMap::new(), Vec::new(), 0);
    assert!(!nothing.ok && nothing.void.is_some());
}

#[test]
fn only_so_much_is_told_and_the_rest_is_counted() {
    let mut done = Done::default();
    let things = (0..TOLD + 3).map(|thing| format!("thing {thing}"));
    done.note(Instant::now(), things.collect());
    assert_eq!((done.broken.len(), done.more, done.checks), (TOLD, 3, 1));
    done.note(Instant::now(), vec!["thing 0".to_owned()]);
    assert_eq!((done.broken.len(), done.more, done.checks), (TOLD, 4, 2));
}

#[test]
fn the_report_has_the_shape_that_was_promised() {
    let json = serde_json::to_value(judged(|_| {}, 1)).unwrap();
    for field in ["seed", "minutes", "faults", "jobs", "left_out", "peak_memory", "ok"] {
        assert!(json.get(field).is_some(), "{field}");
    }
    for field in ["load", "checks", "broken"] {
        assert!(json["jobs"]["net"].get(field).is_some(), "{field}");
    }
}

/// What a job does is written down; the driver is what is tested.
#[derive(Default)]
struct Told {
    told: Vec<&'static str>,
    load: u64,
}

impl Work for Told {
    fn begin(&mut self, _: &Planned) -> Ran {
        self.told.push("begin");
        Ok(())
    }

    fn end(&mut self, _: &Planned) -> Ran {
        self.told.push("end");
        Ok(())
    }

    fn check(&mut self) -> Vec<String> {
        self.load += 1;
        Vec::new()
    }

    fn load(&self) -> u64 {
        self.load
    }

    fn finish(&mut self, _: Instant) -> Vec<String> {
        self.told.push("finish");
        vec!["something was left".to_owned()]
    }
}

#[test]
fn a_job_is_driven_through_its_faults_to_its_end() {
    let planned = |at_ms, lasts_ms| Planned {
        job: Job::Net,
        fault: Fault::NetHang,
        at_ms,
        lasts_ms,
        pick: 0,
    };
    let (start, started) = channel();
    start.send(Instant::now()).unwrap();
    let (mut work, mut done) = (Told::default(), Done::default());
    let faults = [planned(0, 1), planned(2, 1)];
    let time = Duration::from_millis(10);
    let driven = drive(&mut work, &faults[..1], time, &started, &Gauge::default(), &mut done);
    driven.unwrap();
    assert_eq!(work.told, ["begin", "end", "finish"]);
    assert_eq!(done.broken.len(), 1);

    // One that never came is told.
    start.send(Instant::now()).unwrap();
    let late = [planned(3_600_000, 1)];
    let mut done = Done::default();
    drive(&mut work, &late, time, &started, &Gauge::default(), &mut done).unwrap();
    assert_eq!(done.broken.len(), 2);
}
