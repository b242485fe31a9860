//! Node ports and pods in their node's network, on two nodes: what `policy test` says and what packets do,
//! compared.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ground;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use ground::{Ground, NODE_V4, PATIENCE};
use kernel::netns::Namespace;
use node::enforcement::{Enforcer, EnforcerSettings, NftDatapath};
use policy::cluster::Key;
use policy::spec::Settings;
use policy::{Delta, Inputs, Probe, ProbePort};
use serde_json::{Value, json};
use testkit::requires;

/// How long a packet that must not pass has to arrive nevertheless.
const QUIET: Duration = Duration::from_millis(300);
const OTHER_V4: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
const WEB: u16 = 80;
/// Where the pods in the nodes' networks listen.
const OF_NODE: u16 = 9000;

/// Two nodes: `a/web` and `a/db` are on the first, `a/far` and `b/other` on the second; a client is outside,
/// behind the first. Each node has a pod in its own network, `a/agent-1` and `a/agent-2`.
struct Nodes {
    one: Ground,
    two: Ground,
    /// They accept connections for as long as they are there.
    _listeners: Vec<TcpListener>,
}

impl Nodes {
    fn new() -> Self {
        let (mut one, mut two) =
            (Ground::new(), Ground::at(OTHER_V4, [0xfd00, 0x99, 0, 0, 0, 0, 0, 2].into()));
        one.add(Key::new("a", "web"), 1, &[("app", "web")], true);
        one.add(Key::new("a", "db"), 2, &[("app", "db")], true);
        one.add(Key::new("outside", "one"), 1, &[], false);
        two.add(Key::new("a", "far"), 3, &[("app", "far")], true);
        two.add(Key::new("b", "other"), 4, &[("app", "other")], true);
        one.join(NODE_V4, &two, OTHER_V4);
        let listen = |namespace: &Namespace, address: Ipv4Addr, port: u16| {
            namespace.run_in(|| TcpListener::bind((address, port))).unwrap().unwrap()
        };
        let hosts = one.hosts.iter().chain(&two.hosts);
        let mut listeners: Vec<_> =
            hosts.map(|host| listen(&host.namespace, host.v4, WEB)).collect();
        for (ground, address) in [(&one, NODE_V4), (&two, OTHER_V4)] {
            listeners.push(listen(&ground.node, address, OF_NODE));
        }
        // As kube-proxy does it: to a pod of another node the node's own address stands for the client.
        let rules = "add table ip service; \
             add chain ip service pre { type nat hook prerouting priority -100; }; \
             add chain ip service post { type nat hook postrouting priority 100; }; \
             add rule ip service pre ip daddr 10.99.0.1 tcp dport 30080 dnat to 10.0.0.2:80; \
             add rule ip service pre ip daddr 10.99.0.1 tcp dport 30081 dnat to 10.0.0.3:80; \
             add rule ip service post ip daddr 10.0.0.3 ct status dnat snat to 10.99.0.1";
        one.in_node(|| {
            let output = Command::new("nft").arg(rules).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        });
        Self { one, two, _listeners: listeners }
    }

    /// The namespace in which an end's programs run.
    fn namespace(&self, end: &str) -> &Namespace {
        match end {
            "a/agent-1" => &self.one.node,
            "a/agent-2" => &self.two.node,
            name => {
                let mut hosts = self.one.hosts.iter().chain(&self.two.hosts);
                &hosts.find(|host| host.key.to_string() == name).unwrap().namespace
            }
        }
    }

    fn nodes(&self) -> [(&Ground, &'static str); 2] {
        [(&self.one, "node-1"), (&self.two, "node-2")]
    }

    /// Begins to enforce nothing, on both nodes.
    fn start(&self) -> [Enforcer<NftDatapath>; 2] {
        self.nodes().map(|(ground, _)| {
            ground.in_node(|| {
                let datapath = NftDatapath::open().unwrap();
                Enforcer::start(datapath, EnforcerSettings::default(), None, []).unwrap()
            })
        })
    }

    /// Both nodes enforce the policies.
    fn enforce(
        &self,
        inputs: &Inputs,
        enforcers: &mut [Enforcer<NftDatapath>; 2],
        generation: u64,
    ) {
        let compiler = inputs.compiler();
        for ((ground, name), enforcer) in self.nodes().into_iter().zip(enforcers) {
            let program = compiler.program(name, generation);
            let delta = Delta::between(enforcer.program(), &program);
            ground.in_node(|| {
                enforcer.apply(&delta).unwrap();
                enforcer.revoke().unwrap();
            });
        }
    }
}

fn cluster() -> Vec<Value> {
    let node = |name: &str, v4: Ipv4Addr| {
        let addresses = json!([{"type": "InternalIP", "address": v4.to_string()}]);
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
               "status": {"addresses": addresses}})
    };
    let pod = |name: &str, node: &str, address: &str, host: bool| {
        let (namespace, name) = name.split_once('/').unwrap();
        let app = name.split('-').next().unwrap();
        json!({"apiVersion": "v1", "kind": "Pod",
               "metadata": {"namespace": namespace, "name": name, "labels": {"app": app}},
               "spec": {"nodeName": node, "hostNetwork": host, "containers": [{"name": "c", "image": "i"}]},
               "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}})
    };
    vec![
        node("node-1", NODE_V4),
        node("node-2", OTHER_V4),
        pod("a/web", "node-1", "10.0.0.1", false),
        pod("a/db", "node-1", "10.0.0.2", false),
        pod("a/far", "node-2", "10.0.0.3", false),
        pod("b/other", "node-2", "10.0.0.4", false),
        pod("a/agent-1", "node-1", "10.99.0.1", true),
        pod("a/agent-2", "node-2", "10.99.0.2", true),
    ]
}

/// A connection: who makes it, where to, and what `policy test` is asked about it.
type Case = (&'static str, (Ipv4Addr, u16), (&'static str, &'static str, u16));

const FAR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
const DB: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

const CASES: [Case; 13] = [
    // A node port of a pod on the node that is asked: the client itself is judged.
    ("outside/one", (NODE_V4, 30080), ("192.0.2.1", "a/db", WEB)),
    ("a/web", (NODE_V4, 30080), ("a/web", "a/db", WEB)),
    // Of a pod on another node: the node that was asked stands for the client.
    ("outside/one", (NODE_V4, 30081), ("10.99.0.1", "a/far", WEB)),
    // A pod in its node's network as the client: of a pod there, and of one elsewhere.
    ("a/agent-1", (DB, WEB), ("a/agent-1", "a/db", WEB)),
    ("a/agent-1", (FAR, WEB), ("a/agent-1", "a/far", WEB)),
    ("a/agent-2", (FAR, WEB), ("a/agent-2", "a/far", WEB)),
    ("a/agent-2", (DB, WEB), ("a/agent-2", "a/db", WEB)),
    // As the server: for its own node's pods, others, the outside, and another node.
    ("a/web", (NODE_V4, OF_NODE), ("a/web", "a/agent-1", OF_NODE)),
    ("a/web", (OTHER_V4, OF_NODE), ("a/web", "a/agent-2", OF_NODE)),
    ("b/other", (NODE_V4, OF_NODE), ("b/other", "a/agent-1", OF_NODE)),
    ("b/other", (OTHER_V4, OF_NODE), ("b/other", "a/agent-2", OF_NODE)),
    ("outside/one", (NODE_V4, OF_NODE), ("192.0.2.1", "a/agent-1", OF_NODE)),
    ("a/agent-2", (NODE_V4, OF_NODE), ("a/agent-2", "a/agent-1", OF_NODE)),
];

fn network_policy(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
           "metadata": {"namespace": "a", "name": name}, "spec": spec})
}

