//! `kill -9` at any instant: the key file holds the key that was stored last, whole, and nobody else may read it.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use testkit::{acknowledge, killed};
use wireguard::{KeyFile, PrivateKey};

fn key_file(dir: &Path) -> KeyFile {
    KeyFile::new(dir.join("wireguard.key"))
}

/// Stores one key after the other: `?` is about to be stored, `+` is.
fn write(dir: &Path, _: u64) {
    let file = key_file(dir);
    loop {
        let key = PrivateKey::generate().unwrap();
        acknowledge(format_args!("? {}", key.public()));
        file.store(&key).unwrap();
        acknowledge(format_args!("+ {}", key.public()));
    }
}

#[test]
fn a_stored_key_survives_kill_9() {
    let mut last: Option<String> = None;
    killed("a_stored_key_survives_kill_9", write, |dir, killed| {
        let mut next = None;
        for line in &killed.acknowledged {
            match line.split_once(' ') {
                Some(("?", key)) => next = Some(key.to_owned()),
                Some(("+", key)) => (last, next) = (Some(key.to_owned()), None),
                _ => panic!("{line}"),
            }
        }
        let found = key_file(dir).load().unwrap().map(|key| key.public().to_string());
        assert!(found == last || (found.is_some() && found == next), "life {}", killed.life);
        if found.is_some() {
            let mode = dir.join("wireguard.key").metadata().unwrap().mode() & 0o777;
            assert_eq!(mode, 0o600);
        }
        // What was cut off is stored all the same, or is not.
        last = found;
    });
}
