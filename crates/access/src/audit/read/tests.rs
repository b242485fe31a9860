use std::fs;

use stallproof::Deadline;

use super::*;
use crate::identity::{AuthMethod, Identity};
use crate::role::Verb;

fn entry(n: usize) -> Entry {
    Entry {
        who: Identity { user: format!("u{}", n % 3).into(), via: AuthMethod::Local },
        from: None,
        verb: if n.is_multiple_of(2) { Verb::Create } else { Verb::Delete },
        cluster: format!("c{}", n % 5),
        namespace: Some("web".to_owned()),
        resource: "pods".to_owned(),
        name: Some(format!("pod-{n}")),
        request_id: None,
        dry_run: false,
        details: Map::new(),
    }
}

fn record(n: usize) -> Record {
    let time = Timestamp::from_second(1_800_000_000 + n as i64).unwrap();
    Record::begun(entry(n), format!("{n:08}"), time)
}

fn ended(n: usize) -> Record {
    let mut record = record(n);
    record.end("ok", record.time, Duration::from_millis(5));
    record
}

fn written(files: &[Vec<Record>]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (n, records) in files.iter().rev().enumerate() {
        let text: Vec<u8> = records.iter().flat_map(Record::line).collect();
        fs::write(line_log::path(dir.path(), NAME, n), text).unwrap();
    }
    dir
}

fn read(dir: &Path, filter: &Filter, limit: usize) -> Page {
    newest(dir, filter, limit, Deadline::after(Duration::from_secs(60))).unwrap()
}

fn names(page: &Page) -> Vec<&str> {
    page.records.iter().map(|record| record.name.as_deref().unwrap()).collect()
}

#[test]
fn the_two_lines_of_a_write_are_one_record_newest_first_over_all_files() {
    let dir = written(&[
        vec![record(0), ended(0), record(1)],
        vec![record(2), ended(1), record(3), ended(2)],
    ]);
    let page = read(dir.path(), &Filter::default(), 10);
    assert_eq!(names(&page), ["pod-2", "pod-3", "pod-1", "pod-0"]);
    assert!(page.complete);
    let outcomes: Vec<_> = page.records.iter().map(|record| record.outcome.as_deref()).collect();
    assert_eq!(outcomes, [Some("ok"), None, Some("ok"), Some("ok")]);
}

#[test]
fn a_page_ends_at_its_limit_and_says_so() {
    let dir = written(&[(0..100).flat_map(|n| [record(n), ended(n)]).collect()]);
    let page = read(dir.path(), &Filter::default(), 3);
    assert_eq!(names(&page), ["pod-99", "pod-98", "pod-97"]);
    assert!(!page.complete);
    let last = page.records.last().unwrap();
    let next = |than: &OlderThan| {
        let older_than = Some(than.to_string().parse().unwrap());
        read(dir.path(), &Filter { older_than, ..Filter::default() }, 3)
    };
    let mut than = OlderThan { id: last.id.clone(), written: None };
    assert_eq!(names(&next(&than)), ["pod-96", "pod-95", "pod-94"]);
    // What it is older than may be in the audit of somebody else.
    than.written = Some(last.written());
    assert_eq!(names(&next(&than)), ["pod-96", "pod-95", "pod-94"]);
    than.id = "00000097x".to_owned();
    assert_eq!(names(&next(&than)), ["pod-97", "pod-96", "pod-95"]);
    than.id = "00000096x".to_owned();
    assert_eq!(names(&next(&than)), ["pod-96", "pod-95", "pod-94"]);
    than.written = None;
    assert!(next(&than).records.is_empty());
    let id = Some("00000042".to_owned());
    let one = read(dir.path(), &Filter { id, ..Filter::default() }, 3);
    assert_eq!(names(&one), ["pod-42"]);
}

#[test]
fn a_filter_leaves_out_what_is_not_asked_for() {
    let dir = written(&[(0..60).flat_map(|n| [record(n), ended(n)]).collect()]);
    let count = |filter: Filter| read(dir.path(), &filter, 1000).records.len();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(count(Filter::default()), 60);
    assert_eq!(count(Filter { who: text("u1"), ..Filter::default() }), 20);
    assert_eq!(count(Filter { cluster: text("c1"), ..Filter::default() }), 12);
    assert_eq!(count(Filter { verb: text("create"), ..Filter::default() }), 30);
    assert_eq!(count(Filter { name: text("pod-7"), ..Filter::default() }), 1);
    assert_eq!(count(Filter { namespace: text("db"), ..Filter::default() }), 0);
    assert_eq!(count(Filter { outcome: text("ok"), ..Filter::default() }), 60);
    let since = Some(record(50).time);
    assert_eq!(count(Filter { since, ..Filter::default() }), 10);
}