/// What is in force, and the numbers of the cases that do not pass.
fn features() -> Vec<(&'static str, Vec<Value>, Vec<usize>)> {
    let servers =
        json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "far"]}]});
    let from = |networks: &[&str]| {
        let blocks: Vec<_> =
            networks.iter().map(|cidr| json!({"ipBlock": {"cidr": cidr}})).collect();
        network_policy(
            "servers",
            &json!({"podSelector": servers, "policyTypes": ["Ingress"], "ingress": [{"from": blocks}]}),
        )
    };
    let everything =
        network_policy("all", &json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}));
    let nodes = json!({"apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy",
        "metadata": {"name": "nodes"}, "spec": {"tier": "Admin", "priority": 1,
        "subject": {"namespaces": {}}, "egress": [{"action": "Deny", "to": [{"nodes": {}}]}]}});
    let group = json!({"apiVersion": "fairlead.dev/v1alpha1", "kind": "Group", "metadata": {"name": "servers"},
        "spec": {"mode": "protect", "criteria": [{"key": "label", "label": "app", "op": "regex", "value": "^(db|far)$"}]}});
    let hosts = json!({"apiVersion": "fairlead.dev/v1alpha1", "kind": "NetworkRule", "metadata": {"name": "hosts"},
        "spec": {"from": "hosts", "to": "servers", "action": "allow", "ports": ["tcp/80"]}});
    vec![
        ("no policy", vec![], vec![]),
        ("a client outside is let in", vec![from(&["192.0.2.1/32"])], vec![1, 2, 4, 6]),
        ("a node is let in", vec![from(&["10.99.0.1/32"])], vec![0, 1, 6]),
        // The policy selects the pods in their nodes' network too, and isolates none of them.
        ("pods are let out to nobody, and nobody in", vec![everything], vec![0, 1, 2, 4, 6, 8]),
        ("pods are kept from nodes", vec![nodes], vec![7, 8, 9, 10]),
        // Of a pod in discover guard stops nothing; an end that is no workload has no say.
        ("guard lets nodes in", vec![group, hosts], vec![0]),
    ]
}

#[test]
fn node_ports_and_pods_of_the_nodes_network_are_judged_as_policy_test_says() {
    requires!(netns, nft);
    let nodes = Nodes::new();
    let mut enforcers = nodes.start();
    for ((feature, policies, denied), generation) in features().into_iter().zip(1..) {
        let mut inputs = Inputs::new(Settings::default());
        for document in cluster() {
            inputs.add_cluster(&document).unwrap();
        }
        for document in &policies {
            inputs.add_policy(document).unwrap();
        }
        inputs.complete();
        nodes.enforce(&inputs, &mut enforcers, generation);
        for (number, (client, (address, port), (from, to, asked))) in CASES.into_iter().enumerate()
        {
            let probe = Probe {
                from: from.to_owned(),
                to: to.to_owned(),
                protocol: "TCP".to_owned(),
                port: Some(ProbePort::Number(asked)),
                to_name: None,
            };
            let answer = probe.answer(&inputs.cluster, &inputs.policies).unwrap();
            let passes = !denied.contains(&number);
            assert_eq!(answer.allowed(), passes, "{feature}, {number}: {answer:?}");
            let to = SocketAddr::new(IpAddr::from(address), port);
            let wait = if passes { PATIENCE } else { QUIET };
            let connect = || TcpStream::connect_timeout(&to, wait).map(drop);
            let connected = nodes.namespace(client).run_in(connect).unwrap();
            assert_eq!(
                connected.is_ok(),
                passes,
                "{feature}, {number}: {client} to {to}: {connected:?}"
            );
        }
    }
}
