use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn args(line: &str) -> Args {
    Line::parse_from(std::iter::once("get").chain(line.split_whitespace())).args
}

fn pods(rows: &[(&str, &str)]) -> ResourceList {
    let rows: Vec<Value> =
        rows.iter().map(|(name, phase)| json!({"name": name, "cells": [name, phase]})).collect();
    let columns = json!([{"name": "Name"}, {"name": "Status"}]);
    serde_json::from_value(json!({"columns": columns, "rows": rows})).unwrap()
}

#[test]
fn what_was_printed_is_printed_again_only_when_it_changed() {
    let args = args("pods -w");
    let mut printed = PrintedRows::new(&args, false);
    let all = pods(&[("web", "Pending"), ("db", "Running")]);
    assert_eq!(
        printed.rows("a", "restarted", all.clone()),
        "NAME   STATUS\nweb    Pending\ndb     Running\n"
    );
    assert_eq!(printed.rows("a", "applied", pods(&[("web", "Running")])), "web    Running\n");
    assert_eq!(printed.rows("a", "applied", pods(&[("web", "Running")])), "");
    // After a gap only the difference is news.
    let all = pods(&[("web", "Running"), ("db", "Failed")]);
    assert_eq!(printed.rows("a", "restarted", all), "db     Failed\n");
    // What went and came back is new.
    assert_eq!(printed.rows("a", "deleted", pods(&[("db", "Failed")])), "db     Failed\n");
    assert_eq!(printed.rows("a", "applied", pods(&[("db", "Failed")])), "db     Failed\n");
    assert_eq!(printed.rows("a", "restarted", pods(&[])), "");
    assert_eq!(printed.rows("a", "applied", pods(&[("db", "Failed")])), "db     Failed\n");
}

#[test]
fn clusters_are_told_apart() {
    let args = args("pods -w --cluster a,b");
    let mut printed = PrintedRows::new(&args, true);
    assert_eq!(
        printed.rows("a", "restarted", pods(&[("web", "Running")])),
        "CLUSTER   NAME   STATUS\na         web    Running\n"
    );
    let mut without_columns = pods(&[("web", "Running")]);
    assert_eq!(
        printed.rows("b", "restarted", without_columns.clone()),
        "b         web    Running\n"
    );
    without_columns.columns.clear();
    without_columns.rows[0].cells[1] = json!("Failed");
    assert_eq!(printed.rows("b", "applied", without_columns), "b         web    Failed\n");
}

#[test]
fn scripts_get_a_line_for_each_event() {
    let args = args("pods -w -o json");
    let printed = PrintedRows::new(&args, false);
    let object = json!({"metadata": {"name": "web"}});
    assert_eq!(
        printed.object("a", "restarted", &json!({"items": [object]})).unwrap(),
        "{\"cluster\":\"a\",\"event\":\"restarted\",\"items\":[{\"metadata\":{\"name\":\"web\"}}]}\n"
    );
    assert_eq!(
        printed.object("a", "deleted", &object).unwrap(),
        "{\"cluster\":\"a\",\"event\":\"deleted\",\"object\":{\"metadata\":{\"name\":\"web\"}}}\n"
    );
}
