#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use kernel::netns::Namespace;
use testkit::requires;

use super::*;

/// Runs commands in a namespace of its own, then looks there.
fn looked<T: Send>(commands: &[&str], look: impl FnOnce() -> io::Result<T> + Send) -> T {
    let namespace = Namespace::create().unwrap();
    let look = || {
        for command in commands {
            let done = Command::new("sh").args(["-c", command]).output().unwrap();
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "{command}: {said}");
        }
        look().unwrap()
    };
    namespace.run_in(look).unwrap()
}

#[test]
fn datapaths_by_ebpf_are_named_by_their_links() {
    requires!(netns);
    let cilium = looked(&["ip link add cilium_host type veth peer cilium_net"], of_node);
    assert_eq!(cilium.len(), 2, "{cilium:?}");
    assert!(cilium[0].to_string().starts_with("Cilium forwards packets by eBPF"), "{cilium:?}");
    let calico = looked(&["ip link add bpfin.cali type veth peer bpfout.cali"], of_node);
    assert!(matches!(&calico[0], Bypass::Ebpf { plugin: "Calico's eBPF datapath", .. }));
    let veths = ["ip link add pod0 type veth peer eth0", "ip link add br0 type bridge"];
    assert_eq!(looked(&veths, of_node), []);
}

#[test]
fn the_way_to_a_pod_says_whether_netfilter_sees_it() {
    requires!(netns);
    let commands = [
        "ip link add pod0 type veth peer eth0",
        "ip link set pod0 up; ip link set eth0 up",
        "ip route add 10.0.0.1 dev pod0",
        "ip link add link eth0 name sub type macvlan mode bridge; ip link set sub up",
        "ip route add 10.0.1.0/24 dev sub",
        "ip -6 route add fd00:1::/64 dev sub",
    ];
    let pods = ["10.0.0.1", "10.0.1.1", "fd00:1::1", "10.0.2.1"];
    let pods = pods.map(|address| (address.parse().unwrap(), "shop/web"));
    let found = looked(&commands, || of_pods(pods));
    let reasons: Vec<_> = found.iter().map(|it| it.bypass.clone()).collect();
    let macvlan = Bypass::Link { kind: Some("macvlan".to_owned()), link: "sub".to_owned() };
    assert_eq!(reasons, [macvlan, Bypass::NoRoute]);
    let said = found[0].to_string();
    assert!(said.starts_with("shop/web is not judged: the way to its pods is sub, a macvlan"));
}
