use std::path::Path;
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
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$; exec sleep 1000"]);
    let mut leash = Leash::run(&command, File::create(&log).unwrap()).unwrap();
    let process = Path::new("/proc").join(text_in(&log));

    assert!(process.exists());
    assert!(leash.ended().unwrap().is_none());
    drop(leash);
    assert!(!process.exists());
}

#[test]
fn a_program_runs_where_it_should_and_its_end_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "[ $PWD = $HERE ] && exit 7"]).current_dir(&dir).env("HERE", dir.path());
    let mut leash = Leash::run(&command, tempfile::tempfile().unwrap()).unwrap();

    let ended = loop {
        match leash.ended().unwrap() {
            Some(ended) => break ended,
            None => thread::sleep(Duration::from_millis(10)),
        }
    };
    assert_eq!(ended.code(), Some(7));
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
