//! Pods of the reference plugins `ptp` and `bridge`, which masquerade them: real programs, real packets.

use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use kernel::netns::Namespace;
use objects::kinds::SessionAffinity;
use serde_json::{Value, json};
use testkit::requires;

use super::super::tests::{WORLD, World, connect, echo, ip, is_cut_off, seen_by};
use super::super::{EgressDevice, PORT, apply, mac_of, plan_on};
use super::*;
use crate::overlay::DeviceSettings;
use crate::tests::pods::reaches;

const PLUGINS: &str = "/usr/lib/cni";

/// A pod that a plugin connected.
struct Connected {
    inside: Namespace,
    addresses: Vec<IpAddr>,
}

/// Has the plugin connect a new pod on the node, as a runtime does.
fn connected(on: &Namespace, plugin: &str, subnets: [&str; 2], dir: &Path) -> Connected {
    let inside = Namespace::create().unwrap();
    let netns = format!("/proc/{}/fd/{}", std::process::id(), inside.as_fd().as_raw_fd());
    let configuration = json!({
        "cniVersion": "1.0.0", "name": plugin, "type": plugin, "ipMasq": true,
        "isGateway": true, "bridge": "cni0",
        "ipam": {
            "type": "host-local", "dataDir": dir,
            "ranges": subnets.map(|subnet| [json!({ "subnet": subnet })]),
            "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }],
        },
    });
    let run = || {
        let mut command = Command::new(Path::new(PLUGINS).join(plugin));
        command.env("CNI_COMMAND", "ADD").env("CNI_CONTAINERID", format!("of-{plugin}"));
        command.env("CNI_NETNS", &netns).env("CNI_IFNAME", "eth0").env("CNI_PATH", PLUGINS);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(configuration.to_string().as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let output = on.run_in(run).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{plugin}: {said}");
    let result: Value = serde_json::from_str(&said).unwrap();
    let address = |ip: &Value| ip["address"].as_str().unwrap().parse::<IpNet>().unwrap().addr();
    let addresses = result["ips"].as_array().unwrap().iter().map(address).collect();
    Connected { inside, addresses }
}

fn id(name: &str) -> Id {
    Id::namespaced("shop", name)
}

fn pods(them: &[(&str, &Connected, &[&str])]) -> Pods {
    let pod = |(name, pod, egresses): &(&str, &Connected, &[&str])| {
        let egresses = egresses.iter().map(|it| (*it).to_owned()).collect();
        (id(name), ForeignPod { addresses: pod.addresses.clone(), egresses, ending: false })
    };
    them.iter().map(pod).collect()
}

/// What the reconciler does once.
fn follow(world: &mut World, pods: Pods) -> Vec<Bypass> {
    let networks = ["10.1.0.0/16", "10.2.0.0/16", "fd00:1::/32", "fd00:2::/32"];
    let networks = networks.map(|net| net.parse().unwrap()).into();
    let seen = ForeignPods { pods: Snapshot::new(pods), networks }.look().unwrap();
    let node = world.node().clone();
    let mac = mac_of("a", &[[10, 0, 0, 1].into()]);
    let device = EgressDevice { mac, settings: DeviceSettings { port: PORT, mtu: 1430 } };
    let mut bypasses = Vec::new();
    world.inputs.clients = seen.clients();
    seen.read_node(&node, &mut world.inputs, &mut bypasses).unwrap();
    let device = device.fitted(&node, &world.inputs).unwrap();
    let program = plan_on(&world.inputs, &mut world.numbers, || device.ensure(&node)).unwrap();
    apply(&node, &program, &mut world.table, PORT).unwrap();
    node.namespace().run_in(|| seen.settle()).unwrap().unwrap();
    bypasses
}

#[test]
fn pods_of_ptp_and_bridge_leave_by_egresses_and_by_nothing_else_before_they_are_known() {
    requires!(netns, nft, cni_plugins);
    let mut world = World::new().with_egress(SessionAffinity::ClientIp);
    let egresses = std::mem::take(&mut world.inputs.egresses);
    let dir = tempfile::tempdir().unwrap();
    let on = world.node().namespace();
    let ptp = connected(on, "ptp", ["10.1.8.0/24", "fd00:1:8::/64"], &dir.path().join("ptp"));
    let bridged =
        connected(on, "bridge", ["10.1.9.0/24", "fd00:1:9::/64"], &dir.path().join("bridge"));
    let node: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
    for (to, node) in WORLD.iter().zip(node) {
        assert_eq!(seen_by(&ptp.inside, to), node, "the plugin masquerades");
        assert_eq!(seen_by(&bridged.inside, to), node);
    }
    // Pods are there, and nobody has told of them: what an egress means is closed to them, and pods are not.
    world.inputs.egresses = egresses;
    follow(&mut world, pods(&[]));
    let replicas = world.all_replicas();
    for pod in [&ptp, &bridged] {
        assert!(WORLD.iter().all(|to| is_cut_off(&pod.inside, to)));
        assert!(replicas.iter().all(|replica| reaches(&pod.inside, *replica)));
    }
    // One is told of, and chose nothing; the other's choice is not known yet.
    follow(&mut world, pods(&[("bridged", &bridged, &[])]));
    assert_eq!(seen_by(&bridged.inside, WORLD[0]), node[0]);
    assert!(is_cut_off(&ptp.inside, WORLD[0]));
    // Both chose it: whatever their plugin masquerades, the world sees a replica. Their links have room for
    // more than the tunnel.
    let chose: &[&str] = &["internet/nat"];
    let both = [("ptp", &ptp, chose), ("bridged", &bridged, chose)];
    assert_eq!(follow(&mut world, pods(&both)), []);
    for pod in [&ptp, &bridged] {
        for to in WORLD {
            let (mut connection, from) = connect(&pod.inside, to);
            assert!(replicas.contains(&from), "{to}: {from}");
            echo(&mut connection, 1 << 20).unwrap();
        }
    }
    let used: usize = world.replicas.iter().map(|it| it.2.usage().unwrap().clients).sum();
    assert_eq!(used, 4, "each by its own address, of each family");
    nobody_speaks_to_the_tunnel(&world, &ptp.inside);
    // No longer, while it runs.
    follow(&mut world, pods(&[("ptp", &ptp, &[]), ("bridged", &bridged, chose)]));
    assert_eq!(seen_by(&ptp.inside, WORLD[0]), node[0]);
    assert!(replicas.contains(&seen_by(&bridged.inside, WORLD[0])));
    // Its address is another pod's now, which is not known.
    follow(&mut world, pods(&[("bridged", &bridged, chose)]));
    assert!(is_cut_off(&ptp.inside, WORLD[0]));
    world.inputs.egresses.clear();
    follow(&mut world, pods(&[("bridged", &bridged, chose)]));
    for pod in [&ptp, &bridged] {
        assert_eq!(seen_by(&pod.inside, WORLD[0]), node[0], "without an egress nobody is held");
    }
}

/// What a pod sends to the tunnel's port of a replica does not arrive.
fn nobody_speaks_to_the_tunnel(world: &World, pod: &Namespace) {
    let replica = world.replica(0)[0];
    let listener = world.replicas[0].1.run_in(|| UdpSocket::bind((replica, PORT + 1))).unwrap();
    let listener = listener.unwrap();
    let tunnel = world.replicas[0].1.run_in(|| UdpSocket::bind((replica, PORT)));
    assert!(tunnel.unwrap().is_err(), "the tunnel has its port");
    listener.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let received = || {
        let path = "/proc/thread-self/net/snmp";
        let text = world.replicas[0].1.run_in(|| std::fs::read_to_string(path)).unwrap().unwrap();
        let line = text.lines().filter(|line| line.starts_with("Ip: ")).nth(1).unwrap().to_owned();
        line.split(' ').nth(3).unwrap().parse::<u64>().unwrap()
    };
    let socket = pod.run_in(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    let before = received();
    for _ in 0..3 {
        socket.send_to(b"not a tunnel", SocketAddr::new(replica, PORT)).unwrap();
    }
    socket.send_to(b"?", SocketAddr::new(replica, PORT + 1)).unwrap();
    listener.recv(&mut [0; 8]).unwrap();
    assert_eq!(received(), before + 1);
}

#[test]
fn a_pod_that_the_node_does_not_route_and_an_ebpf_plugin_are_named() {
    requires!(netns, nft);
    let mut world = World::new().with_egress(SessionAffinity::ClientIp);
    let pod = |address: &str| Connected {
        inside: Namespace::create().unwrap(),
        addresses: vec![address.parse().unwrap()],
    };
    let chose: &[&str] = &["internet/nat"];
    let by_card = pod("10.1.7.7");
    let elsewhere = pod("192.0.2.7");
    let told = pods(&[("by-card", &by_card, chose), ("elsewhere", &elsewhere, chose)]);
    let said = follow(&mut world, told.clone());
    let why: Vec<_> = said.iter().map(|it| it.why.as_str()).collect();
    assert!(why[0].contains("shop/by-card") && why[0].contains("the link uplink"), "{why:?}");
    assert!(why[1].contains("net.pod-networks"), "{why:?}");
    let on = world.node().namespace();
    ip(on, &["link", "add", "cilium_host", "type", "veth", "peer", "name", "cilium_net"]);
    let seen = ForeignPods { pods: Snapshot::new(told), networks: Vec::new() }.look().unwrap();
    let inputs = &mut EgressInputs::default();
    let error = seen.read_node(world.node(), inputs, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("Cilium"), "{error}");
    assert!(inputs.foreign.is_none());
}

#[test]
fn links_with_a_next_hop_lead_outside_and_the_tunnel_fits_the_way_to_its_replicas() {
    requires!(netns, nft);
    let mut world = World::new().with_egress(SessionAffinity::ClientIp);
    follow(&mut world, pods(&[]));
    let outside = world.inputs.foreign.clone().unwrap().outside;
    assert!(outside.contains("uplink") && outside.contains("lo"), "{outside:?}");
    assert!(!outside.iter().any(|name| name.starts_with("fl")), "pods: {outside:?}");
    // The plugin's own tunnel has less room than the uplink.
    let on = world.node().namespace();
    ip(on, &["link", "set", "uplink", "mtu", "1300"]);
    let settings = DeviceSettings { port: PORT, mtu: 1430 };
    let device = EgressDevice { mac: mac_of("a", &[]), settings };
    let fitted = device.fitted(world.node(), &world.inputs).unwrap();
    assert_eq!(fitted.settings.mtu, 1250);
}

#[test]
fn an_address_is_the_pods_that_stays_and_nobodys_once_its_pod_is_over() {
    let pod = |pod: Value| serde_json::from_value::<Pod>(pod).unwrap();
    let status = json!({ "phase": "Running", "podIP": "10.1.0.5", "podIPs": [{ "ip": "10.1.0.5" }, { "ip": "fd00::5" }] });
    let annotations = json!({ "egress.fairlead.dev/internet": "nat" });
    let running = json!({ "metadata": { "annotations": annotations }, "status": status });
    let read_one = read(&pod(running.clone())).unwrap();
    assert_eq!(read_one.addresses.len(), 2);
    assert_eq!(read_one.egresses, ["internet/nat"]);
    let with = |path: &str, value: Value| {
        let mut changed = running.clone();
        let (parent, field) = path.rsplit_once('/').unwrap();
        if changed.pointer(parent).is_none() {
            changed[parent.trim_start_matches('/')] = json!({ "containers": [] });
        }
        changed.pointer_mut(parent).unwrap()[field] = value;
        read(&pod(changed))
    };
    assert_eq!(with("/status/phase", json!("Succeeded")), None);
    assert_eq!(with("/spec/hostNetwork", json!(true)), None);
    let ending = with("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")).unwrap();
    assert!(ending.ending);
    let next = ForeignPod { egresses: Vec::new(), ..read_one };
    for names in [["a", "b"], ["b", "a"]] {
        let all: Pods =
            [(id(names[0]), ending.clone()), (id(names[1]), next.clone())].into_iter().collect();
        let seen = PodsSeen { pods: Snapshot::new(all).load(), networks: Vec::new() };
        assert_eq!(seen.clients(), [], "the one that stays chose nothing");
        assert_eq!(seen.owners().len(), 2);
    }
}
