#![allow(clippy::needless_pass_by_value, reason = "documents are written where they are used")]

use serde_json::{Value, json};

use super::{Document, read};

fn wrong(document: Value) -> String {
    match read(&document) {
        Ok(document) => format!("{document:?} was read"),
        Err(problems) => problems.to_string(),
    }
}

fn network_policy(spec: Value) -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
           "metadata": {"namespace": "x", "name": "p"}, "spec": spec})
}

fn cluster_policy(spec: Value) -> Value {
    let mut all = json!({"tier": "Admin", "priority": 1, "subject": {"namespaces": {}}});
    for (key, value) in spec.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    json!({"apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy",
           "metadata": {"name": "p"}, "spec": all})
}

#[test]
fn what_is_wrong_with_a_network_policy_is_said_by_field() {
    let ingress = |rule: Value| network_policy(json!({"podSelector": {}, "ingress": [rule]}));
    let port = |port: Value| ingress(json!({"ports": [port]}));
    let peer = |peer: Value| ingress(json!({"from": [peer]}));
    let cases = [
        (json!({"metadata": {}}), "kind: is missing"),
        (
            network_policy(json!({"podSelector": {"matchLabels": {"a b": "c"}}})),
            "spec.podSelector.matchLabels: ",
        ),
        (
            network_policy(json!({"podSelector": {}, "policyTypes": ["ingress"]})),
            "spec.policyTypes[0]: is \"ingress\"; it is Ingress or Egress",
        ),
        (
            network_policy(json!({"podSelector": {}, "ingres": []})),
            "spec.ingres: there is no such field",
        ),
        (
            port(json!({"port": 70000})),
            "spec.ingress[0].ports[0].port: is 70000; a port is 1 to 65535",
        ),
        (port(json!({"port": 0})), "ports[0].port: is 0"),
        (port(json!({"port": "80 "})), "is no name of a port"),
        (port(json!({"port": 80, "endPort": 79})), "ports[0].endPort: 79 is before 80"),
        (port(json!({"endPort": 79})), "endPort: needs a port to begin with"),
        (port(json!({"port": "http", "endPort": 79})), "endPort: needs a port that is a number"),
        (
            port(json!({"port": 80, "protocol": "tcp"})),
            "ports[0].protocol: is \"tcp\"; it is TCP, UDP or SCTP",
        ),
        (port(json!({"port": {}})), "spec.ingress[0].ports[0].port: "),
        (port(json!({"prot": 80})), "spec.ingress[0].ports[0].prot: there is no such field"),
        (peer(json!({})), "spec.ingress[0].from[0]: names nobody"),
        (
            peer(json!({"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}})),
            "an ipBlock stands alone",
        ),
        (
            peer(json!({"ipBlock": {"cidr": "10.0.0.1"}})),
            "ipBlock.cidr: \"10.0.0.1\" is no network, which is as 10.0.0.0/8; one address has /32",
        ),
        (
            peer(json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/9"]}})),
            "ipBlock.except[0]: 11.0.0.0/9 is not a part of 10.0.0.0/8",
        ),
        (
            peer(json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}})),
            "matchExpressions[0]: has no values",
        ),
        (
            peer(
                json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]}}),
            ),
            "has the operator \"Like\"",
        ),
    ];
    for (document, expected) in cases {
        let problems = wrong(document.clone());
        assert!(problems.contains(expected), "{document}\n{problems}");
    }
}

