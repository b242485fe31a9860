use std::collections::HashSet;

use super::*;

fn named(container: &str, ifname: &str) -> String {
    host_interface(&Name { container: container.to_owned(), ifname: ifname.to_owned() })
}

#[test]
fn the_name_never_changes_between_versions() {
    // Interfaces of running pods are found by it after an upgrade.
    assert_eq!(named("example", "eth0"), "flej54dsujdg0t1");
    assert_eq!(named("example", "eth1").len(), 15);
}

#[test]
fn attachments_have_names_of_their_own() {
    let mut names = HashSet::new();
    for number in 0..20_000 {
        for ifname in ["eth0", "net1"] {
            assert!(names.insert(named(&format!("{number:064x}"), ifname)));
        }
    }
}
