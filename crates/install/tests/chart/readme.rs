//! The table of values in the chart's README is what values.yaml says.

use std::path::Path;
use std::{env, fs};

use install::chart::Chart;
use serde_json::Value;

const BEGIN: &str = "<!-- values: begin -->\n";
const END: &str = "<!-- values: end -->";
const UPDATE: &str = "UPDATE=1 cargo nextest run -p install readme";

#[test]
fn the_readme_has_every_value() {
    let chart = Chart::embedded();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/chart/README.md");
    let readme = fs::read_to_string(&path).unwrap();
    let (before, rest) = readme.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let expected = format!("{before}{BEGIN}{}{END}{after}", table(chart.default_values().unwrap()));
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, &expected).unwrap();
        return;
    }
    assert!(readme == expected, "deploy/chart/README.md is out of date; {UPDATE}");
}

/// A row for every value with a comment. `##` before a map introduces its values.
fn table(yaml: &str) -> String {
    let values: Value = serde_saphyr::from_str(yaml).unwrap();
    let mut rows = String::from("| value | default | |\n|---|---|---|\n");
    let (mut path, mut comment) = (Vec::<(usize, String)>::new(), String::new());
    // How deep the value is that was told as a whole: what is inside needs no comment.
    let mut told: Option<usize> = None;
    for line in yaml.lines() {
        let text = line.trim_start();
        let depth = line.len() - text.len();
        if let Some(words) = text.strip_prefix('#') {
            comment = words.to_owned();
            continue;
        }
        let Some((key, _)) = text.split_once(':').filter(|_| !text.starts_with('-')) else {
            continue;
        };
        if told.is_some_and(|at| depth > at) {
            continue;
        }
        told = None;
        path.retain(|(at, _)| *at < depth);
        path.push((depth, key.to_owned()));
        let names: Vec<_> = path.iter().map(|(_, name)| name.as_str()).collect();
        let value = &values[names[0]];
        let value = names[1..].iter().fold(value, |value, name| &value[name]);
        let is_group = comment.starts_with('#') || comment.is_empty();
        if is_group {
            assert!(value.is_object(), "{} has no comment in values.yaml", names.join("."));
        } else {
            told = Some(depth);
            let comment = comment.trim().replace('|', "\\|");
            rows += &format!("| `{}` | `{value}` | {comment} |\n", names.join("."));
        }
        comment.clear();
    }
    rows
}

#[test]
fn the_table_has_a_row_for_a_value_and_its_comment() {
    let rows = table("## G.\na:\n  # One.\n  b: 1\n  # Two.\n  c:\n    d: x\n# Three.\ne: []\n");
    assert_eq!(
        rows,
        "| value | default | |\n|---|---|---|\n| `a.b` | `1` | One. |\n| `a.c` | `{\"d\":\"x\"}` | Two. |\n| `e` | `[]` | Three. |\n"
    );
}
