//! The fold of lists and changes into a table, and what a reader makes of it. What a real API server
//! does is in `tests/tables.rs`.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::super::list::{Column, Row};
use super::view::uid;
use super::*;

fn writer() -> (Snapshot<TableView>, TableWriter) {
    let published = Snapshot::new(TableView::new(7));
    let writer = TableWriter::new(published.clone(), Arc::default());
    (published, writer)
}

fn row(name: &str, version: u32) -> Row {
    Row {
        cells: vec![json!(name)],
        name: name.to_owned(),
        namespace: Some("a".to_owned()),
        uid: Some(format!("uid-{name}")),
        labels: BTreeMap::from([("app".to_owned(), name.to_owned())]),
        resource_version: Some(version.to_string()),
        ..Row::default()
    }
}

fn columns(names: &[&str]) -> Vec<Column> {
    let column = |name: &&str| Column {
        name: (*name).to_owned(),
        kind: "string".to_owned(),
        format: String::new(),
        priority: 0,
    };
    names.iter().map(column).collect()
}

fn list(writer: &mut TableWriter, rows: Vec<Row>) {
    writer.begin_list();
    writer.page(columns(&["Name"]), rows).unwrap();
    writer.listed();
}

/// What a reader is told after `revision`.
fn told(published: &Snapshot<TableView>, revision: u64) -> Vec<String> {
    let view = published.load();
    let told = view.since(revision).map(|(_, entry)| match entry {
        Entry::Row(row) => format!("+{}", row.name),
        Entry::Removed(row) => format!("-{}", row.name),
    });
    told.collect()
}

#[test]
fn a_page_is_read_before_the_list_is_complete() {
    let (published, mut writer) = writer();
    writer.begin_list();
    writer.page(columns(&["Name"]), vec![row("one", 1), row("two", 2)]).unwrap();
    assert_eq!(told(&published, 0), ["+one", "+two"]);
    assert!(!published.load().synced);
    writer.page(Vec::new(), vec![row("three", 3)]).unwrap();
    writer.listed();
    let view = published.load();
    assert_eq!((view.count, view.synced, &view.state), (3, true, &TableState::Live));
}

#[test]
fn a_slow_reader_is_told_the_last_of_many_changes() {
    let (published, mut writer) = writer();
    list(&mut writer, vec![row("one", 1), row("two", 1)]);
    let seen = published.load().revision;
    for version in 2..100 {
        writer.apply([row("one", version)]).unwrap();
    }
    writer.apply([row("new", 1)]).unwrap();
    writer.delete(&row("new", 1));
    assert_eq!(told(&published, seen), ["+one", "-new"]);
    assert_eq!(told(&published, 0), ["+two", "+one", "-new"]);
    assert_eq!(published.load().count, 2);
}

#[test]
fn a_list_after_an_interruption_tells_what_differs() {
    let (published, mut writer) = writer();
    list(&mut writer, vec![row("same", 1), row("changed", 1), row("gone", 1)]);
    let seen = published.load().revision;
    writer.interrupted("it is away".to_owned(), false, Duration::from_secs(5));
    let TableState::Interrupted { since, why, .. } = published.load().state.clone() else {
        panic!("it is interrupted")
    };
    assert_eq!(&*why, "it is away");
    writer.interrupted("it is still away".to_owned(), false, Duration::from_secs(5));
    let TableState::Interrupted { since: still, .. } = published.load().state.clone() else {
        panic!("it is interrupted")
    };
    assert_eq!(since, still);
    assert_eq!(published.load().count, 3);
    list(&mut writer, vec![row("same", 1), row("changed", 2), row("new", 1)]);
    assert_eq!(told(&published, seen), ["+changed", "+new", "-gone"]);
    assert_eq!(published.load().state, TableState::Live);
    assert!(published.load().can_resume(7, seen));
}

#[test]
fn other_columns_print_every_row_anew() {
    let (published, mut writer) = writer();
    list(&mut writer, vec![row("one", 1)]);
    let seen = published.load().revision;
    let wide = Row { cells: vec![json!("one"), json!(3)], ..row("one", 1) };
    assert!(!writer.fits_columns(&wide) && writer.fits_columns(&row("two", 1)));
    writer.begin_list();
    writer.page(columns(&["Name", "Size"]), vec![wide]).unwrap();
    writer.listed();
    assert_eq!(told(&published, seen), ["+one"]);
    assert_eq!(published.load().columns.len(), 2);
}

