//! A node gets all its pods at once, and one of them hangs in the kernel.

#![allow(clippy::unwrap_used, reason = "tests")]

mod swarm;

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use net::faults;
use net::wiring::step;
use serde_json::Value;
use stallproof::ledger::Filter;
use swarm::{
    Daemon, PATIENCE, Pod, addresses, answers, at_once, config, interfaces, on_a_node, recorded,
    until_none_is_left,
};
use testkit::requires;

fn pods(dir: &std::path::Path, count: usize) -> Vec<Pod> {
    (0..count).map(|number| Pod::new(dir, &format!("pod-{number}"))).collect()
}

/// Every pod has addresses that no other has, and answers.
fn all_well(results: &[Value]) {
    let given: Vec<IpAddr> = results.iter().flat_map(addresses).collect();
    assert_eq!(given.len(), results.len() * 2);
    assert_eq!(given.iter().collect::<HashSet<_>>().len(), given.len(), "an address twice");
    for chunk in given.chunks(64) {
        let silent: Vec<_> = at_once(chunk, |address| (*address, answers(*address)));
        assert!(silent.iter().all(|(_, answers)| *answers), "{silent:?}");
    }
}

fn burst(count: usize) {
    on_a_node(|| {
        let dir = tempfile::tempdir().unwrap();
        let _daemon = Daemon::start(dir.path());
        let pods = pods(dir.path(), count);
        let config = config(dir.path(), 60);

        let added: Vec<Value> = at_once(&pods, |pod| pod.plugin("ADD", &config))
            .into_iter()
            .map(Result::unwrap)
            .collect();
        all_well(&added);
        assert_eq!((interfaces().len(), recorded(dir.path()).len()), (count, count));

        // As containerd does: twice, the second time for nothing.
        for _ in 0..2 {
            for deleted in at_once(&pods, |pod| pod.plugin("DEL", &config)) {
                deleted.unwrap_or_else(|error| panic!("{error}"));
            }
        }
        assert_eq!(recorded(dir.path()), Vec::<Value>::new());
        until_none_is_left();
    });
}

#[test]
fn a_hundred_at_once() {
    requires!(netns);
    burst(100);
}

#[test]
fn five_hundred_at_once() {
    requires!(netns);
    burst(500);
}

#[test]
fn one_of_a_hundred_hangs_and_the_others_do_not_notice() {
    requires!(netns);
    on_a_node(|| {
        let dir = tempfile::tempdir().unwrap();
        let daemon = Daemon::start(dir.path());
        let pods = pods(dir.path(), 100);
        let (patient, hasty) = (config(dir.path(), 60), config(dir.path(), 5));
        let hung = |pod: &Pod| pod.container == "pod-37";
        let hang = faults::hang("pod-37", step::CONFIGURE);

        let results =
            at_once(&pods, |pod| pod.plugin("ADD", if hung(pod) { &hasty } else { &patient }));

        // It hangs still, so none of the others waited for it.
        let (failed, well): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_err);
        let well: Vec<Value> = well.into_iter().map(Result::unwrap).collect();
        assert_eq!((failed.len(), well.len()), (1, 99), "{failed:?}");
        all_well(&well);
        let error = failed[0].as_ref().unwrap_err();
        assert_eq!(error["code"], 11, "{error}");

        // It is named: container, pod and step.
        let inflight = daemon.ledger.in_flight(&Filter::default());
        let named = inflight.iter().find(|op| op.key.contains("pod-37"));
        let named = named.unwrap_or_else(|| panic!("{inflight:?}"));
        assert!(named.key.contains("shop/pod-37"), "{named:?}");
        assert_eq!(named.step, step::CONFIGURE, "{named:?}");

        // Its retry is refused at once, not made to wait; its address stays its own.
        let pod = pods.iter().find(|pod| hung(pod)).unwrap();
        let error = pod.plugin("ADD", &patient).unwrap_err();
        assert_eq!(error["code"], 11, "{error}");
        assert!(error["msg"].as_str().unwrap().contains(step::CONFIGURE), "{error}");
        assert_eq!(recorded(dir.path()).len(), 100);

        // When the kernel lets go, it is undone, and a retry succeeds.
        drop(hang);
        let until = Instant::now() + PATIENCE;
        let last = loop {
            match pod.plugin("ADD", &patient) {
                Ok(result) => break result,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        all_well(&[well, vec![last]].concat());
        assert_eq!((interfaces().len(), recorded(dir.path()).len()), (100, 100));
    });
}
