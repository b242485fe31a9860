//! Reads Kubernetes' NetworkPolicy.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy as Written, NetworkPolicyPeer, NetworkPolicyPort,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use objects::Invalid;
use objects::kinds::{Ports, Protocol};

use super::selector;
use crate::cluster::{Key, protocol};
use crate::spec::{AcceptRule, NamespaceSelection, NetworkPolicy, Peer, PodSelection, PortMatch};

pub(super) fn read(key: &Key, written: &Written) -> Result<NetworkPolicy, Invalid> {
    let mut problems = Invalid::default();
    let Some(spec) = &written.spec else {
        return Err(super::one("spec", "is missing: what may the policy's pods do?"));
    };
    let types = spec.policy_types.as_deref().unwrap_or_default();
    for (i, word) in types.iter().enumerate() {
        if !matches!(word.as_str(), "Ingress" | "Egress") {
            let problem = format!("is {word:?}; it is Ingress or Egress");
            problems.add(format!("spec.policyTypes[{i}]"), problem);
        }
    }
    let has = |word: &str| types.iter().any(|it| it == word);
    let egress_rules = spec.egress.as_deref().unwrap_or_default();
    let is_ingress = types.is_empty() || has("Ingress");
    let is_egress = has("Egress") || types.is_empty() && !egress_rules.is_empty();
    let none = LabelSelector::default();
    let pods =
        selector(&mut problems, "spec.podSelector", spec.pod_selector.as_ref().unwrap_or(&none));
    let mut rule = |at: String, peers: Option<&Vec<NetworkPolicyPeer>>, field, ports| AcceptRule {
        peers: read_peers(&mut problems, key, &format!("{at}.{field}"), peers),
        ports: read_ports(&mut problems, &format!("{at}.ports"), ports),
    };
    let ingress: Vec<_> = spec
        .ingress
        .iter()
        .flatten()
        .enumerate()
        .map(|(i, it)| {
            rule(format!("spec.ingress[{i}]"), it.from.as_ref(), "from", it.ports.as_ref())
        })
        .collect();
    let egress: Vec<_> = egress_rules
        .iter()
        .enumerate()
        .map(|(i, it)| rule(format!("spec.egress[{i}]"), it.to.as_ref(), "to", it.ports.as_ref()))
        .collect();
    problems.into_result()?;
    Ok(NetworkPolicy {
        key: key.clone(),
        pods,
        ingress: is_ingress.then_some(ingress),
        egress: is_egress.then_some(egress),
    })
}

fn read_peers(
    problems: &mut Invalid,
    key: &Key,
    at: &str,
    peers: Option<&Vec<NetworkPolicyPeer>>,
) -> Vec<Peer> {
    let Some(peers) = peers.filter(|peers| !peers.is_empty()) else {
        return vec![Peer::Everyone];
    };
    let mut all = Vec::new();
    for (i, peer) in peers.iter().enumerate() {
        let at = format!("{at}[{i}]");
        let NetworkPolicyPeer { ip_block, namespace_selector, pod_selector } = peer;
        match (ip_block, namespace_selector, pod_selector) {
            (None, None, None) => {
                problems.add(at, "names nobody: it has ipBlock, namespaceSelector or podSelector");
            }
            (Some(block), None, None) => {
                all.extend(read_block(problems, &format!("{at}.ipBlock"), block));
            }
            (Some(_), ..) => {
                problems.add(at, "has an ipBlock and selectors; an ipBlock stands alone");
            }
            (None, namespaces, pods) => {
                let none = LabelSelector::default();
                let namespaces = match namespaces {
                    None => NamespaceSelection::Named(Arc::clone(&key.namespace)),
                    Some(labels) => {
                        let at = format!("{at}.namespaceSelector");
                        NamespaceSelection::Labelled(selector(problems, &at, labels))
                    }
                };
                let labels = pods.as_ref().unwrap_or(&none);
                let pods = selector(problems, &format!("{at}.podSelector"), labels);
                all.push(Peer::Pods(PodSelection { namespaces, pods }));
            }
        }
    }
    all
}

