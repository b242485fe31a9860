#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use serde_json::json;

use super::*;
use crate::Error;

fn render(source: &str) -> Result<String, Error> {
    let values = json!({
        "name": "web", "count": 3, "big": 1_073_741_824, "part": 0.5, "on": true, "off": false,
        "empty": "", "none": {}, "no": [], "list": ["a", "b"], "map": {"z": 1, "a": "x"},
        "deep": {"a": {"b": [1, {"c": "yes"}]}, "n": null}
    });
    let data = BTreeMap::from([("Values", Value::from(&values)), ("Files", Value::Files)]);
    let files = BTreeMap::from([
        ("crds/a.yaml".to_owned(), "A\n".to_owned()),
        ("crds/b.yaml".to_owned(), "B\n".to_owned()),
        ("crds/deep/c.yaml".to_owned(), "C\n".to_owned()),
    ]);
    let root =
        Root { data: Value::Builtin(Rc::new(data)), files: &files, api_versions: &BTreeSet::new() };
    let mut templates = Templates::default();
    templates.add("templates/t.yaml", source)?;
    templates.render("templates/t.yaml", &root)
}

/// Templates and what they are in Go: another test asks Go.
const SUBSET: &str = include_str!("../../tests/subset.json");

#[test]
fn what_is_in_the_subset_is_what_go_makes_of_it() {
    let cases: Vec<(String, String)> = serde_json::from_str(SUBSET).unwrap();
    for (source, expected) in cases {
        match render(&source) {
            Ok(text) => assert_eq!(text, expected, "{source}"),
            Err(error) => panic!("{source}: {error}"),
        }
    }
}

#[test]
fn yaml_is_written_in_blocks_and_its_strings_in_quotes() {
    let text = render("{{ toYaml .Values.deep }}").unwrap();
    assert_eq!(text, "\"a\":\n  \"b\":\n    - 1\n    -\n      \"c\": \"yes\"\n\"n\": null");
}

#[test]
fn what_is_outside_is_an_error_with_its_place() {
    for (source, message) in [
        ("\n{{ upper \"a\" }}", "line 2: the function `upper` is outside the subset"),
        ("{{ .Values.missing }}", "line 1: nothing cannot be printed"),
        ("{{ .Values.missing.x }}", "`.Values.missing`: .x is wanted of nothing"),
        ("{{ .Valuse.x }}", "there is no .Valuse here"),
        ("{{ .Values.big }}", "use int"),
        ("{{ .Values.part }}", "use int"),
        ("{{ .Values.list }}", "a list cannot be printed"),
        ("{{ eq .Values.count 3 }}", "a number of the values is compared with a whole number"),
        ("{{ $x }}", "there is no $x"),
        ("{{ $x = 1 }}", "`=` is outside the subset"),
        ("{{ if true }}", "this if has no end"),
        ("{{ end }}", "this ends no block"),
        ("{{ range .Values.list }}{{ break }}{{ end }}", "`break` so is outside the subset"),
        ("{{ range .Values.name }}{{ end }}", "range over a string"),
        ("{{ (dict \"a\" 1).a }}", "outside the subset"),
        ("{{ printf \"%v\" 1 }}", "printf %v is outside the subset"),
        ("{{ printf \"%s\" }}", "printf %s of nothing"),
        ("{{ 1.5 }}", "expected a space"),
        ("{{ 010 }}", "`010` is outside the subset"),
        ("{{ 'a' }}", "is outside the subset"),
        ("{{ \"a }}", "a string has no end"),
        ("{{ .Values.name ", "an action has no end"),
        ("{{ template \"t\" }}", "there is no template \"t\""),
        (
            "{{ define \"d\" }}{{ include \"d\" . }}{{ end }}{{ include \"d\" . }}",
            "more than 32 deep",
        ),
        ("{{ .Files.Get \"x\" }}", "the chart has no file x"),
        ("{{ .Files.Glob \"**\" }}", "outside the subset"),
        ("{{ .Files.Lines \"crds/a.yaml\" }}", "`.Files.Lines` so is outside the subset"),
        ("{{ \"a\" | 1 }}", "expected a function after |"),
        ("{{ int \"3\" }}", "int of a string is outside the subset"),
    ] {
        let error = render(source).expect_err(source).to_string();
        assert!(error.contains(message), "{source}: {error}");
        assert!(error.starts_with("templates/t.yaml, line "), "{error}");
    }
}

#[test]
fn what_the_chart_refuses_is_said_in_its_own_words() {
    for source in [
        "{{ fail \"no\" }}",
        "{{ required \"no\" .Values.empty }}",
        "{{ required \"no\" .Values.missing }}",
    ] {
        let error = render(source).unwrap_err();
        assert!(matches!(&error, Error::Refused(message) if message == "no"), "{source}: {error}");
    }
}

#[test]
fn the_chart_uses_every_function_and_so_the_subset_is_no_larger_than_needed() {
    let chart = crate::chart::Chart::embedded();
    let templates = chart.files().iter().filter(|(path, _)| path.starts_with("templates/"));
    let all: String = templates.map(|(_, text)| text.as_str()).collect();
    for name in functions::NAMES {
        let call = regex::Regex::new(&format!(r"(\{{\{{-?|[(|]|:=|if) *{name}[ )]")).unwrap();
        assert!(call.is_match(&all), "no template calls {name}");
    }
}
