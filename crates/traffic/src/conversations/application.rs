//! Which application a conversation is of, and how that is known.
//!
//! Agents tell it where they know the first bytes of connections. Elsewhere an application is what its port is for:
//! that is good for people and is never asked by a rule.

use std::sync::Arc;

use super::Protocol;

/// An application by name, and how it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownApplication<'a> {
    pub name: &'a str,
    /// Only what such a port is for; else first bytes told it.
    pub by_port: bool,
}

/// Ports that one application has nearly for itself, as services in clusters use them.
const TCP: [(u16, &str); 42] = [
    (21, "ftp"),
    (22, "ssh"),
    (25, "smtp"),
    (53, "dns"),
    (80, "http"),
    (88, "kerberos"),
    (389, "ldap"),
    (443, "https"),
    (445, "smb"),
    (587, "smtp"),
    (636, "ldaps"),
    (853, "dns-over-tls"),
    (993, "imaps"),
    (1433, "sqlserver"),
    (1521, "oracle"),
    (1883, "mqtt"),
    (2049, "nfs"),
    (2181, "zookeeper"),
    (2379, "etcd"),
    (2380, "etcd-peer"),
    (3306, "mysql"),
    (3389, "rdp"),
    (4222, "nats"),
    (4317, "otlp-grpc"),
    (4318, "otlp-http"),
    (5432, "postgresql"),
    (5671, "amqps"),
    (5672, "amqp"),
    (6379, "redis"),
    (6443, "kubernetes-api"),
    (6514, "syslog-tls"),
    (8086, "influxdb"),
    (8883, "mqtts"),
    (9042, "cassandra"),
    (9090, "prometheus"),
    (9092, "kafka"),
    (9093, "alertmanager"),
    (9200, "elasticsearch"),
    (10250, "kubelet"),
    (11211, "memcached"),
    (26257, "cockroachdb"),
    (27017, "mongodb"),
];
const UDP: [(u16, &str); 9] = [
    (53, "dns"),
    (67, "dhcp"),
    (123, "ntp"),
    (161, "snmp"),
    (443, "quic"),
    (514, "syslog"),
    (4789, "vxlan"),
    (5353, "mdns"),
    (51820, "wireguard"),
];

/// What agents tell by first bytes, in order. Another name is nobody's: an agent that makes names up is given none.
const BY_BYTES: [&str; 22] = [
    "amqp",
    "cassandra",
    "dns",
    "ftp",
    "http",
    "http2",
    "kafka",
    "ldap",
    "memcached",
    "mongodb",
    "mqtt",
    "mysql",
    "nats",
    "postgresql",
    "quic",
    "redis",
    "smb",
    "smtp",
    "sqlserver",
    "ssh",
    "tls",
    "zookeeper",
];

/// The name as one of those that first bytes may tell.
pub fn told_by_bytes(name: &str) -> Option<&'static str> {
    BY_BYTES.binary_search(&name).ok().map(|at| BY_BYTES[at])
}

impl<'a> KnownApplication<'a> {
    /// The application of a service: what its agent told by bytes, else what its port is for.
    pub fn of(said: Option<&'a Arc<str>>, service: Option<(Protocol, u16)>) -> Option<Self> {
        if let Some(name) = said {
            return Some(Self { name, by_port: false });
        }
        let (protocol, port) = service?;
        let known: &[(u16, &str)] = match protocol {
            Protocol::TCP => &TCP,
            Protocol::UDP => &UDP,
            _ => &[],
        };
        let at = known.binary_search_by_key(&port, |(port, _)| *port).ok()?;
        Some(Self { name: known[at].1, by_port: true })
    }

    /// In one word: `bytes` or `port`.
    pub fn known_by(&self) -> &'static str {
        if self.by_port { "port" } else { "bytes" }
    }
}

#[cfg(test)]
mod tests;