#[test]
fn what_is_wrong_with_a_cluster_policy_is_said_by_field() {
    let egress = |rule: Value| cluster_policy(json!({"egress": [rule]}));
    let peer = |peer: Value| egress(json!({"action": "Deny", "to": [peer]}));
    let protocol = |it: Value| {
        egress(json!({"action": "Deny", "to": [{"namespaces": {}}], "protocols": [it]}))
    };
    let cases = [
        (
            cluster_policy(json!({"tier": "admin"})),
            "spec.tier: is \"admin\"; it is Admin or Baseline",
        ),
        (cluster_policy(json!({"priority": 1001})), "spec.priority: is 1001; it is 0 to 1000"),
        (
            cluster_policy(json!({"subject": {}})),
            "spec.subject: has exactly one of namespaces and pods",
        ),
        (cluster_policy(json!({"subjects": {}})), "spec.subjects: there is no such field"),
        (
            peer(json!({"namespaces": {"namespaceSelector": {"matchLabels": {"a": "b"}}}})),
            "spec.egress[0].to[0].namespaces.namespaceSelector: there is no such field",
        ),
        (
            egress(json!({"action": "Allow", "to": [{"namespaces": {}}]})),
            "spec.egress[0].action: is \"Allow\"; it is Accept, Deny or Pass",
        ),
        (egress(json!({"action": "Deny"})), "spec.egress[0].to: is empty"),
        (
            egress(json!({"action": "Deny", "from": [{"namespaces": {}}]})),
            "spec.egress[0].from: there is no such field in egress",
        ),
        (peer(json!({"namespaces": {}, "nodes": {}})), "to[0]: has several kinds of peers"),
        (
            peer(json!({"networks": ["10.0.0.0/33"]})),
            "to[0].networks[0]: \"10.0.0.0/33\" is no network",
        ),
        (peer(json!({"domainNames": ["example.com"]})), "domain names are for rules that accept"),
        (
            egress(json!({"action": "Accept", "to": [{"domainNames": ["*"]}]})),
            "domainNames[0]: \"*\" is no domain name",
        ),
        (
            egress(
                json!({"action": "Accept", "to": [{"nodes": {}}], "protocols": [{"destinationNamedPort": "web"}]}),
            ),
            "write two rules",
        ),
        (
            protocol(json!({"tcp": {"destinationPort": {"number": 0}}})),
            "destinationPort.number: is 0",
        ),
        (
            protocol(json!({"tcp": {"destinationPort": {"range": {"start": 9, "end": 8}}}})),
            "range.end: 8 is before 9",
        ),
        (protocol(json!({"tcp": {}, "udp": {}})), "has several protocols"),
        (
            egress(json!({"action": "Deny", "to": [{"namespaces": {}}], "ports": []})),
            "spec.egress[0].ports: there is no such field; it is protocols in this version",
        ),
    ];
    for (document, expected) in cases {
        let problems = wrong(document.clone());
        assert!(problems.contains(expected), "{document}\n{problems}");
    }
    let mut old = cluster_policy(json!({}));
    old["apiVersion"] = json!("policy.networking.k8s.io/v1alpha9");
    assert!(wrong(old).contains("apiVersion: "));
}

#[test]
fn addresses_of_pods_are_checked() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
                     "status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0"}]}});
    assert!(wrong(pod).contains("status.podIPs[1].ip: \"10.0.0\" is no address"));
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
                     "spec": {"containers": [{"name": "c", "ports": [{"containerPort": "x"}]}]}});
    assert!(wrong(pod).starts_with("spec.containers[0].ports[0].containerPort: "));
}

#[test]
fn what_kubectl_prints_is_read() {
    let policy = network_policy(json!({"podSelector": null, "ingress": [], "egress": [{}],
                                       "policyTypes": ["Ingress", "Egress"]}));
    assert!(matches!(read(&policy), Ok(Document::Policy(..))), "{}", wrong(policy));
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
    assert!(matches!(read(&deployment), Ok(Document::Other(_))));
}

#[test]
fn a_cluster_that_is_written_reads_as_the_same() {
    let written = [
        json!({"apiVersion": "v1", "kind": "Namespace",
               "metadata": {"name": "shop", "labels": {"team": "a"}}}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"z": "1"}},
               "spec": {"podCIDRs": ["10.0.0.0/24", "fd00::/64"]},
               "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
               "spec": {"clusterIPs": ["10.96.0.1"], "externalIPs": ["203.0.113.1"],
                        "selector": {"app": "web"}}}),
        json!({"apiVersion": "fairlead.dev/v1alpha1", "kind": "AddressPool", "metadata": {"name": "p"},
               "spec": {"blockSizeBits": 5, "subnets": [{"ipv4": "10.64.0.0/16"}]}}),
        json!({"apiVersion": "v1", "kind": "Pod",
               "metadata": {"name": "web-0", "namespace": "shop", "labels": {"app": "web"},
                            "creationTimestamp": "2026-01-02T03:04:05Z",
                            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet",
                                                 "name": "web", "uid": "u", "controller": true}]},
               "spec": {"nodeName": "n1", "containers": [
                   {"name": "a", "image": "x:1", "ports": [
                       {"name": "http", "containerPort": 8080},
                       {"name": "dns", "containerPort": 53, "protocol": "UDP"}]},
                   {"name": "b", "image": "y:2"}]},
               "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.5"}, {"ip": "fd00::5"}]}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "done", "namespace": "shop"},
               "spec": {"hostNetwork": true, "containers": []}, "status": {"phase": "Failed"}}),
    ];
    let cluster = |documents: &[Value]| {
        let mut inputs = crate::Inputs::default();
        for document in documents {
            assert_eq!(inputs.add_cluster(document), Ok(true), "{document}");
        }
        inputs.cluster
    };
    let first = cluster(&written);
    assert_eq!(cluster(&super::documents(&first)), first);
}
