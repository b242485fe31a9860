//! A cluster for truth tables, and what is expected of it.
//!
//! Namespaces x, y and z, labelled `ns: x` and so on; in each the pods a, b and c, labelled `pod: a` and
//! so on. Pod a runs on node n1, b on n2, c on n3. Pods of x have the addresses 10.0.1.1 to 3 and
//! fd00:1::1 to 3, of y 10.0.2.*, of z 10.0.3.*. Container ports are named `serve-80-tcp` and so on.

use std::collections::BTreeMap;
use std::net::IpAddr;

use objects::kinds::{GroupMode, Protocol};
use policy::evaluate::End;
use policy::program::Packet;
use policy::spec::Settings;
use policy::{Answer, Inputs, Probe, ProbePort, Program};
use serde_json::{Value, json};

pub(super) const PORTS: [(&str, u16); 6] =
    [("TCP", 80), ("TCP", 81), ("UDP", 80), ("UDP", 81), ("SCTP", 80), ("SCTP", 81)];

const NODES: [(&str, &str); 3] = [("a", "n1"), ("b", "n2"), ("c", "n3")];

pub(super) struct Truth {
    inputs: Inputs,
    programs: BTreeMap<String, Program>,
    expected: BTreeMap<(String, String, String, u16), bool>,
}

fn documents(yaml: &str) -> Vec<Value> {
    // As the verbs read files: `y` is a name.
    let options = serde_saphyr::options! { strict_booleans: true };
    let values: Vec<Value> = serde_saphyr::from_multiple_with_options(yaml, options).unwrap();
    values.into_iter().filter(|value| !value.is_null()).collect()
}

/// The objects of the cluster.
pub(super) fn cluster() -> Vec<Value> {
    let mut all = Vec::new();
    for (n, namespace) in (1..).zip(["x", "y", "z"]) {
        all.push(json!({"apiVersion": "v1", "kind": "Namespace",
                        "metadata": {"name": namespace, "labels": {"ns": namespace}}}));
        for (p, (pod, node)) in (1..).zip(NODES) {
            let ports: Vec<_> = PORTS
                .iter()
                .map(|(protocol, port)| {
                    json!({"containerPort": port, "protocol": protocol,
                           "name": format!("serve-{port}-{}", protocol.to_lowercase())})
                })
                .collect();
            all.push(json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"namespace": namespace, "name": pod, "labels": {"pod": pod}},
                "spec": {"nodeName": node, "containers": [{"name": "serve", "image": "agnhost:2",
                                                           "ports": ports}]},
                "status": {"phase": "Running", "podIP": format!("10.0.{n}.{p}"),
                           "podIPs": [{"ip": format!("10.0.{n}.{p}")},
                                      {"ip": format!("fd00:{n}::{p}")}]}}));
        }
    }
    for (i, (_, node)) in (1..).zip(NODES) {
        all.push(json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": node, "labels": {"kubernetes.io/hostname": node, "kubernetes.io/os": "linux"}},
            "spec": {"podCIDR": "10.0.0.0/16"},
            "status": {"addresses": [{"type": "InternalIP", "address": format!("192.168.0.{i}")},
                                     {"type": "Hostname", "address": node}]}}));
        all.push(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "z", "name": format!("host-{node}"), "labels": {"pod": "a"}},
            "spec": {"nodeName": node, "hostNetwork": true, "containers": []},
            "status": {"podIPs": [{"ip": format!("192.168.0.{i}")}]}}));
    }
    all
}

/// All pods that have a network of their own.
pub(super) fn pods() -> Vec<String> {
    let pods = ["x", "y", "z"].into_iter();
    pods.flat_map(|namespace| ["a", "b", "c"].map(|pod| format!("{namespace}/{pod}"))).collect()
}

impl Truth {
    /// Everything is expected to be allowed.
    pub(super) fn of(policies: &str) -> Self {
        Self::with(policies, GroupMode::Discover, &[])
    }

    pub(super) fn with(policies: &str, mode: GroupMode, more: &[Value]) -> Self {
        let mut inputs = Inputs::new(Settings { mode, ..Settings::default() });
        for document in cluster().iter().chain(more) {
            assert!(inputs.add_cluster(document).unwrap(), "{document}");
        }
        for document in documents(policies) {
            let warnings = inputs.add_policy(&document).unwrap();
            assert!(warnings.is_empty() || policies.contains("# warns"), "{warnings:?}");
        }
        inputs.complete();
        let compiler = inputs.compiler();
        let programs = compiler.nodes().map(|it| (it.to_string(), compiler.program(it, 1)));
        let programs = programs.collect();
        let mut expected = BTreeMap::new();
        for from in pods() {
            for to in pods() {
                for (protocol, port) in PORTS {
                    expected.insert((from.clone(), to.clone(), protocol.to_owned(), port), true);
                }
            }
        }
        Self { inputs, programs, expected }
    }

