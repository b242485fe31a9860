use std::time::{Duration, Instant};
use std::{fs, thread};

use super::*;

fn text_in(path: &Path) -> String {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            _ if Instant::now() > deadline => panic!("{} stays empty", path.display()),
            _ => thread::sleep(Duration::from_millis(10)),
        }
    }
}

#[test]
fn a_dropped_leash_has_killed_its_program() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let args = ["-c", "echo $$; exec sleep 1000"].map(str::to_owned);
    let mut leash = Leash::run(Path::new("sh"), &args, dir.path(), &log).unwrap();
    let process = Path::new("/proc").join(text_in(&log));

    assert!(process.exists());
    assert!(leash.ended().unwrap().is_none());
    drop(leash);
    assert!(!process.exists());
}

#[test]
fn a_program_that_ends_by_itself_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let args = ["-c", "exit 7"].map(str::to_owned);
    let mut leash = Leash::run(Path::new("sh"), &args, dir.path(), &log).unwrap();

    assert_eq!(leash.shell.wait().unwrap().code(), Some(7));
    assert_eq!(leash.ended().unwrap().unwrap().code(), Some(7));
}

#[test]
fn the_last_duty_is_done_when_drop_returns_and_not_before() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("mark");
    let leash = Leash::finally(r#"echo done >"$1""#, &[mark.to_str().unwrap()]).unwrap();

    assert!(!mark.exists());
    drop(leash);
    assert_eq!(text_in(&mark), "done");
}
