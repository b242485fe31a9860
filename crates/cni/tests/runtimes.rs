//! The plugin as others call it: `cnitool`, and containerd with runc.

#![allow(clippy::unwrap_used, reason = "tests")]

mod node;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use node::{Node, PLUGIN, recorded, subnet};
use serde_json::{Value, json};
use testkit::{need, requires};

fn start() -> Node {
    Node::start(&[("default", subnet(Some("10.64.0.0/24"), Some("fd64::/120")))])
}

/// Runs the script in the node's network namespace and mounts of its own.
fn run(node: &Node, conflist: &Value, unshare: &[&str], what: &[&str]) -> String {
    let work = tempfile::tempdir_in(node.dir()).unwrap();
    let file = work.path().join("conflist");
    fs::write(&file, conflist.to_string()).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/runtimes/run.sh");
    let net = format!("--net={}", node.host.netns().display());
    let mut command = Command::new("timeout");
    // Not `ip netns exec`: that mounts /sys anew, without the control groups that runc wants.
    command.args(["--kill-after=5", "120", "nsenter", &net, "unshare", "--mount"]).args(unshare);
    command.args(["sh", script]).arg(work.path()).arg(need::cni_assets().unwrap());
    let Output { status, stdout, stderr } =
        command.arg(PLUGIN).arg(&file).args(what).output().unwrap();
    let (said, complained) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{status}\n{said}\n{complained}");
    said.into_owned()
}

fn conflist(node: &Node, version: &str) -> Value {
    json!({"cniVersion": version, "name": "pods", "plugins": [
        {"type": "fairlead-cni", "socket": node.socket()},
    ]})
}

#[test]
fn cnitool_adds_checks_and_deletes() {
    requires!(netns, cni);
    let node = start();
    for version in ["0.3.1", "0.4.0", "1.0.0"] {
        let pod = node.pod(&version.replace('.', "-"));
        let netns = pod.netns().display().to_string();
        let said = run(&node, &conflist(&node, version), &[], &["cnitool", &netns, version]);
        let result: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(result["cniVersion"], version);
        assert_eq!(result["ips"].as_array().unwrap().len(), 2);
        assert_eq!(result["interfaces"][1]["sandbox"], netns);
        assert!(node.interfaces().is_empty() && recorded(&node).is_empty());
    }
}

/// Debian's portmap knows CNI up to 1.0.0, so that is all that `fairlead net install` lists with it.
#[test]
fn a_chained_portmap_forwards_host_ports_until_the_container_goes() {
    const PORTMAP: &str = "/usr/lib/cni/portmap";
    requires!(netns, cni);
    let missing =
        [PORTMAP, "/usr/sbin/iptables"].into_iter().find(|path| !Path::new(path).exists());
    if let Some(missing) = missing {
        let why = format!("no {missing}: scripts/setup installs it");
        return need::skip("a_chained_portmap_forwards_host_ports::here", &why);
    }
    let node = start();
    let pod = node.pod("pod");
    let mut conflist = conflist(&node, "1.0.0");
    conflist["cniVersions"] = json!(["1.0.0"]);
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    conflist["plugins"].as_array_mut().unwrap().push(portmap);
    let [netns, from] = [&pod, &node.router].map(|host| host.netns().display().to_string());
    let said = run(&node, &conflist, &[], &["ports", &netns, &from, PORTMAP]);
    assert_eq!(said.trim(), "through the host port");
    assert!(node.interfaces().is_empty() && recorded(&node).is_empty());
}

#[test]
fn a_chained_bandwidth_limits_what_comes_to_a_container_until_it_goes() {
    const BANDWIDTH: &str = "/usr/lib/cni/bandwidth";
    requires!(netns, cni);
    let missing = [BANDWIDTH, "/usr/sbin/tc"].into_iter().find(|path| !Path::new(path).exists());
    if let Some(missing) = missing {
        let why = format!("no {missing}: scripts/setup installs it");
        return need::skip("a_chained_bandwidth_limits_what_comes::here", &why);
    }
    let node = start();
    let pod = node.pod("pod");
    let mut conflist = conflist(&node, "1.0.0");
    let bandwidth = json!({"type": "bandwidth", "capabilities": {"bandwidth": true}});
    conflist["plugins"].as_array_mut().unwrap().push(bandwidth);
    let netns = pod.netns().display().to_string();
    let said = run(&node, &conflist, &[], &["bandwidth", &netns, BANDWIDTH]);
    assert!(said.contains("dev fl") && said.contains("rate 8Mbit"), "{said}");
    assert!(node.interfaces().is_empty() && recorded(&node).is_empty());
}

#[test]
fn containers_of_containerd_reach_each_other_and_leave_no_trace() {
    requires!(netns, cni);
    let node = start();
    let private = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    let said = run(&node, &conflist(&node, "1.0.0"), &private, &["containerd"]);
    for line in ["a 10.64.0.", "b 10.64.0."] {
        assert!(said.contains(line), "{line:?} is not in:\n{said}");
    }
    assert_eq!(said.matches("2 packets received").count(), 2, "{said}");
    assert!(node.interfaces().is_empty(), "{:?}", node.interfaces());
    assert_eq!(recorded(&node), Vec::<Value>::new());
}
