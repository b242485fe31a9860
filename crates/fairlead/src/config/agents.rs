//! Where agents are listened to.

use std::net::SocketAddr;
use std::time::Duration;

use guard::agents::LIFETIME;

use super::Setting;
use crate::values;

#[derive(Clone, Debug)]
pub(crate) struct Agents {
    pub(crate) listen: SocketAddr,
    /// How long a node's certificate lives.
    pub(crate) certificate: Duration,
    /// Without TLS. No setting: only `up` does it, and only on loopback.
    pub(crate) plain: bool,
}

impl Default for Agents {
    fn default() -> Self {
        let listen = SocketAddr::from(([127, 0, 0, 1], 7681));
        Self { listen, certificate: LIFETIME, plain: false }
    }
}

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: "agents.listen",
        metavar: "ADDR",
        help: "gRPC for agents, with certificates of its own authority; without TLS only in `up`, on loopback",
        allowed: "an address and port, such as 0.0.0.0:7681 or [::]:7681",
        take: |c, v| v.parse().ok().map(|v| c.agents.listen = v),
        show: |c| c.agents.listen.to_string(),
    },
    Setting {
        key: "agents.certificate",
        metavar: "TIME",
        help: "How long a node's certificate lives; its agent renews it at two thirds",
        allowed: "a time from 1h to 720h",
        take: |c, v| values::time(v, "1h", "720h").map(|v| c.agents.certificate = v),
        show: |c| values::show_time(c.agents.certificate),
    },
];
