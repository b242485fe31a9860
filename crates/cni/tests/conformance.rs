//! The real plugin against the real daemon: every command, every version, every error.

#![allow(clippy::unwrap_used, reason = "tests")]

mod node;

use std::net::IpAddr;

use cni::spec::Version;
use cni::wire::AttachmentKey;
use node::{Node, reaches, recorded, subnet};
use serde_json::{Value, json};
use testkit::{Host, requires};

fn dual_stack() -> Node {
    Node::start(&[("default", subnet(Some("10.64.0.0/24"), Some("fd64::/120")))])
}

fn addresses(result: &Value) -> Vec<IpAddr> {
    let ips = result["ips"].as_array().unwrap();
    let address = |ip: &Value| ip["address"].as_str().unwrap().split('/').next().unwrap().parse();
    ips.iter().map(|ip| address(ip).unwrap()).collect()
}

fn with(mut config: Value, key: &str, value: Value) -> Value {
    config[key] = value;
    config
}

/// What ADD must print, but for what only the node knows: addresses and hardware addresses.
fn expected(version: Version, container: &str, pod: &Host, result: &Value) -> Value {
    let name = AttachmentKey { container: container.to_owned(), ifname: "eth0".to_owned() };
    let mac = |at: usize| result["interfaces"][at]["mac"].clone();
    let mut host = json!({"name": cni::interface::host_interface(&name), "mac": mac(0)});
    let mut inside = json!({"name": "eth0", "mac": mac(1), "sandbox": pod.netns()});
    if version >= Version::V1_1_0 {
        host["mtu"] = 1500.into();
        inside["mtu"] = 1500.into();
    }
    let ip = |at: usize, gateway: &str, family: &str| {
        let mut ip =
            json!({"address": result["ips"][at]["address"], "gateway": gateway, "interface": 1});
        if version < Version::V1_0_0 {
            ip["version"] = family.into();
        }
        ip
    };
    json!({
        "cniVersion": version.name(),
        "interfaces": [host, inside],
        "ips": [ip(0, "169.254.1.1", "4"), ip(1, "fe80::1", "6")],
        "routes": [{"dst": "0.0.0.0/0", "gw": "169.254.1.1"}, {"dst": "::/0", "gw": "fe80::1"}],
    })
}

#[test]
fn every_command_in_every_version() {
    requires!(netns);
    let node = dual_stack();
    let neighbour = node.pod("neighbour");
    node.of("ADD", "neighbour", Some(&neighbour), &node.config("1.0.0")).ok();
    for (number, version) in Version::ALL.into_iter().enumerate() {
        let config = node.config(version.name());
        let reported = node.run("VERSION", &[], &json!({"cniVersion": version.name()})).ok();
        assert_eq!(reported["cniVersion"], version.name());
        assert_eq!(reported["supportedVersions"], json!(["0.3.1", "0.4.0", "1.0.0", "1.1.0"]));
        let status = node.run("STATUS", &[], &config);
        let gc = node.run(
            "GC",
            &[],
            &with(
                config.clone(),
                "cni.dev/valid-attachments",
                json!([
                    {"containerID": "neighbour", "ifname": "eth0"},
                ]),
            ),
        );
        if version >= Version::V1_1_0 {
            assert_eq!((status.ok(), gc.ok()), (Value::Null, Value::Null));
        } else {
            assert_eq!((status.code(), gc.code()), (1, 1));
        }

        let container = format!("pod-{number}");
        let pod = node.pod(&container);
        let added = node.of("ADD", &container, Some(&pod), &config).ok();
        assert_eq!(added, expected(version, &container, &pod, &added));
        for address in addresses(&added) {
            assert!(reaches(&neighbour, &pod, address));
            // Of the other family the node has no address to ask from.
            assert!(address.is_ipv6() || reaches(&node.host, &pod, address));
        }
        // Once more is the same.
        assert_eq!(node.of("ADD", &container, Some(&pod), &config).ok(), added);
        let check = with(config.clone(), "prevResult", added.clone());
        let checked = node.of("CHECK", &container, Some(&pod), &check);
        if version >= Version::V0_4_0 {
            assert_eq!(checked.ok(), Value::Null);
        } else {
            assert_eq!(checked.code(), 1);
        }
        // As containerd does: once with everything, once more with nothing.
        assert_eq!(node.of("DEL", &container, Some(&pod), &check).ok(), Value::Null);
        assert_eq!(node.of("DEL", &container, None, &config).ok(), Value::Null);
        if version >= Version::V0_4_0 {
            assert_eq!(node.of("CHECK", &container, Some(&pod), &check).code(), 3);
        }
    }
    assert_eq!((node.interfaces().len(), recorded(&node).len()), (1, 1));
}

