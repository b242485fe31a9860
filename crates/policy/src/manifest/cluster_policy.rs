//! Reads ClusterNetworkPolicy (v1alpha2), and AdminNetworkPolicy and BaselineAdminNetworkPolicy
//! (v1alpha1), which are converted to it.
//!
//! A peer or a protocol without a field that is known here is of a later version of the API: the rule
//! fails closed, as the API's documents have it. One that accepts matches nothing; one that denies or
//! passes denies everything.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use objects::kinds::{Ports, Protocol};
use objects::{Invalid, Selector};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::network_policy::{cidr, number, port_name, range};
use super::{name, parse_whole, selector};
use crate::cluster::protocol;
use crate::compile::Change;
use crate::program::{PolicyKind, TierKind};
use crate::spec::{
    Action, ActionRule, ClusterPolicy, NamespaceSelection, Peer, PodSelection, PortMatch,
};

/// The priority of a BaselineAdminNetworkPolicy, which has none: after every other of its tier.
const LAST: i32 = 1000;

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    #[serde(default)]
    metadata: ObjectMeta,
    spec: Spec,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tier: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<i32>,
    subject: Subject,
    #[serde(default)]
    ingress: Vec<WrittenRule>,
    #[serde(default)]
    egress: Vec<WrittenRule>,
}

