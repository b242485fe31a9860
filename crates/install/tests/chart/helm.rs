//! The same objects from Helm's language: the chart rendered by Go's `text/template` and by ours.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use install::chart::{Chart, Release};
use install::values::Values;
use serde_json::{Value, json};
use testkit::{need, requires};

use crate::values::{every_choice_of_components, every_file};

/// What servers from 1.30 on have.
const POLICY: &str = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy";

fn release() -> Release {
    Release {
        name: "boat".to_owned(),
        namespace: "harbour".to_owned(),
        service: "Helm".to_owned(),
        api_versions: BTreeSet::from(["policy/v1".to_owned(), POLICY.to_owned()]),
    }
}

/// A case as the other renderer takes it.
fn case(chart: &Path, release: &Release, values: &Values) -> Value {
    json!({
        "chart": chart, "name": release.name, "namespace": release.namespace,
        "service": release.service, "apiVersions": release.api_versions, "values": values.as_json(),
    })
}

/// What the other renderer makes of them.
fn helm(cases: &[Value]) -> Vec<Value> {
    let program = need::helm_template().unwrap();
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let input = serde_json::to_vec(cases).unwrap();
    child.stdin.take().unwrap().write_all(&input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    let results: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(results.len(), cases.len());
    results
}

fn chart_directory() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/chart"))
}

/// By kind and name, with numbers in one form: YAML's 0.0 is 0 in Go.
fn by_name(objects: &[Value]) -> BTreeMap<String, Value> {
    let name = |object: &Value| format!("{} {}", object["kind"], object["metadata"]["name"]);
    let map: BTreeMap<_, _> =
        objects.iter().map(|object| (name(object), whole_numbers(object))).collect();
    assert_eq!(map.len(), objects.len(), "two objects have one name");
    map
}

fn whole_numbers(value: &Value) -> Value {
    match value {
        Value::Array(list) => list.iter().map(whole_numbers).collect(),
        Value::Object(map) => {
            map.iter().map(|(key, value)| (key.clone(), whole_numbers(value))).collect()
        }
        Value::Number(number) => match number.as_f64() {
            #[allow(clippy::cast_possible_truncation)]
            Some(float) if float.fract() == 0.0 => Value::from(float as i64),
            _ => value.clone(),
        },
        other => other.clone(),
    }
}

/// Where two sets of objects differ.
fn differences(ours: &[Value], theirs: &[Value]) -> Vec<String> {
    let (ours, theirs) = (by_name(ours), by_name(theirs));
    let mut found = Vec::new();
    for name in ours.keys().chain(theirs.keys()).collect::<BTreeSet<_>>() {
        differ(name, ours.get(name), theirs.get(name), &mut found);
    }
    found
}

fn differ(at: &str, ours: Option<&Value>, theirs: Option<&Value>, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            for key in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                differ(&format!("{at}/{key}"), a.get(key), b.get(key), found);
            }
        }
        (a, b) if a == b => {}
        (a, b) => {
            let show = |value: Option<&Value>| {
                let text = value.map_or_else(|| "nothing".to_owned(), Value::to_string);
                let long = text.chars().count().saturating_sub(120);
                // What differs in a long text is mostly its end.
                text.chars().skip(long).collect::<String>()
            };
            found.push(format!("{at}:\n  ours:   {}\n  theirs: {}", show(a), show(b)));
        }
    }
}

#[test]
fn the_chart_is_the_same_in_helms_language() {
    requires!(helm);
    let mut chosen: Vec<(String, Values)> = every_file();
    chosen.push(("defaults".to_owned(), Values::default()));
    for set in every_choice_of_components() {
        let mut values = Values::default();
        // The definitions are the same in all of them.
        values.set(&format!("crds.install=false,{set}")).unwrap();
        chosen.push((set, values));
    }
    assert!(chosen.len() >= 12 + 32, "values are missing");
    let old = Release { api_versions: BTreeSet::new(), ..release() };
    let chart = Chart::embedded();
    for release in [release(), old] {
        let cases: Vec<_> =
            chosen.iter().map(|(_, values)| case(chart_directory(), &release, values)).collect();
        for ((name, values), theirs) in chosen.iter().zip(helm(&cases)) {
            assert_eq!(theirs["error"], Value::Null, "{name}");
            let ours = chart.render(&release, values).unwrap_or_else(|e| panic!("{name}: {e}"));
            let theirs_objects = theirs["objects"].as_array().unwrap();
            let differences = differences(&ours.objects, theirs_objects);
            assert!(differences.is_empty(), "{name}: {}", differences.join("\n"));
            assert_eq!(ours.notes, theirs["notes"], "{name}");
        }
    }
}