    /// Expects an answer for all ends and ports that fit: `x/a`, `x/*`, `*/a`, `*`; `TCP/80`, `TCP`, `*`.
    /// What a pod sends to itself is always allowed.
    pub(super) fn expect(mut self, from: &str, to: &str, ports: &str, allowed: bool) -> Self {
        let mut fitting = 0;
        for ((source, destination, protocol, port), expected) in &mut self.expected {
            let text = format!("{protocol}/{port}");
            let port_fits = ports == "*" || ports == protocol.as_str() || ports == text;
            if port_fits && fits(from, source) && fits(to, destination) {
                fitting += 1;
                *expected = allowed || source == destination;
            }
        }
        assert!(fitting > 0, "nothing fits to {from} {to} {ports}");
        self
    }

    pub(super) fn deny(self, from: &str, to: &str, ports: &str) -> Self {
        self.expect(from, to, ports, false)
    }

    pub(super) fn allow(self, from: &str, to: &str, ports: &str) -> Self {
        self.expect(from, to, ports, true)
    }

    /// Compares the whole table.
    pub(super) fn holds(self) -> Self {
        let mut wrong = Vec::new();
        for ((from, to, protocol, port), expected) in &self.expected {
            let answer = self.answer(from, to, protocol, *port);
            if answer.allowed() != *expected {
                wrong.push(format!(
                    "{from} to {to} {protocol}/{port}: {} (egress: {}; ingress: {}), expected {}",
                    answer.verdict, answer.egress.why, answer.ingress.why, expected
                ));
            }
        }
        assert!(
            wrong.is_empty(),
            "{} of {}:\n{}",
            wrong.len(),
            self.expected.len(),
            wrong.join("\n")
        );
        self
    }

    /// Decides by the evaluator and by the programs, which must agree. Ends are pods or addresses.
    pub(super) fn answer(&self, from: &str, to: &str, protocol: &str, port: u16) -> Answer {
        let probe = Probe {
            from: from.to_owned(),
            to: to.to_owned(),
            protocol: protocol.to_owned(),
            port: (port > 0).then_some(ProbePort::Number(port)),
            to_name: None,
        };
        let answer = probe.answer(&self.inputs.cluster, &self.inputs.policies).unwrap();
        let connection = probe.connection(&self.inputs.cluster).unwrap();
        let by_programs =
            self.passes(&connection.from, &connection.to, connection.protocol, connection.port);
        assert_eq!(
            by_programs,
            answer.allowed(),
            "the programs differ: {from} to {to}: {answer:?}"
        );
        answer
    }

    pub(super) fn probe(&self, probe: &Value) -> Result<Answer, String> {
        let probe: Probe = serde_json::from_value(probe.clone()).unwrap();
        probe.answer(&self.inputs.cluster, &self.inputs.policies)
    }

    fn passes(&self, from: &End, to: &End, protocol: Protocol, port: u16) -> bool {
        let (source, destination): (IpAddr, IpAddr) = (from.address.unwrap(), to.address.unwrap());
        let node = |end: &End| end.pod.as_ref().map(|pod| pod.node.to_string());
        let judged = |end: &End| {
            let node = node(end)?;
            let from_own_node = from.node.as_deref() == Some(node.as_str());
            let to_own_node = to.node.as_deref() == Some(node.as_str());
            let packet = Packet { source, destination, protocol, port, from_own_node, to_own_node };
            Some(self.programs.get(&node)?.judge(&packet))
        };
        let egress = judged(from).is_none_or(|it| !it.egress.denied);
        let ingress = judged(to).is_none_or(|it| !it.ingress.denied);
        egress && ingress
    }
}

fn fits(pattern: &str, pod: &str) -> bool {
    let (namespace, name) = pod.split_once('/').unwrap();
    match pattern.split_once('/') {
        None => pattern == "*",
        Some((wanted, of)) => (wanted == "*" || wanted == namespace) && (of == "*" || of == name),
    }
}