#[test]
fn who_was_away_for_more_deletions_than_are_remembered_begins_anew() {
    let (published, mut writer) = writer();
    list(&mut writer, vec![row("one", 1)]);
    let seen = published.load().revision;
    for number in 0..10_001 {
        let row = row(&format!("short-lived-{number}"), 1);
        writer.apply([row.clone()]).unwrap();
        writer.delete(&row);
    }
    let view = published.load();
    assert!(!view.can_resume(7, seen));
    assert!(view.can_resume(7, view.revision));
    assert!(!view.can_resume(8, view.revision), "an epoch that is not this one");
    assert!(!view.can_resume(7, view.revision + 1), "a revision of the future");
    assert_eq!(view.since(0).count(), 10_001);
}

#[test]
fn a_table_that_does_not_fit_ends_with_a_sentence_and_gives_its_memory_back() {
    let together = Arc::new(AtomicUsize::new(0));
    let published = Snapshot::new(TableView::new(7));
    let mut writer = TableWriter::new(published.clone(), Arc::clone(&together));
    writer.limit(10_000);
    writer.begin_list();
    let rows = (0..100).map(|number| row(&number.to_string(), 1)).collect();
    let TooLarge(why) = writer.page(columns(&["Name"]), rows).unwrap_err();
    assert!(why.contains("choose one namespace"), "{why}");
    assert!(together.load(Relaxed) > 10_000);
    writer.end(why);
    assert_eq!(together.load(Relaxed), 0);
    let view = published.load();
    assert!(matches!(&view.state, TableState::Ended(_)) && view.count == 0);
    drop(writer);
    assert_eq!(together.load(Relaxed), 0);
}

#[test]
fn a_written_row_has_its_labels_and_is_json() {
    let row = LiveRow::new(&row("one", 4));
    assert_eq!(row.labels()["app"], "one");
    let written: serde_json::Value = serde_json::from_str(&row.json).unwrap();
    assert_eq!(
        written,
        json!({"uid": "uid-one", "namespace": "a", "name": "one", "labels": {"app": "one"},
            "cells": ["one"], "resourceVersion": "4"})
    );
    let nameless = Row { uid: None, namespace: None, ..Row::default() };
    assert_eq!(&*uid(&nameless), "/");
}

#[derive(Clone, Debug)]
enum Step {
    Apply(u8, u32),
    Delete(u8),
    Relist(Vec<(u8, u32)>),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..12_u8, 1..50_u32).prop_map(|(name, version)| Step::Apply(name, version)),
        2 => (0..12_u8).prop_map(Step::Delete),
        1 => proptest::collection::btree_map(0..12_u8, 1..50_u32, 0..8)
            .prop_map(|rows| Step::Relist(rows.into_iter().collect())),
    ]
}

proptest! {
    /// Whenever a reader looks, what it has is what there is.
    #[test]
    fn a_reader_that_looks_now_and_then_has_the_table(
        steps in proptest::collection::vec((any_step(), any::<bool>()), 0..80),
    ) {
        let (published, mut writer) = writer();
        list(&mut writer, Vec::new());
        let (mut model, mut mirror) = (BTreeMap::new(), BTreeMap::new());
        let mut cursor = 0;
        for (step, looks) in steps {
            match step {
                Step::Apply(name, version) => {
                    model.insert(name.to_string(), version.to_string());
                    writer.apply([row(&name.to_string(), version)]).unwrap();
                }
                Step::Delete(name) => {
                    model.remove(&name.to_string());
                    writer.delete(&row(&name.to_string(), 0));
                }
                Step::Relist(rows) => {
                    let pair = |(name, version): &(u8, u32)| (name.to_string(), version.to_string());
                    model = rows.iter().map(pair).collect();
                    let rows = rows.iter().map(|(name, version)| row(&name.to_string(), *version));
                    list(&mut writer, rows.collect());
                }
            }
            if !looks {
                continue;
            }
            let view = published.load();
            prop_assert!(view.can_resume(7, cursor));
            for (revision, entry) in view.since(cursor) {
                match entry {
                    Entry::Row(row) => {
                        let json: serde_json::Value = serde_json::from_str(&row.json).unwrap();
                        let version = json["resourceVersion"].as_str().unwrap().to_owned();
                        mirror.insert(row.name.to_string(), version);
                    }
                    Entry::Removed(row) => { mirror.remove(&*row.name); }
                }
                cursor = revision;
            }
            cursor = cursor.max(view.revision);
            prop_assert_eq!(&mirror, &model);
            prop_assert_eq!(view.count, model.len());
        }
    }
}
