use super::*;

#[test]
fn what_was_mounted_goes_before_what_is_read_only_and_an_empty_directory_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let usual = Path::new(USUAL);
    assert_eq!(root(&dir.path().join("nothing"), usual), usual);
    assert_eq!(root(dir.path(), usual), usual);
    std::fs::create_dir(dir.path().join("ipv4")).unwrap();
    assert_eq!(root(dir.path(), usual), dir.path());
}

#[test]
fn a_sysctl_that_every_kernel_has_is_there() {
    assert!(net("ipv4/ip_forward").is_file());
}
