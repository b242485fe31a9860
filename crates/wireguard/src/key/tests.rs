#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use super::*;

#[test]
fn a_key_is_made_once_and_kept_for_its_owner_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wireguard/key");
    let file = KeyFile::new(&path);
    assert!(file.load().unwrap().is_none());
    let key = file.load_or_create().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(file.load_or_create().unwrap().public(), key.public());

    let next = PrivateKey::generate().unwrap();
    file.store(&next).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(file.load().unwrap().unwrap().public(), next.public());
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left over");
    file.remove().unwrap();
    file.remove().unwrap();
    assert!(file.load().unwrap().is_none());
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    let file = KeyFile::new(&path);
    file.load_or_create().unwrap();
    for mode in [0o640, 0o604, 0o660] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let refused = file.load().unwrap_err();
        assert!(matches!(refused, KeyFileError::Exposed(_, is) if is == mode), "{refused}");
    }
}

#[test]
fn a_file_without_a_key_is_named_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    for text in [
        "",
        "AAAA",
        "not a key, by far not one, and longer than any key would ever be, or its file",
    ] {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let refused = KeyFile::new(&path).load_or_create().unwrap_err();
        assert!(matches!(refused, KeyFileError::Malformed(..)), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn secrets_are_not_shown() {
    let key = PrivateKey::generate().unwrap();
    let shared = PresharedKey::generate().unwrap();
    let shown = format!("{key:?} {shared:?}");
    assert!(!shown.contains(&key.to_base64()) && !shown.contains(&shared.to_base64()), "{shown}");
    assert!(shown.contains(&key.public().to_string()));
}

#[test]
fn wg_derives_the_same_public_key() {
    testkit::requires!(wireguard);
    let key = PrivateKey::generate().unwrap();
    let mut wg = Command::new("wg");
    let piped = wg.arg("pubkey").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut wg = piped.spawn().unwrap();
    writeln!(wg.stdin.take().unwrap(), "{}", key.to_base64()).unwrap();
    let said = String::from_utf8(wg.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(said.trim(), key.public().to_string());
}
