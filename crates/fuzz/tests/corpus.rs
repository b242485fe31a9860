//! What the fuzzer kept is run by every target in every CI run.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;

use fuzz::{TARGETS, Target, corpus};

/// One test: what is allocated is counted for the whole process.
#[test]
fn targets_hold_for_every_input_that_was_kept() {
    for target in TARGETS {
        target.check(b"");
        let inputs = corpus::read(target.name).unwrap();
        assert!(!inputs.is_empty(), "{} has no corpus: make fuzz TARGET={0}", target.name);
        for input in inputs {
            assert!(input.len() <= target.longest, "{}: {} bytes", target.name, input.len());
            target.check(&input);
        }
    }
    a_length_that_is_believed_is_found();
}

/// The checker can fail.
fn a_length_that_is_believed_is_found() {
    let believes = |bytes: &[u8]| drop(Vec::<u8>::with_capacity(usize::from(bytes[0]) << 20));
    let target = Target { name: "planted", run: believes, longest: 8, memory: 16 };
    target.check(&[0]);
    let found = std::panic::catch_unwind(|| target.check(&[200]));
    assert!(found.is_err(), "200 MiB for one byte were not found");
}

#[test]
fn every_corpus_has_its_target() {
    let files = fs::read_dir(corpus::path("any").parent().unwrap()).unwrap();
    let names = files.map(|file| file.unwrap().path().file_stem().unwrap().to_owned());
    let names: BTreeSet<String> = names.map(|name| name.into_string().unwrap()).collect();
    let targets: BTreeSet<String> = TARGETS.iter().map(|it| it.name.to_owned()).collect();
    assert_eq!(targets.len(), TARGETS.len(), "two targets have one name");
    assert_eq!(names, targets);
}
