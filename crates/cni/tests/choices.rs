//! Addresses that pods choose, addresses that pods of another plugin have, and a node with IPv6 alone.

#![allow(clippy::unwrap_used, reason = "tests")]

mod node;

use std::net::{IpAddr, Ipv4Addr};

use cni::spec::{ANNOTATIONS, FIXED_ADDRESSES, FIXED_MAC};
use cni::wire::{self, Operation, Reply, Request, Show};
use node::{Node, PATIENCE, reaches, recorded, subnet};
use serde_json::{Value, json};
use testkit::{Host, requires};

fn addresses(result: &Value) -> Vec<IpAddr> {
    let ips = result["ips"].as_array().unwrap();
    let address = |ip: &Value| ip["address"].as_str().unwrap().split('/').next().unwrap().parse();
    ips.iter().map(|ip| address(ip).unwrap()).collect()
}

fn choosing(node: &Node, runtime: Value) -> Value {
    let mut config = node.config("1.0.0");
    config["runtimeConfig"] = runtime;
    config
}

fn blocks(node: &Node) -> Vec<Value> {
    let deadline = std::time::Instant::now() + PATIENCE;
    let request = Request::within(deadline, Operation::Show(Show::Blocks));
    match wire::call(&node.socket(), &request, None, deadline).unwrap() {
        Reply::Shown(Value::Array(rows)) => rows,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pod_gets_the_address_and_the_mac_that_it_chose() {
    requires!(netns);
    let node = Node::start(&[("default", subnet(Some("10.64.0.0/24"), Some("fd64::/120")))]);
    let pods = ["a", "b", "c", "d", "e"].map(|name| node.pod(name));
    let [a, b, c, d, e] = &pods;
    // By annotations, of whatever block: it is claimed if need be.
    let annotations =
        json!({ FIXED_ADDRESSES: "10.64.0.200", FIXED_MAC: "02:00:5e:10:00:01", "x": "y" });
    let chosen = choosing(&node, json!({ ANNOTATIONS: annotations }));
    let made = node.of("ADD", "a", Some(a), &chosen).ok();
    let wanted: [IpAddr; 2] = ["10.64.0.200".parse().unwrap(), "fd64::c8".parse().unwrap()];
    assert_eq!(addresses(&made), wanted);
    assert_eq!(made["interfaces"][1]["mac"], "02:00:5e:10:00:01");
    let link = a.command("ip").args(["-o", "link", "show", "eth0"]).output().unwrap();
    assert!(String::from_utf8_lossy(&link.stdout).contains("02:00:5e:10:00:01"));
    // By the runtime, which goes before them. Both ends find each other.
    let mut runtime = chosen["runtimeConfig"].clone();
    (runtime["ips"], runtime["mac"]) = (json!(["fd64::3/120"]), json!("06:00:00:00:00:07"));
    let other = node.of("ADD", "b", Some(b), &choosing(&node, runtime)).ok();
    assert_eq!(addresses(&other)[0], IpAddr::from([10, 64, 0, 3]));
    assert!(reaches(b, a, wanted[0]) && reaches(a, b, addresses(&other)[1]));
    // Again is the same, and the agent that comes next finds it right.
    assert_eq!(node.of("ADD", "a", Some(a), &chosen).ok(), made);
    let mut check = chosen.clone();
    check["prevResult"] = made;
    node.of("CHECK", "a", Some(a), &check).ok();

    // What somebody has, what is no pair and what no pool has is refused at once, by name.
    for (ips, why) in [
        (json!(["10.64.0.200"]), "10.64.0.200 is given to shop/a"),
        (json!(["10.64.0.7", "fd64::8"]), "beside 10.64.0.7 pool default has fd64::7"),
        (json!(["10.99.0.1"]), "pool default has no address 10.99.0.1"),
    ] {
        let refused = node.of("ADD", "c", Some(c), &choosing(&node, json!({ "ips": ips })));
        assert!(refused.output["msg"].as_str().unwrap().contains(why), "{}", refused.output);
        assert_eq!(refused.code(), 101);
    }
    // When it is free, also a moment later, it is given again to whoever chooses it, and to nobody else.
    node.of("DEL", "a", None, &chosen).ok();
    let any = addresses(&node.of("ADD", "c", Some(c), &node.config("1.0.0")).ok());
    assert_ne!(any[0], wanted[0]);
    let again = choosing(&node, json!({ "ips": ["10.64.0.200"] }));
    assert_eq!(addresses(&node.of("ADD", "d", Some(d), &again).ok()), wanted);
    // A MAC alone leaves the address to the agent.
    let mac = choosing(&node, json!({ "mac": "02:00:00:00:00:0e" }));
    let made = node.of("ADD", "e", Some(e), &mac).ok();
    assert_eq!(made["interfaces"][1]["mac"], "02:00:00:00:00:0e");
}

/// A pod as Coil makes it: a veth with an alias, and a route in a table of its own, which is looked at before the
/// main one.
fn coil_pod(node: &Node, name: &str, address: Ipv4Addr) -> Host {
    let pod = node.pod(name);
    let run = |host: &Host, args: &[&str]| {
        assert!(host.command("ip").args(args).status().unwrap().success(), "ip {args:?}");
    };
    let (veth, netns) = (format!("veth{name}"), pod.netns().display().to_string());
    let (peer, to) = (["peer", "name", "eth0", "netns", &netns], format!("{address}/32"));
    run(&node.host, &[&["link", "add", veth.as_str(), "type", "veth"][..], &peer].concat());
    run(&node.host, &["link", "set", &veth, "alias", &format!("COIL:default:{name}:eth0"), "up"]);
    run(&node.host, &["route", "add", &to, "dev", &veth, "table", "116", "protocol", "30"]);
    run(&pod, &["address", "add", &to, "dev", "eth0"]);
    run(&pod, &["link", "set", "eth0", "up"]);
    run(&pod, &["route", "add", "192.0.2.1", "dev", "eth0", "scope", "link"]);
    run(&pod, &["route", "add", "default", "via", "192.0.2.1"]);
    pod
}

#[test]
fn pods_of_coil_keep_their_addresses_while_our_agent_serves_new_ones_beside_them() {
    requires!(netns);
    let mut node = Node::start(&[("default", subnet(Some("10.64.0.0/24"), None))]);
    // The block is this node's, as an import would have it. Coil gave its first addresses.
    let first: Ipv4Addr = loop {
        if let Some(block) = blocks(&node).first() {
            let net = block["ipv4"].as_str().unwrap().split('/').next().unwrap();
            break net.parse().unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    let nth = |n: u32| Ipv4Addr::from_bits(first.to_bits() + n);
    node.down();
    let rule = ["rule", "add", "priority", "2000", "table", "116"];
    assert!(node.host.command("ip").args(rule).status().unwrap().success());
    let back = ["route", "add", "10.64.0.0/24", "via", "192.0.2.1"];
    assert!(node.router.command("ip").args(back).status().unwrap().success());
    let theirs = [0, 1, 2].map(|n| coil_pod(&node, &format!("coil{n}"), nth(n)));
    node.up();

    let config = node.config("1.0.0");
    let mut given = Vec::new();
    for name in ["x", "y", "z"] {
        let pod = node.pod(name);
        let made = addresses(&node.of("ADD", name, Some(&pod), &config).ok());
        given.push((pod, made[0]));
    }
    let own: Vec<IpAddr> = given.iter().map(|(_, address)| *address).collect();
    assert_eq!(own, [3, 4, 5].map(|n| IpAddr::from(nth(n))));
    for (n, pod) in (0..).zip(&theirs) {
        let address = IpAddr::from(nth(n));
        assert!(reaches(&node.router, pod, address), "{address} from outside");
        assert!(reaches(&given[0].0, pod, address), "{address} from a pod of ours");
        assert!(reaches(pod, &given[1].0, given[1].1), "a pod of ours from {address}");
    }
    // Coil makes one more while the agent is there: nobody gets its address, and the runtime's next try is well.
    let late = coil_pod(&node, "late", nth(6));
    let pod = node.pod("w");
    // The agent may have looked meanwhile; then the first try is well.
    let mut made = node.of("ADD", "w", Some(&pod), &config);
    if !made.success {
        let told = made.output["msg"].as_str().unwrap();
        assert!(told.contains("of another plugin, behind vethlate"), "{told}");
        assert_eq!(made.code(), 100);
        made = node.of("ADD", "w", Some(&pod), &config);
    }
    let made = addresses(&made.ok());
    assert_ne!(made[0], IpAddr::from(nth(6)));
    assert!(reaches(&node.router, &late, nth(6).into()));
    // It cannot be chosen either; when its pod is gone it can.
    let chosen = choosing(&node, json!({ "ips": [nth(0).to_string()] }));
    let other = node.pod("v");
    assert_ne!(node.of("ADD", "v", Some(&other), &chosen).code(), 0);
    let gone = ["link", "delete", "vethcoil0"];
    assert!(node.host.command("ip").args(gone).status().unwrap().success());
    node.down();
    node.up();
    assert_eq!(addresses(&node.of("ADD", "v", Some(&other), &chosen).ok()), [IpAddr::from(nth(0))]);
    assert_eq!(recorded(&node).len(), 5);
}

#[test]
fn a_node_with_ipv6_alone_serves_pods_with_ipv6_alone() {
    requires!(netns);
    let pools = [("default", subnet(None, Some("fd64::/120")))];
    let node = Node::start_at(&pools, "2001:db8:1::1/64", "2001:db8:1::2/64");
    let back = ["route", "add", "fd64::/120", "via", "2001:db8:1::1"];
    assert!(node.router.command("ip").args(back).status().unwrap().success());
    let config = node.config("1.0.0");
    let pods = ["a", "b"].map(|name| node.pod(name));
    let [on_a, on_b] = [("a", &pods[0]), ("b", &pods[1])].map(|(name, pod)| {
        let made = node.of("ADD", name, Some(pod), &config).ok();
        let [address] = addresses(&made)[..] else { panic!("{made}") };
        assert_eq!(made["routes"], json!([{ "dst": "::/0", "gw": "fe80::1" }]));
        address
    });
    assert!(reaches(&pods[0], &pods[1], on_b) && reaches(&pods[1], &pods[0], on_a));
    assert!(reaches(&node.router, &pods[0], on_a) && reaches(&node.host, &pods[1], on_b));
    assert!(reaches(&pods[0], &node.router, "2001:db8:1::2".parse().unwrap()));
    // Not an IPv4 address anywhere.
    for host in pods.iter().chain([&node.host]) {
        let show = ["-o", "-4", "address", "show", "scope", "global"];
        let said = host.command("ip").args(show).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout), "");
    }
    for name in ["a", "b"] {
        node.of("DEL", name, None, &config).ok();
    }
    assert!(node.interfaces().is_empty());
}
