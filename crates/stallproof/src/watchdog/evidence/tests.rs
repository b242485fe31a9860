// clippy takes a module for a test only under a plain `cfg(test)`.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc;

use super::*;

/// Reached only by a test that fails.
const PATIENT: Duration = Duration::from_secs(60);

fn events(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_event_is_a_private_directory_with_a_file_per_source() {
    let dir = tempfile::tempdir().unwrap();
    let evidence = Evidence::new(dir.path().join("evidence"));
    evidence.source("ledger.json", || b"[1]".to_vec());
    evidence.source("stacks.txt", || b"main".to_vec());
    let path = evidence.save("stalled-main/worker 1").unwrap().wait(PATIENT).unwrap();
    assert!(path.to_string_lossy().ends_with("Z-stalled-main-worker-1"), "{path:?}");
    assert_eq!(fs::read(path.join("ledger.json")).unwrap(), b"[1]");
    assert_eq!(fs::read(path.join("stacks.txt")).unwrap(), b"main");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&path.join("ledger.json")), 0o600);
}

#[test]
fn a_source_that_hangs_or_panics_costs_only_its_own_file() {
    let dir = tempfile::tempdir().unwrap();
    let evidence = Evidence::answering_within(dir.path().into(), Duration::from_secs(2));
    let (_release, hang) = mpsc::channel::<()>();
    let hang = std::sync::Mutex::new(hang);
    evidence.source("hangs", move || {
        let _ = hang.lock().unwrap().recv();
        Vec::new()
    });
    evidence.source("panics", || panic!("on purpose"));
    evidence.source("answers", || b"here".to_vec());
    let path = evidence.save("test").unwrap().wait(PATIENT).unwrap();
    let read = |name| fs::read_to_string(path.join(name)).unwrap();
    assert!(read("hangs").starts_with("no answer"));
    assert!(read("panics").starts_with("no answer"));
    assert_eq!(read("answers"), "here");
}

#[test]
fn a_long_answer_is_cut_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let evidence = Evidence::new(dir.path());
    evidence.source("big", || vec![b'x'; BYTES_PER_SOURCE + 1]);
    let path = evidence.save("test").unwrap().wait(PATIENT).unwrap();
    let text = fs::read(path.join("big")).unwrap();
    assert!(text.len() < BYTES_PER_SOURCE + 100);
    assert!(text.ends_with(b"bytes in all]\n"));
}

#[test]
fn a_reason_is_saved_once_in_a_while_and_another_one_is_not_held_up() {
    let dir = tempfile::tempdir().unwrap();
    let evidence = Evidence::new(dir.path());
    evidence.save("first").unwrap().wait(PATIENT).unwrap();
    assert!(evidence.save("first").is_none());
    evidence.save("second").unwrap().wait(PATIENT).unwrap();
    assert_eq!(events(dir.path()).len(), 2);
}

#[test]
fn a_directory_that_cannot_be_written_is_survived() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let evidence = Evidence::new(file.join("evidence"));
    assert_eq!(evidence.save("test").unwrap().wait(PATIENT), None);
    // And the next one is tried.
    assert!(evidence.save("other").is_some());
}

#[test]
fn what_a_killed_process_left_unfinished_is_cleared_away() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join(UNFINISHED)).unwrap();
    fs::write(dir.path().join(UNFINISHED).join("ledger.json"), "half").unwrap();
    let evidence = Evidence::new(dir.path());
    evidence.source("ledger.json", || b"whole".to_vec());
    let path = evidence.save("test").unwrap().wait(PATIENT).unwrap();
    assert_eq!(fs::read(path.join("ledger.json")).unwrap(), b"whole");
    assert_eq!(events(dir.path()).len(), 1);
}

#[test]
fn old_events_go_but_foreign_files_stay() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("notes.txt"), "mine").unwrap();
    for hour in 0..KEEP {
        fs::create_dir(dir.path().join(format!("20200101T{hour:02}0000.000Z-stalled"))).unwrap();
    }
    let evidence = Evidence::new(dir.path());
    evidence.save("other").unwrap().wait(PATIENT).unwrap();
    let left = events(dir.path());
    assert_eq!(left.len(), KEEP + 1);
    assert!(left.contains(&"notes.txt".to_owned()));
    assert!(left.contains(&"20200101T000000.000Z-stalled".to_owned()), "the first of its series");
    assert!(!left.contains(&"20200101T010000.000Z-stalled".to_owned()), "the one after it");
}

#[test]
fn the_count_is_bounded_even_if_every_event_begins_a_series() {
    let names: Vec<String> =
        (1..=28).map(|day| format!("202001{day:02}T000000.000Z-stalled")).collect();
    let surplus = surplus(&names);
    assert_eq!(names.len() - surplus.len(), KEEP);
    assert_eq!(surplus[0], &names[0], "the oldest goes first");
    assert!(!surplus.contains(&&names[27]));
}
