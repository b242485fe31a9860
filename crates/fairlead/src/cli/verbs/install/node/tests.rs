use super::*;

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn sysctls_that_hide_or_drop_are_warned_of() {
    assert_eq!(reverse_path(file("1\n").path()).verdict, Verdict::Warning);
    assert_eq!(reverse_path(file("2\n").path()).verdict, Verdict::Ok);
    assert_eq!(bridges(file("0\n").path()).verdict, Verdict::Warning);
    assert_eq!(bridges(Path::new("/does/not/exist")).verdict, Verdict::Ok);
    assert!(forwarding(file("0\n").path()).message.starts_with("off"));
}

#[test]
fn the_network_that_a_runtime_takes_is_named() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(networks(dir.path()).verdict, Verdict::Ok);
    fs::write(dir.path().join("05-calico.conflist"), "").unwrap();
    fs::write(dir.path().join("10-fairlead.conflist"), "").unwrap();
    let found = networks(dir.path());
    assert_eq!(found.verdict, Verdict::Warning);
    assert!(found.message.contains("05-calico.conflist of 2 networks"), "{}", found.message);
}

#[test]
fn what_the_kernel_lacks_says_what_to_load() {
    let absent = asked("nftables", Err(io::ErrorKind::Unsupported.into()), "load nf_tables");
    assert_eq!(absent.verdict, Verdict::Failure);
    assert!(absent.message.ends_with("load nf_tables"));
    let stranger = asked("nftables", Err(io::ErrorKind::PermissionDenied.into()), "");
    assert_eq!(stranger.verdict, Verdict::Warning);
}
