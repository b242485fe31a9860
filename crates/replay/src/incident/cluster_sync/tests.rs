use super::*;
use crate::incident::tests::{can_each_fail, ended, plan};

fn good(load: &Load) -> Ended {
    ended(&[
        ("wellUsable", load.count(&[Manner::Well, Manner::Rotates]) as f64),
        ("connectRatio", 1.0),
        ("slowUsable", load.count(&[Manner::SlowToShakeHands]) as f64),
        ("deadNamed", load.count(&[Manner::Refuses, Manner::BlackHole]) as f64),
        ("tornViews", 0.0),
        ("views", 1000.0),
        ("lookUpRatio", 1.0),
        ("callsFailed", 0.0),
        ("rotated", load.count(&[Manner::Rotates]) as f64),
        ("servedAfterRemoval", load.leaving as f64),
        ("foundAfterRemoval", 0.0),
        ("calls", 100.0),
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
    assert!(void(&Load::of(&plan(0.01)), &old, &new).unwrap().contains("no fleet"));
    assert!(void(&load, &old, &ended(&[("calls", 3.0)])).unwrap().contains("no load"));
    assert!(void(&load, &new, &new).unwrap().contains("bore"));
}

#[test]
fn every_manner_is_there_and_those_that_leave_are_well() {
    for scale in [0.04, 0.1, 1.0] {
        let load = Load::of(&plan(scale));
        let all = [
            Manner::Well,
            Manner::Rotates,
            Manner::SlowToShakeHands,
            Manner::Refuses,
            Manner::BlackHole,
        ];
        assert!(all.iter().all(|manner| load.count(&[*manner]) > 0), "{scale}");
        assert!(load.left().iter().all(|(_, manner)| *manner == Manner::Well));
        let second = load.generation(true);
        assert_eq!(second.len(), load.clusters.len());
        assert!(load.left().iter().all(|gone| !second.contains(gone)));
    }
}
