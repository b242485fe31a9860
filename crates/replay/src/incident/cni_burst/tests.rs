use super::*;
use crate::incident::tests::{can_each_fail, ended, plan};

fn good(load: &Load) -> Ended {
    ended(&[
        ("asked", load.pods as f64),
        ("setUpWhileHung", (load.pods - 1) as f64),
        ("p99Ratio", 1.0),
        ("hungFailedMs", load.deadline.as_secs_f64() * 1e3),
        ("retryRefusedMs", 5.0),
        ("retrySucceeded", 1.0),
        ("addressesTwice", 0.0),
        ("addressesLeaked", 0.0),
        ("interfacesLeaked", 0.0),
        ("metricsThere", 4.0),
    ])
}

#[test]
fn each_requirement_can_fail() {
    let load = Load::of(&plan(1.0));
    can_each_fail(&good(&load), |ended| requirements(&load, ended));
}

#[test]
fn a_run_that_shows_nothing_is_void() {
    let load = Load::of(&plan(1.0));
    let (old, new) = (Ended::default(), good(&load));
    assert_eq!(void(&load, &old, &new), None);
    let small = Load::of(&plan(0.01));
    assert!(void(&small, &old, &new).unwrap().contains("no burst"));
    assert!(void(&load, &old, &Ended::default()).unwrap().contains("not made"));
    let mut bore = old;
    bore.figures.insert("setUpWithinDeadline".to_owned(), 99.0);
    assert!(void(&load, &bore, &new).unwrap().contains("bore"));
}

#[test]
fn the_same_seed_is_the_same_load() {
    let loads = [Load::of(&plan(1.0)), Load::of(&plan(1.0))];
    assert_eq!(loads[0].hung, loads[1].hung);
    assert_eq!(loads[0].pods, 100);
    assert_eq!(Load::of(&plan(5.0)).pods, 500);
}
