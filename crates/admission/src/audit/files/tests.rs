use std::fs;

use jiff::Timestamp;

use super::super::{AuditWriter, Decided, Outcome};
use super::*;

fn decide(book: &mut AuditWriter, outcome: Outcome, owner: &str, second: i64) {
    let subject = AuditKey {
        outcome,
        cluster: "local".to_owned(),
        namespace: "shop".to_owned(),
        owner: owner.to_owned(),
        image: "web/cart".to_owned(),
        rule: Some("no-latest".to_owned()),
        dry_run: false,
    };
    let decided = Decided {
        object: format!("Pod/{owner}-1"),
        container: None,
        user: "ann".to_owned(),
        why: "it may not".to_owned(),
    };
    book.write(subject, decided, Timestamp::from_second(second).unwrap());
}

fn written(dir: &Path) -> Vec<Line> {
    let mut lines = Vec::new();
    line_log::oldest_first(dir, NAME, None, |line| {
        lines.push(serde_json::from_slice(line).unwrap());
        true
    })
    .unwrap();
    lines
}

async fn until(what: &str, done: impl Fn() -> bool) {
    let late = std::time::Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(std::time::Instant::now() < late, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn what_was_decided_is_there_after_a_restart_and_counted_on() {
    let data = tempfile::tempdir().unwrap();
    let tasks = Tasks::new("first");
    let files = AuditFiles::start(data.path(), &tasks);
    let mut book = AuditWriter::default();
    decide(&mut book, Outcome::Denied, "a", 1);
    decide(&mut book, Outcome::Allowed, "b", 2);
    assert!(book.flush(&files));
    until("the first batch is on disk", || written(data.path()).len() == 2).await;
    decide(&mut book, Outcome::Denied, "a", 3);
    // The last is written when the process ends.
    files.finish(&book.unwritten()).await;
    assert_eq!(tasks.shutdown(Duration::from_secs(30)).await, []);
    assert_eq!(written(data.path()).len(), 3);

    let tasks = Tasks::new("second");
    let files = AuditFiles::start(data.path(), &tasks);
    let mut book = AuditWriter::default();
    book.restore(files.reader.load().await);
    assert!(book.unwritten().is_empty(), "it is on disk");
    decide(&mut book, Outcome::Denied, "a", 4);
    let audit = book.audit();
    let latest = audit.lines.get_max().unwrap().1.clone();
    assert_eq!((latest.count, latest.first.as_second(), latest.last.as_second()), (3, 1, 4));
    assert_eq!((audit.lines.len(), audit.forgotten), (2, 0));
}

#[tokio::test]
async fn a_disk_that_fails_holds_up_nothing_and_what_is_lost_is_counted() {
    let data = tempfile::tempdir().unwrap();
    let dir = data.path().join("audit");
    fs::write(&dir, "in the way").unwrap();
    let tasks = Tasks::new("test");
    let files = AuditFiles::start(&dir, &tasks);
    let mut book = AuditWriter::default();
    decide(&mut book, Outcome::Denied, "first", 1);
    assert!(book.flush(&files));
    // One batch may be taken while the first is being tried; from then on there is no room.
    let late = std::time::Instant::now() + Duration::from_secs(60);
    let mut second = 2;
    while {
        decide(&mut book, Outcome::Denied, "second", second);
        book.flush(&files)
    } {
        second += 1;
        assert!(std::time::Instant::now() < late);
    }
    for n in 0..MOST_VIOLATIONS + 10 {
        decide(&mut book, Outcome::Denied, &format!("flood-{n}"), 100);
    }
    assert_eq!(book.audit().lines.len(), MOST_VIOLATIONS);
    assert!(book.not_written() >= 10, "{}", book.not_written());

    fs::remove_file(&dir).unwrap();
    until("the disk is tried again", || !written(&dir).is_empty()).await;
    let late = std::time::Instant::now() + Duration::from_secs(60);
    while !book.flush(&files) {
        assert!(std::time::Instant::now() < late);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    until("what is left is on disk", || written(&dir).len() > MOST_VIOLATIONS).await;
}
