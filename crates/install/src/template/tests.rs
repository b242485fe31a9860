#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use serde_json::json;

use super::*;
use crate::Error;

fn render(source: &str) -> Result<String, Error> {
    let values = json!({
        "name": "web", "count": 3, "big": 1_073_741_824, "part": 0.5, "on": true, "off": false,
        "empty": "", "none": {}, "list": ["a", "b"], "map": {"z": 1, "a": "x"},
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

#[test]
fn what_is_in_the_subset_is_what_go_makes_of_it() {
    for (source, expected) in [
        ("a {{ .Values.name }} b", "a web b"),
        ("a \n {{- .Values.name -}} \n b", "awebb"),
        ("a {{- /* c */ -}} b", "ab"),
        ("{{/* c */}}x", "x"),
        ("{{ .Values.count }} {{ .Values.on }} {{ int .Values.big }}", "3 true 1073741824"),
        ("{{ \"a\\n\\\"b\\\"\" }}{{ `r\\n` }}", "a\n\"b\"r\\n"),
        ("{{ if .Values.off }}1{{ else if .Values.on }}2{{ else }}3{{ end }}", "2"),
        ("{{ if .Values.empty }}1{{ else }}2{{ end }}{{ if .Values.none }}1{{ end }}", "2"),
        ("{{ if .Values.missing }}1{{ else }}2{{ end }}", "2"),
        ("{{ with .Values.name }}<{{ . }}{{ $.Values.count }}>{{ else }}-{{ end }}", "<web3>"),
        ("{{ with .Values.empty }}x{{ else }}-{{ end }}", "-"),
        ("{{ range .Values.list }}[{{ . }}]{{ end }}", "[a][b]"),
        ("{{ range $i, $v := .Values.list }}{{ $i }}{{ $v }}{{ end }}", "0a1b"),
        ("{{ range $k, $v := .Values.map }}{{ $k }}={{ $v }};{{ end }}", "a=x;z=1;"),
        ("{{ range .Values.missing }}x{{ else }}none{{ end }}", "none"),
        ("{{ $x := .Values.name }}{{ if true }}{{ $x := 1 }}{{ $x }}{{ end }}{{ $x }}", "1web"),
        ("{{ define \"d\" }}<{{ .a }}>{{ end }}{{ template \"d\" (dict \"a\" 1) }}", "<1>"),
        ("{{ define \"d\" }}a\nb{{ end }}{{ include \"d\" . | nindent 2 }}", "\n  a\n  b"),
        ("{{ \"a\\nb\" | indent 1 }}", " a\n b"),
        ("{{ .Values.empty | default \"d\" }}{{ default 1 .Values.missing }}", "d1"),
        ("{{ quote .Values.name }}{{ .Values.count | quote }}", "\"web\"\"3\""),
        ("{{ eq .Values.name \"x\" \"web\" }}{{ ne .Values.name \"x\" }}", "truetrue"),
        (
            "{{ and .Values.on .Values.name }} {{ or .Values.empty \"o\" }} {{ not .Values.on }}",
            "web o false",
        ),
        ("{{ or .Values.on (fail \"not looked at\") }}", "true"),
        ("{{ printf \"%s-%d%%\" .Values.name (int .Values.count) }}", "web-3%"),
        ("{{ hasKey .Values.map \"z\" }}{{ kindIs \"string\" .Values.name }}", "truetrue"),
        (
            "{{ trunc 2 .Values.name }}{{ trimSuffix \"b\" .Values.name }}{{ replace \"w\" \"v\" .Values.name }}",
            "weweveb",
        ),
        ("{{ join \",\" .Values.list }}", "a,b"),
        ("{{ sha256sum \"a\" | trunc 8 }}", "ca978112"),
        (
            "{{ toYaml .Values.deep }}",
            "\"a\":\n  \"b\":\n    - 1\n    -\n      \"c\": \"yes\"\n\"n\": null",
        ),
        (
            "{{ toYaml .Values.none }}{{ toYaml .Values.part }}{{ toYaml .Values.big }}",
            "{}0.51073741824",
        ),
        (
            "{{ $r := . }}{{ range $p, $_ := .Files.Glob \"crds/*.yaml\" }}{{ $r.Files.Get $p }}{{ end }}",
            "A\nB\n",
        ),
        ("{{ required \"m\" .Values.name }}", "web"),
    ] {
        match render(source) {
            Ok(text) => assert_eq!(text, expected, "{source}"),
            Err(error) => panic!("{source}: {error}"),
        }
    }
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
