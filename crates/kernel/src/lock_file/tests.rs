use super::*;

#[test]
fn the_second_is_refused_and_told_who_holds_it() {
    let dir = tempfile::tempdir().unwrap();
    let held = LockFile::take(dir.path()).unwrap();
    let error = LockFile::take(dir.path()).unwrap_err();
    let Error::Held { holder, .. } = &error else { panic!("{error}") };
    assert_eq!(*holder, Some(std::process::id()));
    assert!(error.to_string().contains("choose another directory"), "{error}");
    drop(held);
    LockFile::take(dir.path()).unwrap();
}

#[test]
fn what_a_dead_process_left_behind_holds_nobody_up() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(NAME), "4194304999 a longer line than ours\n").unwrap();
    let _held = LockFile::take(dir.path()).unwrap();
    let text = std::fs::read_to_string(dir.path().join(NAME)).unwrap();
    assert_eq!(text, format!("{}\n", std::process::id()));
}

#[test]
fn a_directory_that_is_not_there_is_an_error_that_names_it() {
    let error = LockFile::take(Path::new("/nonexistent")).unwrap_err();
    assert!(matches!(&error, Error::Io { .. }));
    assert!(error.to_string().contains("/nonexistent"));
}
