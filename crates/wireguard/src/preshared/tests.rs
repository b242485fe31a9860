#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

fn written(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    (directory, path)
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn each_key_is_used_from_its_time_on() {
    let [first, second] = [1, 2].map(|_| PresharedKey::generate().unwrap());
    let text =
        format!("# ours\n\n{} 2027-01-10T03:00:00Z\n{}\n", second.to_base64(), first.to_base64());
    let (_directory, path) = written(&text, 0o400);
    let keys = PresharedKeys::load(&path).unwrap();
    assert_eq!(keys.at(time("2027-01-10T02:59:59Z")), Some(&first));
    assert_eq!(
        keys.until_next(time("2027-01-10T02:59:59Z")),
        Some(Duration::from_secs(1)),
        "the agent looks again when the next one is due"
    );
    assert_eq!(keys.at(time("2027-01-10T03:00:00Z")), Some(&second));
    assert_eq!(keys.until_next(time("2027-01-10T03:00:00Z")), None);
}

#[test]
fn before_the_first_time_there_is_none() {
    let key = PresharedKey::generate().unwrap();
    let text = format!("{} 2027-01-10T03:00:00Z", key.to_base64());
    let (_directory, path) = written(&text, 0o600);
    let keys = PresharedKeys::load(&path).unwrap();
    assert_eq!(keys.at(time("2026-12-31T00:00:00Z")), None);
    assert!(keys.until_next(time("2026-12-31T00:00:00Z")).is_some());
}

#[test]
fn what_is_no_key_is_never_no_key_at_all() {
    let key = PresharedKey::generate().unwrap().to_base64();
    let malformed = [
        ("AAAA".to_owned(), 1),
        (format!("{key}\n{key} at noon"), 2),
        (format!("{key} 2027-01-10"), 1),
        (format!("{key} 2027-01-10T03:00:00Z and more"), 1),
    ];
    for (text, at) in malformed {
        let (_directory, path) = written(&text, 0o600);
        let refused = PresharedKeys::load(&path).unwrap_err();
        assert!(
            matches!(refused, PresharedKeysError::Malformed { line, .. } if line == at),
            "{refused}"
        );
        assert!(!refused.to_string().contains(&key), "a key is not shown");
    }
    for text in ["", "# none\n", &"#".repeat(20_000)] {
        let (_directory, path) = written(text, 0o600);
        let refused = PresharedKeys::load(&path).unwrap_err();
        assert!(matches!(refused, PresharedKeysError::NoKey(_)), "{refused}");
    }
    let (directory, path) = written(&key, 0o640);
    let refused = PresharedKeys::load(&path).unwrap_err();
    assert!(matches!(refused, PresharedKeysError::Exposed(_, 0o640)), "{refused}");
    let absent = PresharedKeys::load(&directory.path().join("absent")).unwrap_err();
    assert!(matches!(absent, PresharedKeysError::Read(..)), "{absent}");
}
