use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

const NAME: &str = "audit";

fn sized(each: u64, files: usize) -> (tempfile::TempDir, PathBuf, LineLog) {
    let data = tempfile::tempdir().unwrap();
    let dir = data.path().join("audit");
    let log = LineLog::new(&dir, NAME, LogSize { each, files });
    (data, dir, log)
}

#[test]
fn only_its_owner_can_read_it() {
    let (_data, dir, mut log) = sized(1000, 3);
    log.append(b"one\n").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&dir), mode(&path(&dir, NAME, 0))), (0o700, 0o600));
}

#[test]
fn full_files_move_on_and_the_oldest_goes() {
    let (_data, dir, mut log) = sized(10, 3);
    for line in ["1 long\n", "2 long\n", "3 long\n", "4 long\n", "5\n"] {
        log.append(line.as_bytes()).unwrap();
    }
    let content = |n| fs::read_to_string(path(&dir, NAME, n)).unwrap();
    assert_eq!([content(0), content(1), content(2)], ["4 long\n5\n", "3 long\n", "2 long\n"]);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 3);
    // A line that is longer than a file is still written whole.
    log.append(b"much longer than that\n").unwrap();
    assert_eq!(content(0), "much longer than that\n");
}

#[test]
fn half_a_line_spoils_no_other() {
    let (_data, dir, mut log) = sized(1000, 3);
    log.append(b"one\n").unwrap();
    let mut file = OpenOptions::new().append(true).open(path(&dir, NAME, 0)).unwrap();
    file.write_all(b"{\"half").unwrap();
    let mut next = LineLog::new(&dir, NAME, log.size);
    next.append(b"two\n").unwrap();
    assert_eq!(fs::read_to_string(path(&dir, NAME, 0)).unwrap(), "one\n{\"half\ntwo\n");
}

#[test]
fn a_rotation_that_was_cut_off_is_gone_on_with() {
    let (_data, dir, mut log) = sized(10, 4);
    for line in ["1 long\n", "2 long\n", "3 long\n"] {
        log.append(line.as_bytes()).unwrap();
    }
    // As a crash leaves it: the oldest has moved, the next one not yet.
    fs::rename(path(&dir, NAME, 2), path(&dir, NAME, 3)).unwrap();
    let mut next = LineLog::new(&dir, NAME, log.size);
    next.append(b"4 long\n").unwrap();
    let all: Vec<_> = (0..4).filter_map(|n| fs::read_to_string(path(&dir, NAME, n)).ok()).collect();
    assert_eq!(all, ["4 long\n", "3 long\n", "2 long\n"]);
}

/// All lines from one place on, a few at a time, as they are.
fn onwards(dir: &Path, mut after: Option<LogPosition>, each: usize) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let mut few = 0;
        after = oldest_first(dir, NAME, after, |line| {
            all.push(String::from_utf8(line.to_vec()).unwrap());
            few += 1;
            few < each
        })
        .unwrap();
        let Some(position) = after else { return all };
        assert_eq!(position.to_string().parse(), Ok(position));
    }
}

#[test]
fn lines_are_read_from_both_ends_over_all_files() {
    let (_data, dir, mut log) = sized(10, 4);
    let lines: Vec<_> = (0..8).map(|n| format!("line {n}")).collect();
    for line in &lines {
        log.append(format!("{line}\n").as_bytes()).unwrap();
    }
    let kept = &lines[4..];
    assert_eq!(onwards(&dir, None, 1), kept);
    assert_eq!(onwards(&dir, None, 3), kept);
    let mut backwards = Vec::new();
    let all = newest_first(&dir, NAME, |line| {
        backwards.push(String::from_utf8(line.to_vec()).unwrap());
        true
    });
    assert!(all.unwrap());
    backwards.reverse();
    assert_eq!(backwards, kept);
    assert!(!newest_first(&dir, NAME, |_| false).unwrap());
}

#[test]
fn a_rotation_between_two_pages_skips_nothing() {
    let (_data, dir, mut log) = sized(10, 4);
    for line in ["1 long\n", "2 long\n"] {
        log.append(line.as_bytes()).unwrap();
    }
    let first = oldest_first(&dir, NAME, None, |_| false).unwrap();
    assert!(first.is_some());
    log.append(b"3 long\n").unwrap();
    assert_eq!(onwards(&dir, first, 1), ["2 long", "3 long"]);
    // The file that it was in is deleted: what is left follows.
    for line in ["4 long\n", "5 long\n", "6 long\n"] {
        log.append(line.as_bytes()).unwrap();
    }
    assert_eq!(onwards(&dir, first, 1), ["3 long", "4 long", "5 long", "6 long"]);
}

#[test]
fn a_line_that_is_being_written_is_left_for_later_and_one_too_long_is_passed_over() {
    let (_data, dir, mut log) = sized(1 << 20, 2);
    log.append(b"one\n").unwrap();
    log.append(format!("{}\n", "x".repeat(2 * LONGEST + 5)).as_bytes()).unwrap();
    log.append(b"two\n").unwrap();
    let mut file = OpenOptions::new().append(true).open(path(&dir, NAME, 0)).unwrap();
    file.write_all(b"{\"half").unwrap();
    let lines = onwards(&dir, None, 1);
    // The end of the long one is a line that no reader understands.
    assert_eq!((lines.len(), &*lines[0], &*lines[1], &*lines[2]), (3, "one", "xxxxx", "two"));
}
