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

/// The names that Calico's own code gives: `echo -n NAMESPACE.NAME | sha1sum`.
#[test]
fn a_pod_is_named_as_calico_names_it() {
    let key = |ifname: &str| AttachmentKey { container: "c".to_owned(), ifname: ifname.to_owned() };
    let named = |namespace: &str, name: &str, ifname| {
        let pod = Pod { namespace: namespace.to_owned(), name: name.to_owned(), uid: None };
        calico_interface(&key(ifname), Some(&pod))
    };
    assert_eq!(named("default", "web-0", "eth0").unwrap(), "cali0d7763386da");
    assert_eq!(named("kube-system", "coredns-74ff55c5b-abcde", "eth0").unwrap(), "calid61dd55837b");
    // A second interface of the pod would have the name of the first.
    assert_eq!(named("default", "web-0", "net1"), None);
    assert_eq!(calico_interface(&key("eth0"), None), None);
    assert!(!is_ours("cali0d7763386da"));
}
