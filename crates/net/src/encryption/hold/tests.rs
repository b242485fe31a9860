#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::address_table::tests::attachment;

#[test]
fn a_pod_waits_for_the_routes_that_guard_its_network_and_fails_without() {
    let guarded = Snapshot::default();
    let hold = GuardHold { guarded: guarded.clone(), longest: Duration::from_millis(50) };
    let pod = attachment("c", "default", Some("10.64.0.3"));
    let why = hold.admit(&pod).unwrap_err();
    assert!(why.contains("packets of 10.64.0.3 could leave without"), "{why}");
    guarded.publish(["10.65.0.0/16".parse().unwrap()].into());
    assert!(hold.admit(&pod).is_err(), "another network is guarded");

    let hold = GuardHold::new(guarded.clone());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| hold.admit(&pod));
        guarded.publish(["10.64.0.0/24".parse().unwrap()].into());
        assert_eq!(waiting.join().unwrap(), Ok(()));
    });
}