#[test]
fn lines_longer_and_shorter_than_a_piece_are_read_and_broken_ones_left_out() {
    let mut long = record(1);
    long.request_id = Some("x".repeat(64 * 1024 - 500));
    let mut too_long = record(3);
    too_long.request_id = Some("x".repeat(3 * 64 * 1024));
    let dir = written(&[vec![record(0), long, too_long, record(2)]]);
    let path = line_log::path(dir.path(), NAME, 0);
    let mut text = fs::read(&path).unwrap();
    text.extend_from_slice(b"\n\nnot json\n{\"half\": ");
    fs::write(&path, text).unwrap();
    assert_eq!(names(&read(dir.path(), &Filter::default(), 10)), ["pod-2", "pod-1", "pod-0"]);
}

#[test]
fn what_a_caller_sends_is_cut_to_a_length() {
    let long = Entry { name: Some("ä".repeat(10_000)), ..entry(1) };
    let record = Record::begun(long, "id".to_owned(), Timestamp::UNIX_EPOCH);
    assert_eq!(record.name.unwrap(), "ä".repeat(WORD / 2));
}

#[test]
fn what_is_not_read_in_time_is_left_out_and_told() {
    let dir = written(&[vec![record(0)]]);
    let passed = Deadline::after(Duration::ZERO);
    let page = newest(dir.path(), &Filter::default(), 10, passed).unwrap();
    assert_eq!(page, Page { records: vec![], complete: false });
}

#[test]
fn nothing_was_written_yet_and_a_gap_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let page = read(&dir.path().join("audit"), &Filter::default(), 10);
    assert_eq!(page, Page { records: vec![], complete: true });

    let dir = written(&[vec![record(0)], vec![record(1)], vec![record(2)]]);
    fs::remove_file(line_log::path(dir.path(), NAME, 1)).unwrap();
    assert_eq!(names(&read(dir.path(), &Filter::default(), 10)), ["pod-2", "pod-0"]);
}

#[test]
fn an_export_has_every_line_from_the_oldest_on_in_parts() {
    let dir = written(&[
        (0..900).flat_map(|n| [record(n), ended(n)]).collect(),
        vec![record(900), ended(900)],
    ]);
    let deadline = Deadline::after(Duration::from_secs(60));
    let all = |filter: &Filter| {
        let (mut lines, mut after) = (Vec::new(), None);
        loop {
            let part = export(dir.path(), filter, after, deadline).unwrap();
            assert!(part.lines.len() <= MOST);
            lines.extend(part.lines);
            after = part.next;
            if after.is_none() {
                return lines;
            }
        }
    };
    let lines = all(&Filter::default());
    assert_eq!(lines.len(), 1802);
    assert_eq!((&lines[0], &lines[1801]), (&record(0), &ended(900)));
    let (since, until) = (Some(record(10).time), Some(record(12).time));
    let lines = all(&Filter { since, until, ..Filter::default() });
    assert_eq!(lines, [record(10), ended(10), record(11), ended(11)]);
}

#[test]
fn a_line_of_its_own_is_shown_beside_those_of_writes() {
    let mut noted = record(1);
    (noted.phase, noted.outcome) = (Phase::Noted, Some("ok".to_owned()));
    let dir = written(&[vec![record(0), noted, ended(0)]]);
    let page = read(dir.path(), &Filter::default(), 10);
    assert_eq!(names(&page), ["pod-0", "pod-1"]);
}

#[test]
fn what_is_too_long_for_a_line_is_a_digest() {
    let long = Value::from("x".repeat(VALUE));
    let short = bounded(long.clone());
    assert_eq!(short["bytes"], VALUE + 2);
    assert_eq!(short["sha256"], Fingerprint::of(&long.to_string()).to_hex());
    let details = Map::from_iter([("spec".to_owned(), long)]);
    let record =
        Record::begun(Entry { details, ..entry(1) }, "id".to_owned(), Timestamp::UNIX_EPOCH);
    assert!(record.line().len() < 2000);
    assert!(record.details["sha256"].is_string());
}
