//! Probes: connections that somebody asks about, and the answers. Both are a contract in JSON.

use std::net::IpAddr;
use std::sync::Arc;

use objects::kinds::Protocol;
use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, Key, Pod};
use crate::evaluate::{Connection, DecidedBy, Decision, DirectionDecision, End, decide};
use crate::program::{Direction, PolicyKind, Source, TierKind};
use crate::spec::Policies;

/// A connection that somebody asks about.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// `NAMESPACE/POD` or an address.
    pub from: String,
    pub to: String,
    #[serde(default = "tcp")]
    pub protocol: String,
    /// A number, or the name of a container port of the destination; none for protocols without ports.
    #[serde(default)]
    pub port: Option<ProbePort>,
    /// The domain name under which the source knows the destination's address.
    #[serde(default)]
    pub to_name: Option<String>,
}

fn tcp() -> String {
    "TCP".to_owned()
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum ProbePort {
    Number(u16),
    Name(String),
}

/// What becomes of the connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    pub from: String,
    pub to: String,
    pub protocol: String,
    pub port: Option<ProbePort>,
    /// `allow` or `deny`.
    pub verdict: &'static str,
    pub egress: DirectionAnswer,
    pub ingress: DirectionAnswer,
}

/// What one direction says of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DirectionAnswer {
    pub verdict: &'static str,
    /// `Quarantine`, `Admin`, `NetworkPolicy`, `Guard` or `Baseline`; null if no tier decided.
    pub tier: Option<String>,
    /// The policy that decided, with its namespace if it has one; of several that isolate a pod, the
    /// first.
    pub policy: Option<String>,
    /// As `ingress[0]`; null if it was for want of one.
    pub rule: Option<String>,
    /// The kind of the policy.
    pub kind: Option<String>,
    /// In a sentence.
    pub why: String,
}

impl Answer {
    pub fn allowed(&self) -> bool {
        self.verdict == ALLOW
    }
}

const ALLOW: &str = "allow";
const DENY: &str = "deny";

fn verdict(allowed: bool) -> &'static str {
    if allowed { ALLOW } else { DENY }
}

impl Probe {
    /// Decides; the error is a sentence that begins with the field.
    pub fn answer(&self, cluster: &Cluster, policies: &Policies) -> Result<Answer, String> {
        let decision = self.decide(cluster, policies)?;
        Ok(Answer {
            from: self.from.clone(),
            to: self.to.clone(),
            protocol: self.protocol.clone(),
            port: self.port.clone(),
            verdict: verdict(decision.allowed()),
            egress: DirectionAnswer::of(&decision.egress, Direction::Egress),
            ingress: DirectionAnswer::of(&decision.ingress, Direction::Ingress),
        })
    }

    pub fn decide(&self, cluster: &Cluster, policies: &Policies) -> Result<Decision, String> {
        Ok(decide(cluster, policies, &self.connection(cluster)?))
    }

    /// The connection that is meant.
    pub fn connection(&self, cluster: &Cluster) -> Result<Connection, String> {
        let (from, to) =
            (Named::find("from", &self.from, cluster)?, Named::find("to", &self.to, cluster)?);
        let (source, destination) = addresses(&from, &to)?;
        let protocol = protocol(&self.protocol)?;
        let port = self.number(protocol, &to, cluster)?;
        let (from, mut to) = (from.end(cluster, source), to.end(cluster, destination));
        to.name = self.to_name.as_ref().map(|name| {
            let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
            name.into()
        });
        Ok(Connection { from, to, protocol, port })
    }

    fn number(&self, protocol: Protocol, to: &Named, cluster: &Cluster) -> Result<u16, String> {
        let has_ports = [Protocol::TCP, Protocol::UDP, Protocol::SCTP].contains(&protocol);
        match &self.port {
            // Whatever it is, nothing looks at it.
            None | Some(ProbePort::Number(_)) if !has_ports => Ok(0),
            Some(_) if !has_ports => Err(format!("port: {} has no ports", self.protocol)),
            None => Err(format!("port: is missing; {} has ports", self.protocol)),
            Some(ProbePort::Number(0)) => Err("port: is 0; a port is 1 to 65535".to_owned()),
            Some(ProbePort::Number(port)) => Ok(*port),
            Some(ProbePort::Name(name)) => {
                if let Ok(number) = name.parse::<u16>() {
                    return Ok(number);
                }
                let pod = match to {
                    Named::Pod(pod) => Some(pod),
                    Named::Address(address) => cluster.owner(*address),
                };
                let Some(pod) = pod else {
                    return Err(format!("port: {name:?} is a name, and {} is no pod", self.to));
                };
                let port = pod.port(name, Some(protocol)).map(|it| it.port);
                port.ok_or_else(|| {
                    format!("port: {} has no {} port named {name:?}", self.to, self.protocol)
                })
            }
        }
    }
}

