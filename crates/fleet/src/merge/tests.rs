use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::error::Error;

fn table_of(columns: &[&str], rows: &[&[&str]]) -> Table {
    let column = |name: &&str| Column {
        name: name.to_string(),
        kind: "string".to_owned(),
        format: String::new(),
        priority: 0,
    };
    let row = |cells: &&[&str]| Row {
        cells: cells.iter().map(|cell| json!(cell)).collect(),
        name: cells.first().copied().unwrap_or_default().to_owned(),
        namespace: None,
        ..Default::default()
    };
    Table {
        columns: columns.iter().map(column).collect(),
        rows: rows.iter().map(row).collect(),
        ..Table::default()
    }
}

fn reply(cluster: &str, result: Result<Table, Error>) -> Reply<Table> {
    Reply { cluster: cluster.to_owned(), took: Duration::from_millis(7), result }
}

fn names(merged: &Merged) -> Vec<&str> {
    merged.columns.iter().map(|column| column.name.as_str()).collect()
}

#[test]
fn columns_of_different_versions_are_merged_by_name() {
    let mut merged = Merged::default();
    merged.add(reply(
        "new",
        Ok(table_of(&["Name", "Ready", "IP", "Age"], &[&["a", "1", "x", "2d"]])),
    ));
    merged.add(reply(
        "old",
        Ok(table_of(&["Name", "State", "Age", "Node"], &[&["b", "ok", "3d", "n"]])),
    ));
    let late = Error::TooLate { cluster: "dead".to_owned(), doing: "listing".to_owned() };
    merged.add(reply("dead", Err(late)));
    merged.sort();

    assert_eq!(names(&merged), ["Name", "State", "Ready", "IP", "Age", "Node"]);
    assert_eq!(
        merged.rows[0].row.cells,
        [json!("a"), json!(null), json!("1"), json!("x"), json!("2d"), json!(null)]
    );
    assert_eq!(
        merged.rows[1].row.cells,
        [json!("b"), json!("ok"), json!(null), json!(null), json!("3d"), json!("n")]
    );
    assert_eq!(merged.missing[0].cluster, "dead");
    let shown = serde_json::to_value(&merged).unwrap();
    assert_eq!(shown["rows"][0]["cluster"], "new");
    assert_eq!(shown["missing"][0]["why"], "dead did not answer within the deadline while listing");
}

#[test]
fn a_cluster_that_has_more_says_so() {
    let mut merged = Merged::default();
    let mut table = table_of(&["Name"], &[&["a"]]);
    table.continue_token = Some("on".to_owned());
    table.remaining = Some(41);
    merged.add(reply("big", Ok(table)));
    let truncated = Truncated {
        cluster: "big".to_owned(),
        continue_token: "on".to_owned(),
        remaining: Some(41),
    };
    assert_eq!(merged.truncated, [truncated]);
}

proptest! {
    /// Whatever the columns: every cell is found again under its own column's name, and nothing else.
    #[test]
    fn no_cell_changes_its_column(
        tables in proptest::collection::vec(
            proptest::sample::subsequence(vec!["a", "b", "c", "d", "e", "f"], 0..=6)
                .prop_flat_map(|columns| Just(columns).prop_shuffle()),
            0..6,
        ),
    ) {
        let mut merged = Merged::default();
        for (index, columns) in tables.iter().enumerate() {
            merged.add(reply(&format!("c{index}"), Ok(table_of(columns, &[columns]))));
        }
        merged.sort();
        let mut unique = names(&merged);
        unique.sort_unstable();
        unique.dedup();
        prop_assert_eq!(unique.len(), merged.columns.len());
        for (row, columns) in merged.rows.iter().zip(&tables) {
            prop_assert_eq!(row.row.cells.len(), merged.columns.len());
            for (cell, column) in row.row.cells.iter().zip(&merged.columns) {
                let has = columns.contains(&column.name.as_str());
                prop_assert_eq!(cell, &if has { json!(column.name) } else { json!(null) });
            }
        }
    }
}
