//! Every replay at a small scale, as a user runs it: a real command, two processes, JSON and a page.
//!
//! What a requirement says of time, or of a ratio of times, is held to [`BUSY`] times its limit: the machine
//! that runs tests is busy with other tests. Full runs hold it to the limit itself.

#![cfg(feature = "replay")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const PLUGIN: &str = "fairlead-cni";
/// How much longer everything may take where other tests run. A design that waits for what is stuck takes
/// hundreds of times as long, or never ends.
const BUSY: f64 = 20.0;

fn fairlead(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlead"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FAIRLEAD_")) {
        command.env_remove(name);
    }
    command.env("FAIRLEAD_CONFIG", "/dev/null").args(args).output().unwrap()
}

/// Whether a requirement on time is missed by no more than a busy machine explains.
fn is_late_within_reason(requirement: &Value) -> bool {
    let is_of_time = matches!(requirement["unit"].as_str().unwrap(), "ms" | "times");
    let [value, limit] = ["value", "limit"].map(|name| requirement[name].as_f64());
    let within = value.zip(limit).is_some_and(|(value, limit)| value <= limit * BUSY);
    is_of_time && requirement["relation"] == "atMost" && within
}

#[test]
fn a_requirement_on_time_is_held_to_a_multiple_of_its_limit() {
    let requirement = |value: Value, unit| serde_json::json!({"relation": "atMost", "limit": 2.0, "unit": unit, "value": value});
    assert!(is_late_within_reason(&requirement(39.0.into(), "times")));
    assert!(!is_late_within_reason(&requirement(41.0.into(), "ms")));
    assert!(!is_late_within_reason(&requirement(Value::Null, "ms")));
    assert!(!is_late_within_reason(&requirement(3.0.into(), "pods")));
}

/// Runs it and checks what does not depend on the machine's speed.
fn replayed(incident: &str, args: &[&str]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    let html = ["-o", "json", "--html", page.to_str().unwrap()];
    let output = fairlead(&[&["replay", incident][..], args, &html].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code().is_some_and(|code| code < 2), "{said}");
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ok = outcome["ok"].as_bool().unwrap();
    assert_eq!(output.status.success(), ok);
    assert_eq!(outcome["incident"], incident);
    assert_eq!(outcome["void"], Value::Null, "{said}");
    let requirements = outcome["requirements"].as_array().unwrap();
    assert!(requirements.len() > 3);
    for requirement in requirements {
        assert!(
            requirement["ok"] == true || is_late_within_reason(requirement),
            "{requirement}\n{:#}\n{said}",
            outcome["new"]["figures"]
        );
    }
    for design in ["old", "new"] {
        assert!(!outcome[design]["timeline"].as_array().unwrap().is_empty(), "{design}");
        assert!(outcome[design]["peakMemoryBytes"].as_u64().unwrap() > 0, "{design}");
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(incident) && page.contains("<polyline class=\"new\""));
    outcome
}

#[test]
fn a_stuck_writer_holds_up_nobody_under_a_flood() {
    let outcome = replayed("controller-stall", &["--scale", "0.01"]);
    assert_eq!(outcome["parameters"]["reports"], 1288);
    assert!(outcome["new"]["named"]["what"].as_str().unwrap().starts_with("shard "));
    assert!(outcome["old"]["mostInFlight"].as_u64().unwrap() > 1288);
}

#[test]
fn clusters_that_are_dead_slow_or_rotate_hold_up_nobody() {
    let outcome = replayed("cluster-sync", &["--scale", "0.04", "--limit", "5s"]);
    assert_eq!(outcome["parameters"]["clusters"], 20);
    assert!(outcome["old"]["stopped"].is_string(), "{}", outcome["old"]["figures"]);
    assert!(outcome["new"]["named"]["what"].as_str().unwrap().contains("TLS handshake"));
}

#[test]
fn a_set_up_that_hangs_holds_up_no_pod() {
    testkit::requires!(netns);
    let plugin = Path::new(env!("CARGO_BIN_EXE_fairlead")).with_file_name(PLUGIN);
    if !plugin.is_file() {
        return testkit::need::skip(
            "a_set_up_that_hangs_holds_up_no_pod",
            "no fairlead-cni is built",
        );
    }
    let outcome = replayed("cni-burst", &["--scale", "0.1", "--seed", "3"]);
    assert_eq!(outcome["parameters"]["pods"], 10);
    assert_eq!(outcome["old"]["figures"]["setUpWithinDeadline"], 0.0);
    assert_eq!(outcome["new"]["named"]["step"], "configure-pod");
}

mod kube {
    use super::*;

    #[test]
    fn a_crd_that_lands_late_is_taken_up() {
        testkit::requires!(kube);
        let outcome = replayed("late-crd", &["--scale", "0.25", "--limit", "3s"]);
        assert!(outcome["old"]["stopped"].is_string());
        assert!(outcome["new"]["named"]["what"].as_str().unwrap().contains("the Peer CRD"));
    }

    #[test]
    fn a_secret_and_nodes_that_land_late_are_taken_up() {
        testkit::requires!(kube);
        let outcome = replayed("late-node", &["--scale", "0.25", "--limit", "3s"]);
        assert!(outcome["old"]["stopped"].is_string());
        assert!(outcome["new"]["named"]["what"].as_str().unwrap().contains("Secret"));
    }
}

#[test]
fn what_there_is_is_listed_with_what_it_needs() {
    let output = fairlead(&["replay", "list", "-o", "json"]);
    assert!(output.status.success());
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = listed.as_array().unwrap().iter().map(|one| &one["name"]).collect();
    for name in ["controller-stall", "cluster-sync", "cni-burst", "late-crd", "late-node"] {
        assert!(names.contains(&&Value::from(name)), "{names:?}");
    }
}

#[test]
fn what_is_missing_is_said_and_the_code_is_2() {
    let output = fairlead(&["replay", "cni-burst", "--plugin", "/no/such/plugin"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("/no/such/plugin is not there"), "{said}");
    for bad in [&["--scale", "0"][..], &["--scale", "many"], &["--limit", "soon"]] {
        let output = fairlead(&[&["replay", "cluster-sync"][..], bad].concat());
        assert_eq!(output.status.code(), Some(2), "{bad:?}");
    }
}
