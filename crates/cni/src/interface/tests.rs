use super::*;

fn named(container: &str, ifname: &str) -> String {
    host_interface(&AttachmentKey { container: container.to_owned(), ifname: ifname.to_owned() })
}

#[test]
fn the_name_never_changes_between_versions() {
    // Interfaces of running pods are found by it after an upgrade.
    assert_eq!(named("example", "eth0"), "fl2mniunfwbsbl5");
}

#[test]
fn every_interface_of_a_container_has_its_own_name_and_is_known_as_ours() {
    let (eth0, eth1) = (named("example", "eth0"), named("example", "eth1"));
    assert_ne!(eth0, eth1);
    assert!(is_ours(&eth0) && is_ours(&eth1));
    for other in ["flannel.1", "fl", "eth0", "fl0000000000000", "flabcdefghijklmno"] {
        assert!(!is_ours(other), "{other}");
    }
}