fn read_block(problems: &mut Invalid, at: &str, block: &IPBlock) -> Option<Peer> {
    let network = cidr(problems, &format!("{at}.cidr"), &block.cidr);
    let mut except = Vec::new();
    for (i, text) in block.except.iter().flatten().enumerate() {
        let at = format!("{at}.except[{i}]");
        let Some(hole) = cidr(problems, &at, text) else { continue };
        if network.is_some_and(|it| !it.contains(&hole) || it == hole) {
            problems.add(at, format!("{text} is not a part of {}", block.cidr));
        }
        except.push(hole);
    }
    Some(Peer::Networks { networks: vec![network?], except })
}

/// A network; bits behind its prefix do not count.
pub(super) fn cidr(problems: &mut Invalid, at: &str, text: &str) -> Option<IpNet> {
    let network = text.parse::<IpNet>().ok().map(|network| network.trunc());
    if network.is_none() {
        let hint =
            if text.parse::<IpAddr>().is_ok() { "; one address has /32 or /128" } else { "" };
        problems.add(at, format!("{text:?} is no network, which is as 10.0.0.0/8{hint}"));
    }
    network
}

fn read_ports(
    problems: &mut Invalid,
    at: &str,
    ports: Option<&Vec<NetworkPolicyPort>>,
) -> Vec<PortMatch> {
    let mut all = Vec::new();
    for (i, port) in ports.into_iter().flatten().enumerate() {
        let at = format!("{at}[{i}]");
        let text = port.protocol.as_deref().unwrap_or("TCP");
        let Some(protocol) = protocol(text) else {
            problems.add(format!("{at}.protocol"), format!("is {text:?}; it is TCP, UDP or SCTP"));
            continue;
        };
        let end = port.end_port;
        match (&port.port, end) {
            (None, None) => all.push(PortMatch::Numbers(Ports::all(protocol))),
            (None, Some(_)) => problems.add(format!("{at}.endPort"), "needs a port to begin with"),
            (Some(IntOrString::String(_)), Some(_)) => {
                problems.add(format!("{at}.endPort"), "needs a port that is a number");
            }
            (Some(IntOrString::String(name)), None) => {
                if let Some(name) = port_name(problems, &format!("{at}.port"), name) {
                    all.push(PortMatch::Named { protocol: Some(protocol), name });
                }
            }
            (Some(IntOrString::Int(first)), end) => {
                let first = number(problems, &format!("{at}.port"), *first);
                let last = match end {
                    Some(end) => number(problems, &format!("{at}.endPort"), end),
                    None => first,
                };
                all.extend(range(problems, &format!("{at}.endPort"), protocol, first, last));
            }
        }
    }
    all
}

pub(super) fn range(
    problems: &mut Invalid,
    at: &str,
    protocol: Protocol,
    first: Option<u16>,
    last: Option<u16>,
) -> Option<PortMatch> {
    let (first, last) = (first?, last?);
    if first > last {
        problems.add(at, format!("{last} is before {first}"));
        return None;
    }
    Some(PortMatch::Numbers(Ports { protocol, first, last }))
}

pub(super) fn number(problems: &mut Invalid, at: &str, number: i32) -> Option<u16> {
    let port = u16::try_from(number).ok().filter(|port| *port > 0);
    if port.is_none() {
        problems.add(at, format!("is {number}; a port is 1 to 65535"));
    }
    port
}

/// The name of a container port.
pub(super) fn port_name(problems: &mut Invalid, at: &str, name: &str) -> Option<Arc<str>> {
    let in_name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let right = (1..=63).contains(&name.len())
        && name.bytes().all(in_name)
        && name.bytes().any(|b| b.is_ascii_lowercase());
    if !right {
        let problem = "is no name of a port, which is of a-z, 0-9 and '-' with a letter in it";
        problems.add(at, format!("{name:?} {problem}"));
        return None;
    }
    Some(name.into())
}
