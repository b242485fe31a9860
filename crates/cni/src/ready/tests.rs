use std::os::unix::fs::MetadataExt;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_mark_holds_until_its_grace_is_over_or_it_is_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("cni.sock");
    assert!(!holds(&socket), "nobody has marked it");
    mark(&socket, MINUTE).unwrap();
    assert!(holds(&socket));
    assert_eq!(fs::metadata(mark_path(&socket)).unwrap().mode() & 0o777, 0o600);
    unmark(&socket).unwrap();
    assert!(!holds(&socket));
    unmark(&socket).unwrap();
    mark(&socket, Duration::ZERO).unwrap();
    assert!(!holds(&socket));
    assert!(mark(&dir.path().join("none/cni.sock"), MINUTE).is_err());
}

#[test]
fn a_mark_of_another_boot_or_from_too_far_ahead_does_not_hold() {
    let now = Duration::from_secs(1000);
    assert!(is_current("boot-a 1060000\n", "boot-a", now));
    assert!(!is_current("boot-a 1060000\n", "boot-b", now), "another boot");
    assert!(!is_current("boot-a 1000000\n", "boot-a", now), "over");
    assert!(!is_current("boot-a 999999\n", "boot-a", now), "over");
    assert!(!is_current("boot-a 1601000\n", "boot-a", now), "no agent marks that far ahead");
    for damaged in ["", "boot-a", "boot-a ", "boot-a -5", "boot-a x", "boot-a 1060000 more"] {
        assert!(!is_current(damaged, "boot-a", now), "{damaged:?}");
    }
}
