use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

fn sized(each: u64, files: usize) -> (tempfile::TempDir, PathBuf, Log) {
    let data = tempfile::tempdir().unwrap();
    let dir = data.path().join("audit");
    let log = Log::new(&dir, Size { each, files });
    (data, dir, log)
}

#[test]
fn only_its_owner_can_read_it() {
    let (_data, dir, mut log) = sized(1000, 3);
    log.append(b"one\n").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&dir), mode(&path(&dir, 0))), (0o700, 0o600));
}

#[test]
fn full_files_move_on_and_the_oldest_goes() {
    let (_data, dir, mut log) = sized(10, 3);
    for line in ["1 long\n", "2 long\n", "3 long\n", "4 long\n", "5\n"] {
        log.append(line.as_bytes()).unwrap();
    }
    let content = |n| fs::read_to_string(path(&dir, n)).unwrap();
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
    let mut file = OpenOptions::new().append(true).open(path(&dir, 0)).unwrap();
    file.write_all(b"{\"half").unwrap();
    let mut next = Log::new(&dir, log.size);
    next.append(b"two\n").unwrap();
    assert_eq!(fs::read_to_string(path(&dir, 0)).unwrap(), "one\n{\"half\ntwo\n");
}

#[test]
fn a_rotation_that_was_cut_off_is_gone_on_with() {
    let (_data, dir, mut log) = sized(10, 4);
    for line in ["1 long\n", "2 long\n", "3 long\n"] {
        log.append(line.as_bytes()).unwrap();
    }
    // As a crash leaves it: the oldest has moved, the next one not yet.
    fs::rename(path(&dir, 2), path(&dir, 3)).unwrap();
    let mut next = Log::new(&dir, log.size);
    next.append(b"4 long\n").unwrap();
    let all: Vec<_> = (0..4).filter_map(|n| fs::read_to_string(path(&dir, n)).ok()).collect();
    assert_eq!(all, ["4 long\n", "3 long\n", "2 long\n"]);
}