#[test]
fn each_family_alone_and_a_chain() {
    requires!(netns);
    let node = Node::start(&[
        ("default", subnet(Some("10.64.0.0/24"), None)),
        ("six", subnet(None, Some("fd64::/120"))),
    ]);
    let config = node.config("1.1.0");
    let six = with(config.clone(), "pool", json!("six"));
    let [a, b] = ["a", "b"].map(|name| node.pod(name));
    for (config, family) in [(&config, "10.64."), (&six, "fd64:")] {
        let [on_a, on_b] = [("a", &a), ("b", &b)].map(|(container, pod)| {
            let result = node.of("ADD", container, Some(pod), config).ok();
            let [address] = addresses(&result)[..] else { panic!("{result}") };
            assert!(address.to_string().starts_with(family), "{result}");
            assert_eq!(result["routes"].as_array().unwrap().len(), 1);
            address
        });
        assert!(reaches(&a, &b, on_b) && reaches(&b, &a, on_a));
        for container in ["a", "b"] {
            node.of("DEL", container, None, config).ok();
        }
    }
    let previous = json!({"cniVersion": "1.1.0", "interfaces": [{"name": "x0", "socketPath": "/s"}],
        "ips": [{"address": "192.0.2.9/24", "interface": 0}], "dns": {"domain": "d"}});
    let chained = with(config, "prevResult", previous.clone());
    let result = node.of("ADD", "a", Some(&a), &chained).ok();
    assert_eq!(result["interfaces"][0], previous["interfaces"][0]);
    assert_eq!(result["ips"][0], previous["ips"][0]);
    assert_eq!((&result["ips"][1]["interface"], &result["dns"]), (&json!(2), &previous["dns"]));
    // What CHECK gets is the result of the whole chain.
    let checked = with(chained, "prevResult", result);
    node.of("CHECK", "a", Some(&a), &checked).ok();
}

