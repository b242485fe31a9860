//! The chart's command lines are ones that this program takes.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::Command;

use install::chart::{Chart, Release};
use install::values::Values;
use serde_json::Value;

/// The arguments of an object's first container, as a kubelet would expand them.
fn args(object: &Value) -> Vec<String> {
    let args = object["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
    args.iter().map(|arg| arg.as_str().unwrap().replace("$(POD_NAMESPACE)", "fairlead")).collect()
}

/// Asks the program for the configuration that such a daemon would run with.
fn configuration(args: &[String]) -> Result<Vec<Value>, String> {
    let (daemon, flags) = args.split_first().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlead"));
    command.args(["config", "show", "-o", "json"]).args(flags).env("FAIRLEAD_CONFIG", "/dev/null");
    // The controller's verb implies it.
    if daemon == "controller" {
        command.arg("--store=kubernetes");
    }
    let output = command.output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn the_program_takes_what_the_chart_gives_it() {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../install/tests/values");
    let mut daemons = 0;
    for entry in std::fs::read_dir(files).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let mut values = Values::default();
        values.merge_yaml(name, &std::fs::read_to_string(&path).unwrap()).unwrap();
        let rendered = Chart::embedded().render(&Release::default(), &values).unwrap();
        for object in &rendered.objects {
            if object["kind"] != "Deployment" && object["kind"] != "DaemonSet" {
                continue;
            }
            daemons += 1;
            let args = args(object);
            configuration(&args).unwrap_or_else(|why| panic!("{name}: {args:?}: {why}"));
        }
    }
    assert!(daemons > 12, "{daemons}");
}

#[test]
fn a_setting_that_is_none_is_noticed() {
    let mut values = Values::default();
    values.set(r"controller.settings.log\.levle=debug").unwrap();
    let rendered = Chart::embedded().render(&Release::default(), &values).unwrap();
    let controller = rendered.objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let why = configuration(&args(controller)).unwrap_err();
    assert!(why.contains("--log-levle"), "{why}");
}

/// What the chart sets by itself is refused in `settings`; its names are names of settings.
#[test]
fn what_the_chart_keeps_for_itself_are_settings() {
    let rendered = Chart::embedded().render(&Release::default(), &Values::default()).unwrap();
    let controller = rendered.objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let shown = configuration(&args(controller)).unwrap();
    let from_flags = shown.iter().filter(|row| row["from"].as_str().unwrap().starts_with("--"));
    for row in from_flags {
        let key = row["key"].as_str().unwrap();
        let mut values = Values::default();
        values.set_string(&format!("controller.settings.{}=x", key.replace('.', r"\."))).unwrap();
        let refused = Chart::embedded().render(&Release::default(), &values).unwrap_err();
        assert!(refused.to_string().contains("set by the chart itself"), "{key}: {refused}");
    }
}