#[derive(Deserialize, Serialize)]
struct Subject {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespaces: Option<LabelSelector>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pods: Option<NamespacedPod>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct NamespacedPod {
    #[serde(default)]
    namespace_selector: LabelSelector,
    #[serde(default)]
    pod_selector: LabelSelector,
}

#[derive(Deserialize, Serialize)]
struct WrittenRule {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    action: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<Vec<WrittenPeer>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<Vec<WrittenPeer>>,
    /// Of v1alpha2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    protocols: Option<Vec<WrittenProtocol>>,
    /// Of v1alpha1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ports: Option<Vec<WrittenPort>>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenPeer {
    namespaces: Option<LabelSelector>,
    pods: Option<NamespacedPod>,
    nodes: Option<LabelSelector>,
    networks: Option<Vec<String>>,
    domain_names: Option<Vec<String>>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenProtocol {
    tcp: Option<Transport>,
    udp: Option<Transport>,
    sctp: Option<Transport>,
    destination_named_port: Option<String>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Transport {
    destination_port: Option<DestinationPort>,
}

#[derive(Deserialize, Serialize)]
struct DestinationPort {
    number: Option<i32>,
    range: Option<PortRange>,
}

#[derive(Deserialize, Serialize)]
struct PortRange {
    protocol: Option<String>,
    start: i32,
    end: i32,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenPort {
    port_number: Option<PortNumber>,
    named_port: Option<String>,
    port_range: Option<PortRange>,
}

#[derive(Deserialize, Serialize)]
struct PortNumber {
    protocol: Option<String>,
    port: i32,
}

struct Reader {
    kind: PolicyKind,
    problems: Invalid,
    warnings: Vec<String>,
}

pub(super) fn read(kind: PolicyKind, document: &Value) -> Result<(Change, Vec<String>), Invalid> {
    let written: Written = parse_whole(document, &["from", "to", "protocols", "ports"])?;
    let name = name(&written.metadata)?;
    let mut reader = Reader { kind, problems: Invalid::default(), warnings: Vec::new() };
    let Spec { tier, priority, subject, ingress, egress } = written.spec;
    let tier = reader.tier(tier.as_deref());
    let priority = reader.priority(priority);
    if kind == PolicyKind::BaselineAdminNetworkPolicy && *name != *"default" {
        reader
            .problems
            .add("metadata.name", format!("is {name:?}; the only one is called default"));
    }
    let subject = reader.subject(&subject);
    let ingress = reader.rules("ingress", ingress);
    let egress = reader.rules("egress", egress);
    reader.problems.into_result()?;
    let policy = ClusterPolicy {
        kind,
        name: Arc::clone(&name),
        tier,
        priority,
        subject: subject.unwrap_or_else(everything),
        ingress,
        egress,
    };
    Ok((Change::ClusterPolicy((kind, name), Some(Arc::new(policy))), reader.warnings))
}

fn everything() -> PodSelection {
    let namespaces = NamespaceSelection::Labelled(Selector::default());
    PodSelection { namespaces, pods: Selector::default() }
}

impl Reader {
    fn tier(&mut self, tier: Option<&str>) -> TierKind {
        match (self.kind, tier) {
            (PolicyKind::AdminNetworkPolicy, None)
            | (PolicyKind::ClusterNetworkPolicy, Some("Admin")) => TierKind::Admin,
            (PolicyKind::BaselineAdminNetworkPolicy, None)
            | (PolicyKind::ClusterNetworkPolicy, Some("Baseline")) => TierKind::Baseline,
            (PolicyKind::ClusterNetworkPolicy, other) => {
                let is = other.map_or("is missing".to_owned(), |other| format!("is {other:?}"));
                self.problems.add("spec.tier", format!("{is}; it is Admin or Baseline"));
                TierKind::Admin
            }
            _ => {
                self.problems.add("spec.tier", "there is no such field");
                TierKind::Admin
            }
        }
    }

    fn priority(&mut self, priority: Option<i32>) -> i32 {
        match (self.kind, priority) {
            (PolicyKind::BaselineAdminNetworkPolicy, None) => LAST,
            (PolicyKind::BaselineAdminNetworkPolicy, Some(_)) => {
                self.problems.add("spec.priority", "there is no such field");
                LAST
            }
            (_, Some(priority)) if (0..=LAST).contains(&priority) => priority,
            (_, Some(priority)) => {
                self.problems.add("spec.priority", format!("is {priority}; it is 0 to 1000"));
                LAST
            }
            (_, None) => {
                self.problems.add("spec.priority", "is missing; it is 0 to 1000");
                LAST
            }
        }
    }

    fn subject(&mut self, subject: &Subject) -> Option<PodSelection> {
        match (&subject.namespaces, &subject.pods) {
            (Some(namespaces), None) => {
                Some(self.namespaces("spec.subject.namespaces", namespaces))
            }
            (None, Some(pods)) => Some(self.pods("spec.subject.pods", pods)),
            _ => {
                self.problems.add("spec.subject", "has exactly one of namespaces and pods");
                None
            }
        }
    }

    fn namespaces(&mut self, at: &str, labels: &LabelSelector) -> PodSelection {
        let labels = selector(&mut self.problems, at, labels);
        let namespaces = NamespaceSelection::Labelled(labels);
        PodSelection { namespaces, pods: Selector::default() }
    }

    fn pods(&mut self, at: &str, pods: &NamespacedPod) -> PodSelection {
        let NamespacedPod { namespace_selector, pod_selector } = pods;
        let problems = &mut self.problems;
        let namespaces = selector(problems, &format!("{at}.namespaceSelector"), namespace_selector);
        let pods = selector(problems, &format!("{at}.podSelector"), pod_selector);
        PodSelection { namespaces: NamespaceSelection::Labelled(namespaces), pods }
    }

    fn rules(&mut self, field: &str, rules: Vec<WrittenRule>) -> Vec<ActionRule> {
        let rules = rules.into_iter().enumerate();
        rules.filter_map(|(i, rule)| self.rule(field, i, rule)).collect()
    }

    fn rule(&mut self, field: &str, place: usize, rule: WrittenRule) -> Option<ActionRule> {
        let at = format!("spec.{field}[{place}]");
        let is_admin = self.kind != PolicyKind::ClusterNetworkPolicy;
        let action = match rule.action.as_str() {
            "Accept" if !is_admin => Action::Accept,
            "Allow" if is_admin => Action::Accept,
            "Deny" => Action::Deny,
            "Pass" if self.kind != PolicyKind::BaselineAdminNetworkPolicy => Action::Pass,
            other => {
                let words = match self.kind {
                    PolicyKind::BaselineAdminNetworkPolicy => "Allow or Deny",
                    PolicyKind::AdminNetworkPolicy => "Allow, Deny or Pass",
                    _ => "Accept, Deny or Pass",
                };
                self.problems.add(format!("{at}.action"), format!("is {other:?}; it is {words}"));
                return None;
            }
        };
        let is_egress = field == "egress";
        let (peers, wrong, peer_field) =
            if is_egress { (rule.to, rule.from, "to") } else { (rule.from, rule.to, "from") };
        if wrong.is_some() {
            let other = if is_egress { "from" } else { "to" };
            self.problems
                .add(format!("{at}.{other}"), format!("there is no such field in {field}"));
        }
        let Some(peers) = peers.filter(|peers| !peers.is_empty()) else {
            self.problems
                .add(format!("{at}.{peer_field}"), "is empty; whom does the rule speak of?");
            return None;
        };
        let mut read = Vec::new();
        let mut is_known = true;
        for (i, peer) in peers.iter().enumerate() {
            let at = format!("{at}.{peer_field}[{i}]");
            match self.peer(&at, peer, action, is_egress) {
                Some(peer) => read.push(peer),
                None => is_known = false,
            }
        }
        let ports = self.rule_ports(&at, rule.protocols.as_deref(), rule.ports.as_deref());
        is_known &= ports.is_some();
        let ports = ports.unwrap_or_default();
        let named = ports.iter().any(|port| matches!(port, PortMatch::Named { .. }));
        let portless =
            |peer: &Peer| matches!(peer, Peer::Networks { .. } | Peer::Nodes(_) | Peer::Domains(_));
        if is_egress && named && read.iter().any(portless) {
            let problem = "has peers without named ports (networks, nodes, domainNames) and a named \
                           port; write two rules";
            self.problems.add(at.clone(), problem);
        }
        let name = rule.name.filter(|name| !name.is_empty()).map(Arc::from);
        if is_known {
            return Some(ActionRule { name, action, peers: read, ports });
        }
        // The place of every rule stays what it is in the manifest.
        let what = match action {
            Action::Accept => "it accepts nothing",
            Action::Deny | Action::Pass => "it denies everything",
        };
        self.warnings.push(format!("{at} has a peer or a protocol that is not known here: {what}"));
        Some(match action {
            Action::Accept => ActionRule { name, action, peers: Vec::new(), ports: Vec::new() },
            Action::Deny | Action::Pass => ActionRule {
                name,
                action: Action::Deny,
                peers: vec![Peer::Everyone],
                ports: Vec::new(),
            },
        })
    }

    /// None: it is of a kind that is not known here.
    fn peer(
        &mut self,
        at: &str,
        peer: &WrittenPeer,
        action: Action,
        is_egress: bool,
    ) -> Option<Peer> {
        let WrittenPeer { namespaces, pods, nodes, networks, domain_names } = peer;
        let set = [
            namespaces.is_some(),
            pods.is_some(),
            nodes.is_some(),
            networks.is_some(),
            domain_names.is_some(),
        ];
        if set.iter().filter(|it| **it).count() > 1 {
            self.problems.add(at, "has several kinds of peers; each is a peer of its own");
            return Some(Peer::Everyone);
        }
        if !is_egress && (nodes.is_some() || networks.is_some() || domain_names.is_some()) {
            return None;
        }
        if let Some(namespaces) = namespaces {
            return Some(Peer::Pods(self.namespaces(&format!("{at}.namespaces"), namespaces)));
        }
        if let Some(pods) = pods {
            return Some(Peer::Pods(self.pods(&format!("{at}.pods"), pods)));
        }
        if let Some(nodes) = nodes {
            return Some(Peer::Nodes(selector(&mut self.problems, &format!("{at}.nodes"), nodes)));
        }
        if let Some(networks) = networks {
            let problems = &mut self.problems;
            let read = networks
                .iter()
                .enumerate()
                .filter_map(|(i, text)| cidr(problems, &format!("{at}.networks[{i}]"), text));
            return Some(Peer::Networks { networks: read.collect(), except: Vec::new() });
        }
        let names = domain_names.as_ref()?;
        if action != Action::Accept {
            let problem = "domain names are for rules that accept: what a name stands for is never \
                           known whole";
            self.problems.add(format!("{at}.domainNames"), problem);
        }
        let mut read = Vec::new();
        for (i, name) in names.iter().enumerate() {
            match domain(name) {
                Some(name) => read.push(name),
                None => self.problems.add(
                    format!("{at}.domainNames[{i}]"),
                    format!("{name:?} is no domain name, which is as example.com or *.example.com"),
                ),
            }
        }
        Some(Peer::Domains(read))
    }

    /// None: one is of a kind that is not known here.
    fn rule_ports(
        &mut self,
        at: &str,
        protocols: Option<&[WrittenProtocol]>,
        ports: Option<&[WrittenPort]>,
    ) -> Option<Vec<PortMatch>> {
        let is_admin = self.kind != PolicyKind::ClusterNetworkPolicy;
        let (field, wrong) =
            if is_admin { ("ports", protocols.is_some()) } else { ("protocols", ports.is_some()) };
        if wrong {
            let other = if is_admin { "protocols" } else { "ports" };
            let problem = format!("there is no such field; it is {field} in this version");
            self.problems.add(format!("{at}.{other}"), problem);
        }
        let count = protocols.map(<[_]>::len).or(ports.map(<[_]>::len));
        if count == Some(0) {
            self.problems.add(format!("{at}.{field}"), "is empty; leave it out to mean all");
        }
        let mut all = Vec::new();
        for (i, protocol) in protocols.into_iter().flatten().enumerate() {
            all.extend(self.protocol(&format!("{at}.protocols[{i}]"), protocol)?);
        }
        for (i, port) in ports.into_iter().flatten().enumerate() {
            all.extend(self.port(&format!("{at}.ports[{i}]"), port)?);
        }
        Some(all)
    }

    fn protocol(&mut self, at: &str, written: &WrittenProtocol) -> Option<Option<PortMatch>> {
        let WrittenProtocol { tcp, udp, sctp, destination_named_port } = written;
        let transports = [
            ("tcp", Protocol::TCP, tcp),
            ("udp", Protocol::UDP, udp),
            ("sctp", Protocol::SCTP, sctp),
        ];
        let set: Vec<_> =
            transports.iter().filter_map(|(f, p, it)| Some((*f, *p, it.as_ref()?))).collect();
        match (set.as_slice(), destination_named_port) {
            ([], None) => None,
            ([], Some(name)) => {
                let at = format!("{at}.destinationNamedPort");
                let name = port_name(&mut self.problems, &at, name);
                Some(name.map(|name| PortMatch::Named { protocol: None, name }))
            }
            ([(field, protocol, transport)], None) => {
                let at = format!("{at}.{field}.destinationPort");
                let Some(port) = &transport.destination_port else {
                    return Some(Some(PortMatch::Numbers(Ports::all(*protocol))));
                };
                match (port.number, &port.range) {
                    (Some(port), None) => {
                        let port = number(&mut self.problems, &format!("{at}.number"), port);
                        Some(range(&mut self.problems, &at, *protocol, port, port))
                    }
                    (None, Some(written)) => {
                        Some(self.range(&format!("{at}.range"), *protocol, written))
                    }
                    (None, None) => None,
                    (Some(_), Some(_)) => {
                        self.problems.add(at, "has a number and a range; it has one of them");
                        Some(None)
                    }
                }
            }
            _ => {
                self.problems.add(at, "has several protocols; each is an entry of its own");
                Some(None)
            }
        }
    }

    fn port(&mut self, at: &str, port: &WrittenPort) -> Option<Option<PortMatch>> {
        let WrittenPort { port_number, named_port, port_range } = port;
        match (port_number, named_port, port_range) {
            (None, None, None) => None,
            (Some(written), None, None) => {
                let at = format!("{at}.portNumber");
                let protocol = self.transport(&at, written.protocol.as_deref());
                let port = number(&mut self.problems, &format!("{at}.port"), written.port);
                Some(range(&mut self.problems, &at, protocol, port, port))
            }
            (None, Some(name), None) => {
                let name = port_name(&mut self.problems, &format!("{at}.namedPort"), name);
                Some(name.map(|name| PortMatch::Named { protocol: None, name }))
            }
            (None, None, Some(written)) => {
                let at = format!("{at}.portRange");
                let protocol = self.transport(&at, written.protocol.as_deref());
                Some(self.range(&at, protocol, written))
            }
            _ => {
                self.problems.add(at, "has several kinds of ports; each is an entry of its own");
                Some(None)
            }
        }
    }

    fn range(&mut self, at: &str, protocol: Protocol, written: &PortRange) -> Option<PortMatch> {
        let first = number(&mut self.problems, &format!("{at}.start"), written.start);
        let last = number(&mut self.problems, &format!("{at}.end"), written.end);
        range(&mut self.problems, &format!("{at}.end"), protocol, first, last)
    }

    fn transport(&mut self, at: &str, text: Option<&str>) -> Protocol {
        let text = text.unwrap_or("TCP");
        protocol(text).unwrap_or_else(|| {
            let problem = format!("is {text:?}; it is TCP, UDP or SCTP");
            self.problems.add(format!("{at}.protocol"), problem);
            Protocol::TCP
        })
    }
}

/// A domain name, lowercase and without a dot at the end.
fn domain(text: &str) -> Option<Arc<str>> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let plain = name.strip_prefix("*.").unwrap_or(&name);
    let word = |word: &str| {
        let in_word = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
        (1..=63).contains(&word.len())
            && word.bytes().all(in_word)
            && edge(word.bytes().next())
            && edge(word.bytes().last())
    };
    let right = plain.contains('.') && plain.len() <= 253 && plain.split('.').all(word);
    right.then(|| name.into())
}
