use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use kube::core::{ApiResource, DynamicObject};
use serde_json::json;

use super::super::state::State;
use super::{Disk, OpenError};
use crate::store::{Expected, Id, Operation, Type};

fn put(disk: &Disk, state: &mut State, name: &str, spec: &str) {
    let resource = ApiResource {
        group: "test".to_owned(),
        version: "v1".to_owned(),
        api_version: "test/v1".to_owned(),
        kind: "Thing".to_owned(),
        plural: "things".to_owned(),
    };
    let of = Type { resource, namespaced: false, kind: "Thing" };
    let object = json!({ "metadata": { "name": name }, "spec": spec });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let mut writes = Vec::new();
    let operation = Operation::Apply(object, Expected::Any);
    state.run(&of, operation, Timestamp::UNIX_EPOCH, &mut writes).unwrap();
    disk.commit(state.revision(), &writes).unwrap();
}

fn contents(state: &State) -> Vec<(Id, DynamicObject)> {
    state.objects().map(|(_, id, object)| (id.clone(), object.clone())).collect()
}

/// A store with some objects in it, closed or, as `kill -9` leaves it, not; and what is in it.
fn filled(dir: &Path, closed: bool) -> (Vec<u8>, State) {
    let (disk, mut state) = Disk::open(dir).unwrap();
    for i in 0..40 {
        put(&disk, &mut state, &format!("n{}", i % 30), &format!("{i} {}", "x".repeat(i * 20)));
    }
    let file = disk.file().to_owned();
    let unclosed = fs::read(&file).unwrap();
    drop(disk);
    (if closed { fs::read(file).unwrap() } else { unclosed }, state)
}

fn reopen(bytes: &[u8]) -> Result<State, OpenError> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("objects.redb"), bytes).unwrap();
    Disk::open(dir.path()).map(|(_, state)| state)
}

#[test]
fn what_was_committed_is_there_again_closed_or_not() {
    for closed in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (bytes, state) = filled(dir.path(), closed);
        let reopened = reopen(&bytes).unwrap();
        assert!(contents(&reopened) == contents(&state), "closed: {closed}");
        assert_eq!(reopened.revision(), state.revision());
    }
}

#[test]
fn damage_is_an_error_or_no_loss() {
    fastrand::seed(7);
    let mut refused = 0;
    for closed in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (bytes, state) = filled(dir.path(), closed);
        // Most of the file is free; damage is sought where there is something.
        let used: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
        let mut damage = |what: &str, damaged: &[u8]| match reopen(damaged) {
            Ok(reopened) => {
                assert!(contents(&reopened) == contents(&state), "{what}, closed: {closed}");
                assert_eq!(reopened.revision(), state.revision(), "{what}, closed: {closed}");
            }
            Err(OpenError::Damaged { .. }) => refused += 1,
            Err(error) => panic!("{what}, closed: {closed}: {error:?}"),
        };
        let anywhere = (0..150).map(|_| (used[fastrand::usize(..used.len())], fastrand::u8(..8)));
        // This byte has no checksum; its first bit is the one that nothing can be done about.
        let flags = (1..8).map(|bit| (9, bit));
        for (at, bit) in anywhere.chain(flags).filter(|flip| *flip != (9, 0)) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            damage(&format!("bit {bit} of byte {at}"), &flipped);
        }
        for _ in 0..30 {
            let length = fastrand::usize(..bytes.len());
            damage(&format!("cut at {length}"), &bytes[..length]);
        }
        damage("empty", &[]);
    }
    assert!(refused > 100, "{refused}: most of it must have been noticed");
}

#[test]
fn only_one_may_have_it_open_and_the_other_is_told_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let first = Disk::open(dir.path()).unwrap();
    let second = Disk::open(dir.path()).map(drop).unwrap_err();
    assert!(matches!(second, OpenError::InUse { .. }), "{second:?}");
    assert!(second.to_string().contains("objects.redb is in use"), "{second}");
    drop(first);
    Disk::open(dir.path()).unwrap();
}

#[test]
fn only_its_owner_can_read_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    drop(Disk::open(&data).unwrap());
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let file = data.join("objects.redb");
    assert_eq!((mode(data.clone()), mode(file.clone())), (0o700, 0o600));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    drop(Disk::open(&data).unwrap());
    assert_eq!(mode(file), 0o600);
}

#[test]
fn a_start_that_was_interrupted_leaves_nothing_in_the_way() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("objects.new"), "half a").unwrap();
    let (disk, state) = Disk::open(dir.path()).unwrap();
    assert_eq!(state.revision(), 0);
    drop(disk);
    assert!(!dir.path().join("objects.new").exists());
}

#[test]
fn a_format_of_the_future_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, _) = Disk::open(dir.path()).unwrap();
    let transaction = disk.begin().unwrap();
    transaction.open_table(super::NUMBERS).unwrap().insert("format", 2).unwrap();
    transaction.commit().unwrap();
    drop(disk);
    let refused = Disk::open(dir.path()).map(drop).unwrap_err();
    assert!(matches!(refused, OpenError::Format { found: 2, .. }), "{refused:?}");
}

#[test]
fn what_cannot_be_opened_says_which_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("data"), "a file, where a directory should be").unwrap();
    let refused = Disk::open(&dir.path().join("data")).map(drop).unwrap_err();
    assert!(matches!(refused, OpenError::Io { .. }), "{refused:?}");
    assert!(refused.to_string().contains("data/objects.redb"), "{refused}");
}
