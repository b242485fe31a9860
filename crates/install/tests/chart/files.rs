//! The files of the chart.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use install::chart::Chart;
use install::values::Values;
use serde_json::Value;

fn read(dir: &Path, prefix: &str, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{prefix}{}", path.file_name().unwrap().to_str().unwrap());
        if path.is_dir() {
            read(&path, &format!("{name}/"), files);
        } else {
            files.insert(name, fs::read_to_string(&path).unwrap());
        }
    }
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn every_file_of_the_chart_is_embedded() {
    let mut files = BTreeMap::new();
    read(&repository().join("deploy/chart"), "", &mut files);
    assert!(files.contains_key("templates/NOTES.txt"));
    assert_eq!(Chart::embedded().files(), &files);
}

#[test]
fn the_definitions_of_the_chart_are_those_of_the_api() {
    let mut expected = BTreeMap::new();
    read(&repository().join("api/crds"), "crds-files/", &mut expected);
    let chart = Chart::embedded();
    let in_chart: BTreeMap<_, _> = chart
        .files()
        .clone()
        .into_iter()
        .filter(|(path, _)| path.starts_with("crds-files/"))
        .collect();
    assert_eq!(in_chart, expected);
    // The template adds labels by putting them at this one place.
    for (path, text) in &expected {
        assert_eq!(text.matches("\nmetadata:\n  name: ").count(), 1, "{path}");
    }
}

#[test]
fn the_schema_allows_the_defaults_and_nothing_unknown() {
    let chart = Chart::embedded();
    chart.values(&Values::default()).unwrap();
    let schema: Value = serde_json::from_str(&chart.files()["values.schema.json"]).unwrap();
    closed("", &schema);
}

/// An object of the schema says what it may have.
fn closed(path: &str, schema: &Value) {
    let Some(map) = schema.as_object() else { return };
    if map.contains_key("properties") {
        assert_eq!(map.get("additionalProperties"), Some(&Value::Bool(false)), "{path}");
    }
    for (key, inner) in map {
        closed(&format!("{path}/{key}"), inner);
    }
}

#[test]
fn the_schema_has_every_value_and_no_other() {
    let chart = Chart::embedded();
    let defaults: Value = serde_saphyr::from_str(chart.default_values().unwrap()).unwrap();
    let schema: Value = serde_json::from_str(&chart.files()["values.schema.json"]).unwrap();
    same_keys("", &defaults, &schema);
}

fn same_keys(path: &str, value: &Value, schema: &Value) {
    let (Some(values), Some(known)) = (value.as_object(), schema["properties"].as_object()) else {
        return;
    };
    for (key, inner) in values {
        assert!(known.contains_key(key), "the schema lacks {path}.{key}");
        same_keys(&format!("{path}.{key}"), inner, &known[key]);
    }
    // What Kubernetes defines, and what Helm adds, need no default.
    let free = [".controller.resources", ".agent.resources", ".controller.affinity"];
    for key in known.keys().filter(|key| *key != "global") {
        assert!(free.contains(&path) || values.contains_key(key), "values.yaml lacks {path}.{key}");
    }
}

#[test]
fn the_chart_has_the_version_of_the_binary() {
    let chart = Chart::embedded();
    assert_eq!(chart.version().unwrap(), env!("CARGO_PKG_VERSION"));
    let about: Value = serde_saphyr::from_str(&chart.files()["Chart.yaml"]).unwrap();
    assert_eq!(about["appVersion"], env!("CARGO_PKG_VERSION"));
    assert_eq!(about["apiVersion"], "v2");
}
