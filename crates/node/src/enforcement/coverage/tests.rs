#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use kernel::netns::Namespace;
use testkit::requires;

use super::*;

/// Runs commands in a namespace of its own, with the `sysfs` of that namespace, and looks.
fn looked(commands: &[&str], network: PodNetwork) -> Vec<Bypass> {
    let namespace = Namespace::create().unwrap();
    let look = || {
        for command in commands {
            let done = Command::new("sh").args(["-c", command]).output().unwrap();
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "{command}: {said}");
        }
        bypasses(network).unwrap()
    };
    namespace.run_in(look).unwrap()
}

#[test]
fn datapaths_that_bypass_netfilter_are_named_by_their_links() {
    requires!(netns);
    let cilium = looked(&["ip link add cilium_host type veth peer cilium_net"], PodNetwork::Own);
    assert_eq!(cilium.len(), 2, "{cilium:?}");
    assert!(cilium[0].to_string().starts_with("Cilium forwards packets by eBPF"), "{cilium:?}");
    let calico =
        looked(&["ip link add bpfin.cali type veth peer bpfout.cali"], PodNetwork::Foreign);
    assert!(matches!(&calico[0], Bypass::Ebpf { plugin: "Calico's eBPF datapath", .. }));
    let macvlan = [
        "ip link add eth0 type veth peer eth1",
        "ip link add link eth0 name pod0 type macvlan mode bridge",
    ];
    let found = looked(&macvlan, PodNetwork::Foreign);
    let expected = Bypass::Sublink { kind: "macvlan".to_owned(), link: "pod0".to_owned() };
    assert_eq!(found, [expected]);
    // Pods of our own network are on none of these.
    assert_eq!(looked(&macvlan, PodNetwork::Own), []);
}

#[test]
fn a_node_with_veths_alone_has_no_bypass() {
    requires!(netns);
    let veths = ["ip link add pod0 type veth peer eth0", "ip link add br0 type bridge"];
    for network in [PodNetwork::Own, PodNetwork::Foreign] {
        assert_eq!(looked(&veths, network), []);
    }
}