/// An end, as it was named.
enum Named {
    Pod(Arc<Pod>),
    Address(IpAddr),
}

impl Named {
    fn find(field: &str, text: &str, cluster: &Cluster) -> Result<Self, String> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Address(address.to_canonical()));
        }
        let Some((namespace, name)) = text.split_once('/') else {
            return Err(format!("{field}: {text:?} is neither NAMESPACE/POD nor an address"));
        };
        let pod = cluster.pods.get(&Key::new(namespace, name));
        let pod = pod.ok_or_else(|| format!("{field}: there is no pod {text} in the cluster"))?;
        if pod.finished {
            return Err(format!("{field}: the pod {text} has ended: it has no network"));
        }
        Ok(Self::Pod(Arc::clone(pod)))
    }

    fn addresses(&self) -> &[IpAddr] {
        match self {
            Self::Pod(pod) => &pod.addresses,
            Self::Address(address) => std::slice::from_ref(address),
        }
    }

    fn end(&self, cluster: &Cluster, address: Option<IpAddr>) -> End {
        match self {
            Self::Pod(pod) => {
                // A pod in its node's network has the node's addresses, also if its status says none.
                let node = cluster.nodes.get(&pod.node).filter(|_| pod.host_network);
                let of_node = node.and_then(|node| node.addresses.first().copied());
                End::of_pod(pod, address.or(of_node))
            }
            Self::Address(address) => End::of_address(cluster, *address),
        }
    }
}

/// The addresses that the ends use: the destination's first of a family that the source has too.
fn addresses(from: &Named, to: &Named) -> Result<(Option<IpAddr>, Option<IpAddr>), String> {
    let (sources, destinations) = (from.addresses(), to.addresses());
    let of_family = |destination: &IpAddr| {
        let same = |source: &&IpAddr| source.is_ipv4() == destination.is_ipv4();
        sources.iter().find(same).map(|source| (Some(*source), Some(*destination)))
    };
    if let Some(pair) = destinations.iter().find_map(of_family) {
        return Ok(pair);
    }
    if sources.is_empty() || destinations.is_empty() {
        // A pod without an address yet: it is known by its labels.
        return Ok((sources.first().copied(), destinations.first().copied()));
    }
    Err("to: the ends have no address of one family".to_owned())
}

fn protocol(text: &str) -> Result<Protocol, String> {
    match text.to_ascii_lowercase().as_str() {
        "icmpv6" => Ok(Protocol::ICMP6),
        lower => lower.parse().map_err(|_| {
            format!("protocol: {text:?} is no protocol, which is as TCP, UDP, SCTP, ICMP or ip-47")
        }),
    }
}

impl DirectionAnswer {
    pub fn of(decision: &DirectionDecision, direction: Direction) -> Self {
        let (tier, source) = match &decision.by {
            DecidedBy::Rule { tier, source } => (Some(*tier), Some(source)),
            DecidedBy::Isolation { policies } => (Some(TierKind::NetworkPolicy), policies.first()),
            _ => (None, None),
        };
        let is_policy =
            |source: &&Source| !matches!(source.kind, PolicyKind::Group | PolicyKind::Quarantine);
        let policy = source.filter(is_policy);
        let is_isolation = matches!(decision.by, DecidedBy::Isolation { .. });
        let rule = policy.filter(|it| !is_isolation && it.kind != PolicyKind::NetworkRule);
        Self {
            verdict: verdict(decision.allowed),
            tier: tier.map(|tier| tier.to_string()),
            policy: policy.map(|source| source.policy.to_string()),
            rule: rule.map(|source| source.rule.split(' ').next().unwrap_or_default().to_owned()),
            kind: policy.map(|source| source.kind.to_string()),
            why: crate::words::why(decision, direction),
        }
    }
}

#[cfg(test)]
mod tests;
