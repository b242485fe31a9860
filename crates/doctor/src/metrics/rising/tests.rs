use crate::examine_all;
use crate::report::{FaultClass, Level, Report, Severity};

/// Twenty goroutines behind a lock whose holder waits for I/O.
const DUMP: &[u8] = include_bytes!("../../../tests/stalls/held-across-io.debug2.txt");

fn examined(metrics: &[&str]) -> Report {
    let names = ["one.txt", "two.txt", "three.txt"];
    let scrapes = names.iter().zip(metrics).map(|(name, text)| (*name, text.as_bytes()));
    examine_all(std::iter::once(("dump.txt", DUMP)).chain(scrapes))
}

#[test]
fn a_queue_that_grows_makes_a_lasting_stall_of_a_moments_queue() {
    let alone = examined(&[]);
    assert_eq!(alone.findings[0].severity, Severity::Serious);
    let level = examined(&["app_request_queue_length 40\n", "app_request_queue_length 41\n"]);
    assert_eq!(level.findings[0].severity, Severity::Serious, "a length that stays says nothing");
    let grown = examined(&["app_request_queue_length 3\n", "app_request_queue_length 480\n"]);
    let lock = &grown.findings[0];
    assert_eq!((lock.class, lock.severity), (FaultClass::HeldAcrossIo, Severity::Critical));
    assert!(lock.details.iter().any(|d| d.contains("grew from 3 to 480")), "{:?}", lock.details);
}

#[test]
fn a_queue_that_grows_is_a_possible_finding_without_a_dump() {
    let scrapes = [
        ("a", &b"workqueue_depth{name=\"pods\"} 1\n"[..]),
        ("b", b"workqueue_depth{name=\"pods\"} 4000\n"),
    ];
    let report = examine_all(scrapes);
    let [finding] = &report.findings[..] else { panic!("{:?}", report.findings) };
    assert_eq!((finding.severity, finding.confidence.level), (Severity::Serious, Level::Possible));
    assert!(finding.title.contains("name=pods"), "{}", finding.title);
    let falling = [("a", &b"workqueue_depth 4000\n"[..]), ("b", b"workqueue_depth 1\n")];
    assert!(examine_all(falling).findings.is_empty());
}

#[test]
fn figures_that_are_no_numbers_are_no_growth() {
    for value in ["NaN", "+Inf", "-Inf", "1e400"] {
        let second = format!("a_queue_length {value}\n");
        let report = examine_all([("a", &b"a_queue_length 1\n"[..]), ("b", second.as_bytes())]);
        assert!(report.findings.is_empty(), "{value}: {:?}", report.findings);
    }
}
