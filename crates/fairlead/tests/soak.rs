//! A short soak with a fixed seed, as a user runs it.
//!
//! What says how soon something was done, or how much, is left to long soaks: the machine that runs
//! tests is busy with other tests.

#![cfg(feature = "replay")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

use serde_json::Value;

const SEED: u64 = 7;

/// Of time: a false alarm is one that somebody else's test may cause.
fn is_of_time(broken: &Value) -> bool {
    let what = broken["what"].as_str().unwrap();
    let of_time = ["a false alarm", "a hang was not named", "peers do not follow"];
    of_time.iter().any(|begins| what.starts_with(begins))
}

fn soak(args: &[&str], assets: Option<&str>) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlead"));
    command.args(["replay", "soak"]).args(args).env("FAIRLEAD_CONFIG", "/dev/null");
    if let Some(assets) = assets {
        command.env("KUBEBUILDER_ASSETS", assets);
    }
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn what_cannot_be_run_is_said_with_what_to_do() {
    let (code, said) = soak(&["--on", "cluster", "--minutes", "1"], Some("/nonexistent"));
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("no cluster can run here") && said.contains("KUBEBUILDER_ASSETS"),
        "{said}"
    );
    let (code, said) = soak(&["--on", "cluster", "--only", "earthquake"], None);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("there is no such") && said.contains("hung-disk"), "{said}");
    let (code, said) = soak(&["--on", "cluster", "--minutes", "0.5"], None);
    assert!(code == Some(2) && said.contains("--minutes 1"), "{said}");
    let (code, said) = soak(&["--only", "earthquake"], None);
    assert!(code == Some(2) && said.contains("lease"), "{said}");
}

mod kube {
    use super::*;

    #[test]
    fn all_jobs_together_hold_through_every_fault() {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fairlead"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FAIRLEAD_")) {
            command.env_remove(name);
        }
        let seed = SEED.to_string();
        let args = ["replay", "soak", "--minutes", "0.35", "--seed", &seed, "-o", "json"];
        let output = command.env("FAIRLEAD_CONFIG", "/dev/null").args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code().is_some_and(|code| code < 2), "{said}");
        assert!(said.contains("seed 7"), "{said}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.success(), report["ok"].as_bool().unwrap());
        assert_eq!(report["seed"], SEED);

        let jobs = report["jobs"].as_object().unwrap();
        for job in ["fleet", "guard"] {
            assert!(jobs.contains_key(job), "{job} needs nothing");
        }
        for (name, job) in jobs {
            assert!(job["load"].as_u64().unwrap() > 0, "{name} did nothing: {report:#}");
            assert!(job["checks"].as_u64().unwrap() > 0, "{name} was not looked at");
            let broken = job["broken"].as_array().unwrap();
            assert!(broken.iter().all(is_of_time), "{name}: {broken:#?}");
            let faults = report["faults"].as_array().unwrap();
            assert!(faults.iter().any(|fault| fault["job"] == **name), "no fault of {name}");
        }
        let missing = report["left_out"].as_array().unwrap().iter();
        let missing =
            missing.filter(|out| ["net", "lease", "mesh"].contains(&out["job"].as_str().unwrap()));
        assert_eq!(jobs.len() + missing.count(), 5, "{report:#}");
        let [peak, limit] = ["peak_memory", "memory_limit"].map(|is| report[is].as_u64().unwrap());
        assert!(peak > 0 && peak <= limit, "{peak} of {limit} bytes");
    }
}
