//! Values that charts are tested with.

use install::chart::{Chart, Release, Rendered};
use install::values::Values;
use serde_json::Value;

pub(crate) const COMPONENTS: [&str; 5] = ["net", "guard", "mesh", "console", "admission"];

/// Every choice of components, as `--set` takes them.
pub(crate) fn every_choice_of_components() -> impl Iterator<Item = String> {
    (0..1u32 << COMPONENTS.len()).map(|bits| {
        let on = |at: usize| bits & (1 << at) != 0;
        let set = |(at, name): (usize, &&str)| format!("components.{name}={}", on(at));
        COMPONENTS.iter().enumerate().map(set).collect::<Vec<_>>().join(",")
    })
}

pub(crate) const EVERYTHING: &str = "components.net=true,metrics.tokenSecret=metrics,\
    metrics.podMonitor.enabled=true,alerts.enabled=true,dashboards.enabled=true,\
    networkPolicy.enabled=true,criticalPodsQuota.enabled=true";

#[track_caller]
pub(crate) fn render(set: &str) -> Rendered {
    let mut values = Values::default();
    values.set(set).unwrap_or_else(|error| panic!("{error}"));
    Chart::embedded()
        .render(&Release::default(), &values)
        .unwrap_or_else(|error| panic!("{set}: {error}"))
}

pub(crate) fn error(set: &str) -> String {
    let mut values = Values::default();
    values.set(set).unwrap_or_else(|error| panic!("{error}"));
    match Chart::embedded().render(&Release::default(), &values) {
        Ok(_) => panic!("{set} is rendered"),
        Err(error) => error.to_string(),
    }
}

pub(crate) fn find<'a>(rendered: &'a Rendered, kind: &str, name: &str) -> Option<&'a Value> {
    let is = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
    rendered.objects.iter().find(is)
}

#[track_caller]
pub(crate) fn get<'a>(rendered: &'a Rendered, kind: &str, name: &str) -> &'a Value {
    find(rendered, kind, name).unwrap_or_else(|| panic!("no {kind} {name}"))
}

/// The arguments of an object's first container.
pub(crate) fn args(object: &Value) -> Vec<&str> {
    let args = object["spec"]["template"]["spec"]["containers"][0]["args"].as_array();
    args.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The files in `tests/values`, by their names.
pub(crate) fn every_file() -> Vec<(String, Values)> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/values");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut values = Values::default();
        values.merge_yaml(&name, &std::fs::read_to_string(&path).unwrap()).unwrap();
        files.push((name, values));
    }
    files.sort_by(|a, b| a.0.cmp(&b.0));
    files
}