#[test]
fn what_the_chart_refuses_is_refused_in_helms_language_too() {
    requires!(helm);
    let sets = [
        r"controller.settings.api\.listen=x",
        r"agent.settings.net\.serve=off",
        "metrics.podMonitor.enabled=true",
    ];
    let chosen = sets.map(|set| {
        let mut values = Values::default();
        values.set(set).unwrap();
        values
    });
    let cases = chosen.each_ref().map(|values| case(chart_directory(), &release(), values));
    for ((set, values), theirs) in sets.iter().zip(&chosen).zip(helm(&cases)) {
        let ours = Chart::embedded().render(&release(), values).unwrap_err().to_string();
        let theirs = theirs["error"].as_str().unwrap_or_else(|| panic!("{set} is rendered"));
        assert!(theirs.contains(&ours), "{set}\n  ours:   {ours}\n  theirs: {theirs}");
    }
}

/// Each template of the list is the NOTES of a chart of its own: they are compared letter by letter.
#[test]
fn every_template_of_the_subset_is_what_go_makes_of_it() {
    requires!(helm);
    let values = r#"{name: web, count: 3, big: 1073741824, part: 0.5, "on": true, "off": false, empty: "",
        none: {}, "no": [], list: [a, b], map: {z: 1, a: x}}"#;
    let sources: Vec<(String, String)> =
        serde_json::from_str(include_str!("../subset.json")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut charts = Vec::new();
    for (at, (source, _)) in sources.iter().enumerate() {
        let files = BTreeMap::from(
            [
                ("Chart.yaml", "{apiVersion: v2, name: t, version: 0.1.0, appVersion: \"1\"}"),
                ("values.yaml", values),
                ("values.schema.json", "{}"),
                ("crds/a.yaml", "A\n"),
                ("crds/b.yaml", "B\n"),
                ("crds/deep/c.yaml", "C\n"),
                ("templates/NOTES.txt", source),
            ]
            .map(|(path, text)| (path.to_owned(), text.to_owned())),
        );
        let root = dir.path().join(at.to_string());
        for (path, text) in &files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        charts.push((root, Chart::from_files(files)));
    }
    let none = Values::default();
    let cases: Vec<_> = charts.iter().map(|(root, _)| case(root, &release(), &none)).collect();
    for (((source, expected), (_, chart)), theirs) in sources.iter().zip(&charts).zip(helm(&cases))
    {
        assert_eq!(theirs["error"], Value::Null, "{source}");
        assert_eq!(theirs["notes"].as_str().unwrap_or_default(), expected, "Go: {source}");
        let ours = chart.render(&release(), &none).unwrap_or_else(|e| panic!("{source}: {e}"));
        assert_eq!(&ours.notes, expected, "ours: {source}");
    }
}

#[test]
fn a_difference_is_seen() {
    let object = json!({"kind": "A", "metadata": {"name": "a"}, "n": 0.0});
    let same = json!({"kind": "A", "metadata": {"name": "a"}, "n": 0});
    let other = json!({"kind": "A", "metadata": {"name": "a"}, "n": 1});
    let another = json!({"kind": "A", "metadata": {"name": "b"}, "n": 1});
    assert_eq!(differences(std::slice::from_ref(&object), &[same]), Vec::<String>::new());
    assert_eq!(differences(std::slice::from_ref(&object), &[other]).len(), 1);
    assert_eq!(differences(&[object.clone(), another], &[object]).len(), 1);
}
