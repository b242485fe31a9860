//! Where a node can be reached: `host:port`, the host an address or a DNS name, IPv6 in brackets.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde::Deserialize;

/// In the order in which they are asked.
const ANNOTATIONS: [&str; 2] =
    ["kilo.squat.ai/clustermesh-endpoint", "kilo.squat.ai/force-endpoint"];
const DISCOVERED: &str = "kilo.squat.ai/discovered-endpoints";
const EXTERNAL: &str = "ExternalIP";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    pub host: Host,
    pub port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    Ip(IpAddr),
    /// In lower case, as Kilo wants it.
    Dns(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("annotation {annotation} is {value:?}, which is not host:port ({problem})")]
pub struct MalformedEndpoint {
    pub annotation: &'static str,
    pub value: String,
    pub problem: &'static str,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]:{}", self.port),
            Host::Ip(ip) => write!(f, "{ip}:{}", self.port),
            Host::Dns(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

impl Endpoint {
    /// What the node itself says. None is no fault: a peer that calls in from wherever it is.
    pub(crate) fn of(node: &Node, port: u16) -> Result<Option<Self>, MalformedEndpoint> {
        for annotation in ANNOTATIONS {
            // Annotations are emptied as often as they are removed.
            let value = node.annotations().get(annotation).filter(|value| !value.is_empty());
            if let Some(value) = value {
                return match parse(value) {
                    Ok(endpoint) => Ok(Some(endpoint)),
                    Err(problem) => {
                        Err(MalformedEndpoint { annotation, value: value.clone(), problem })
                    }
                };
            }
        }
        let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
        let external: Vec<IpAddr> = addresses
            .into_iter()
            .flatten()
            .filter(|address| address.type_ == EXTERNAL)
            .filter_map(|address| address.address.parse().ok())
            .collect();
        let best = external.iter().find(|ip| ip.is_ipv4()).or(external.first());
        Ok(best.map(|ip| Self { host: Host::Ip(*ip), port }))
    }
}

fn parse(text: &str) -> Result<Endpoint, &'static str> {
    let (host, port) = text.rsplit_once(':').ok_or("it has no port")?;
    let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let port = digits.then(|| port.parse().ok()).flatten().filter(|port| *port != 0);
    let port = port.ok_or("the port is not 1 to 65535")?;
    let bracketed = host.strip_prefix('[').map(|rest| rest.strip_suffix(']'));
    let host = match bracketed {
        Some(inner) => {
            let ip = inner.and_then(|inner| inner.parse::<std::net::Ipv6Addr>().ok());
            Host::Ip(ip.ok_or("what is in brackets is not an IPv6 address")?.into())
        }
        None if host.contains(':') => return Err("an IPv6 address stands in brackets"),
        None => match host.parse::<IpAddr>() {
            Ok(ip) => Host::Ip(ip),
            Err(_) => Host::Dns(dns(host).ok_or("the host is neither an address nor a DNS name")?),
        },
    };
    match host {
        Host::Ip(ip) if ip.is_unspecified() || ip.is_multicast() => {
            Err("nobody can be reached at that address")
        }
        host => Ok(Endpoint { host, port }),
    }
}

fn dns(name: &str) -> Option<String> {
    let name = name.to_ascii_lowercase();
    let label = |label: &str| {
        let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = label.as_bytes();
        label.len() <= 63
            && edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
    };
    // A name that ends in a number is an address that somebody mistyped.
    let last = name.rsplit('.').next().unwrap_or_default();
    let right = name.len() <= 253
        && name.split('.').all(label)
        && !last.bytes().all(|b| b.is_ascii_digit());
    right.then_some(name)
}

#[derive(Deserialize)]
struct Observed {
    #[serde(rename = "IP")]
    ip: IpAddr,
    #[serde(rename = "Port")]
    port: u16,
}

/// Where a cluster's own nodes have seen the peers of each key. Where they saw one at several places,
/// the first node by name is believed; what cannot be read is Kilo's to mend and hides nothing else.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Discovered(HashMap<String, BTreeMap<String, Endpoint>>);

impl Discovered {
    pub(crate) fn of<'n>(nodes: impl IntoIterator<Item = &'n Node>) -> Self {
        let mut all = Self::default();
        for node in nodes {
            all.learn(None, Some(node));
        }
        all
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Endpoint> {
        self.0.get(key)?.values().next()
    }

    /// What a node says now in place of what it said before; the keys of which either speaks.
    pub(crate) fn learn(&mut self, before: Option<&Node>, after: Option<&Node>) -> Vec<String> {
        if before.is_some() == after.is_some() && said(before) == said(after) {
            return Vec::new();
        }
        let mut keys = Vec::new();
        if let Some(node) = before {
            for key in seen(node).into_keys() {
                if let Some(at) = self.0.get_mut(&key) {
                    at.remove(&node.name_any());
                    if at.is_empty() {
                        self.0.remove(&key);
                    }
                }
                keys.push(key);
            }
        }
        if let Some(node) = after {
            for (key, endpoint) in seen(node) {
                self.0.entry(key.clone()).or_default().insert(node.name_any(), endpoint);
                keys.push(key);
            }
        }
        keys
    }
}

fn said(node: Option<&Node>) -> Option<&String> {
    node.and_then(|node| node.annotations().get(DISCOVERED))
}

fn seen(node: &Node) -> BTreeMap<String, Endpoint> {
    let Some(text) = said(Some(node)) else { return BTreeMap::new() };
    let seen: BTreeMap<String, serde_json::Value> = serde_json::from_str(text).unwrap_or_default();
    let usable = |(key, value)| {
        let Observed { ip, port } = serde_json::from_value(value).ok()?;
        let ip = ip.to_canonical();
        (port != 0 && reachable(ip)).then_some((key, Endpoint { host: Host::Ip(ip), port }))
    };
    seen.into_iter().filter_map(usable).collect()
}

/// Whether an address that one node saw means the same to the others.
fn reachable(ip: IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !(link_local || ip.is_loopback() || ip.is_unspecified() || ip.is_multicast())
}
