use std::fs;

use super::*;

fn contexts(names: &[&str]) -> String {
    let contexts: Vec<_> =
        names.iter().map(|name| format!("{{name: {name}, context: {{cluster: c}}}}")).collect();
    format!(
        "clusters: [{{name: c, cluster: {{server: 'https://s'}}}}]\ncontexts: [{}]",
        contexts.join(", ")
    )
}

fn names(offers: &[Offer]) -> Vec<&str> {
    offers.iter().map(|offer| &*offer.name).collect()
}

/// Long enough from now that every file's time has settled.
fn later() -> SystemTime {
    SystemTime::now() + RACY * 2
}

#[test]
fn a_file_is_read_when_it_changes_and_not_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    let mut files = Files { paths: vec![path.clone()], ..Files::default() };
    assert_eq!(files.check(later()).map(|offers| offers.len()), Some(0));
    assert_eq!(files.check(later()), None);

    fs::write(&path, contexts(&["a", "b"])).unwrap();
    assert_eq!(names(&files.check(later()).unwrap()), ["a", "b"]);
    assert_eq!(files.check(later()), None);

    // As editors, `kubectl` and Kubernetes' volumes do it: another file takes its place.
    fs::write(dir.path().join("new"), contexts(&["a", "c"])).unwrap();
    fs::rename(dir.path().join("new"), &path).unwrap();
    assert_eq!(names(&files.check(later()).unwrap()), ["a", "c"]);

    fs::remove_file(&path).unwrap();
    assert!(files.check(later()).unwrap().is_empty());
}

#[test]
fn a_change_that_the_clock_of_the_file_system_hides_is_seen_by_the_next_look() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    let mut files = Files { paths: vec![path.clone()], ..Files::default() };
    fs::write(&path, contexts(&["a"])).unwrap();
    let at = fs::metadata(&path).unwrap().modified().unwrap();
    assert_eq!(names(&files.check(at).unwrap()), ["a"]);
    // The same size, inode and time.
    fs::write(&path, contexts(&["b"])).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(at).unwrap();
    assert_eq!(names(&files.check(later()).unwrap()), ["b"]);
}

#[test]
fn a_broken_file_is_shown_and_what_it_had_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (path, other) = (dir.path().join("config"), dir.path().join("other"));
    fs::write(&path, contexts(&["a"])).unwrap();
    fs::write(&other, contexts(&["z"])).unwrap();
    let mut files = Files { paths: vec![path.clone(), other], ..Files::default() };
    files.check(later()).unwrap();
    fs::write(&path, "contexts: [").unwrap();
    let offers = files.check(later()).unwrap();
    let shown = path.display().to_string();
    assert_eq!(names(&offers), ["a", "z", &shown]);
    assert!(offers[0].access.is_ok());
    let why = offers[2].access.clone().unwrap_err();
    assert!(why.contains("is not YAML") && why.ends_with("stay as they were"), "{why}");
    fs::write(&path, contexts(&["a", "b"])).unwrap();
    assert_eq!(names(&files.check(later()).unwrap()), ["a", "b", "z"]);
}

#[test]
fn a_file_that_is_being_saved_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    fs::write(&path, contexts(&["a"])).unwrap();
    let mut files = Files { paths: vec![path.clone()], ..Files::default() };
    files.check(later()).unwrap();
    fs::write(&path, "").unwrap();
    let now = fs::metadata(&path).unwrap().modified().unwrap();
    assert_eq!(names(&files.check(now).unwrap()), ["a"]);
    // It stays empty: then it is.
    assert!(files.check(later()).unwrap().is_empty());
}

#[test]
fn a_renewed_certificate_file_is_a_change() {
    let dir = tempfile::tempdir().unwrap();
    let (path, ca) = (dir.path().join("config"), dir.path().join("ca.pem"));
    let pem =
        |data: &str| format!("-----BEGIN CERTIFICATE-----\n{data}\n-----END CERTIFICATE-----\n");
    fs::write(&ca, pem("AQID")).unwrap();
    let text =
        contexts(&["a"]).replace("'https://s'", "'https://s', certificate-authority: ca.pem");
    fs::write(&path, text).unwrap();
    let mut files = Files { paths: vec![path], ..Files::default() };
    let before = files.check(later()).unwrap();
    assert_eq!(files.check(later()), None);
    fs::write(&ca, pem("BAUG")).unwrap();
    let after = files.check(later()).unwrap();
    assert_ne!(before, after);
    fs::remove_file(&ca).unwrap();
    let without = files.check(later()).unwrap();
    assert!(without[0].access.is_err());
}