#[test]
fn every_error_has_its_code_and_leaves_nothing() {
    requires!(netns);
    let node = dual_stack();
    let config = node.config("1.1.0");
    let pod = node.pod("pod");
    let add = |config: &Value| node.of("ADD", "pod", Some(&pod), config);

    assert_eq!(add(&with(config.clone(), "cniVersion", json!("2.0.0"))).code(), 1);
    let refused = add(&with(config.clone(), "ipam", json!({"type": "host-local"})));
    assert!(refused.output["msg"].as_str().unwrap().contains("ipam"));
    assert_eq!(refused.code(), 2);
    let at = |netns: &str| {
        let variables = [("CNI_CONTAINERID", "pod"), ("CNI_NETNS", netns), ("CNI_IFNAME", "eth0")];
        node.run("ADD", &variables, &config)
    };
    assert_eq!(at("/run/netns/no-such").code(), 3);
    assert_eq!(at("").code(), 4);
    assert_eq!(at("/dev/null").code(), 4);
    assert_eq!(at("/proc/self/ns/mnt").code(), 4);
    assert_eq!(node.run("PURGE", &[], &config).code(), 4);
    assert_eq!(at("/etc/passwd/x").code(), 5);
    assert_eq!(node.run_raw("STATUS", &[], b"{").code(), 6);
    assert_eq!(add(&with(config.clone(), "name", json!("../x"))).code(), 7);
    assert_eq!(node.of("CHECK", "pod", Some(&pod), &config).code(), 7);
    assert_eq!(node.run("GC", &[], &config).code(), 7);
    let unknown = add(&with(config.clone(), "pool", json!("nowhere")));
    assert!(unknown.output["msg"].as_str().unwrap().contains("nowhere"));
    assert_eq!(unknown.code(), 101);

    // An interface of that name, which is somebody else's.
    let ip = |args: &[&str]| assert!(pod.command("ip").args(args).status().unwrap().success());
    ip(&["link", "add", "eth0", "type", "veth", "peer", "name", "eth1"]);
    assert_eq!(add(&config).code(), 100);
    assert!(node.interfaces().is_empty());
    ip(&["link", "delete", "eth0"]);
    let added = add(&config).ok();

    // Somebody takes its route away.
    let [address, _] = addresses(&added)[..] else { panic!("{added}") };
    let gone = ["route", "delete", &address.to_string()];
    assert!(node.host.command("ip").args(gone).status().unwrap().success());
    let check = with(config.clone(), "prevResult", added);
    let differs = node.of("CHECK", "pod", Some(&pod), &check);
    assert!(differs.output["details"].as_str().unwrap().contains("route"), "{differs:?}");
    assert_eq!(differs.code(), 103);
    node.of("DEL", "pod", None, &config).ok();
    assert!(node.interfaces().is_empty() && recorded(&node).is_empty());
}

#[test]
fn gc_keeps_what_is_valid_and_what_is_of_another_network() {
    requires!(netns);
    let node = dual_stack();
    let config = node.config("1.1.0");
    let other = with(config.clone(), "name", json!("other"));
    for (container, config) in [("kept", &config), ("stale", &config), ("theirs", &other)] {
        let pod = node.pod(container);
        node.of("ADD", container, Some(&pod), config).ok();
    }
    let valid = json!([{"containerID": "kept", "ifname": "eth0"}]);
    node.run("GC", &[], &with(config, "cni.dev/valid-attachments", valid)).ok();
    let mut left = node.interfaces();
    left.sort();
    let mut expected = ["kept", "theirs"].map(|container| {
        let (container, ifname) = (container.to_owned(), "eth0".to_owned());
        cni::interface::host_interface(&AttachmentKey { container, ifname })
    });
    expected.sort();
    assert_eq!(left, expected);
}

#[test]
fn while_the_daemon_is_away_pods_stay_and_nothing_waits() {
    requires!(netns);
    let mut node = dual_stack();
    let config = node.config("1.1.0");
    let [a, b] = ["a", "b"].map(|name| node.pod(name));
    let on_a = addresses(&node.of("ADD", "a", Some(&a), &config).ok());
    let added = node.of("ADD", "b", Some(&b), &config).ok();
    node.down();

    assert_eq!(node.run("STATUS", &[], &config).code(), 50);
    let c = node.pod("c");
    assert_eq!(node.of("ADD", "c", Some(&c), &config).code(), 11);
    // Nothing of it is there; of the other there is.
    node.of("DEL", "c", Some(&c), &config).ok();
    assert_eq!(node.of("DEL", "b", Some(&b), &config).code(), 11);
    for address in &on_a {
        assert!(reaches(&b, &a, *address));
    }

    node.up();
    // What it gave it remembers.
    assert_eq!(node.of("ADD", "b", Some(&b), &config).ok(), added);
    let on_c = addresses(&node.of("ADD", "c", Some(&c), &config).ok());
    assert!(
        on_c.iter().all(|address| !on_a.contains(address) && !addresses(&added).contains(address))
    );
    for container in ["a", "b", "c"] {
        node.of("DEL", container, None, &config).ok();
    }
    assert!(node.interfaces().is_empty());
}
