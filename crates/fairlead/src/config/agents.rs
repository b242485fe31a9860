//! Where agents are listened to.

use std::time::Duration;

use guard::agents::LIFETIME;

use super::Setting;
use super::listen::{self, ListenAddress};
use crate::cli::values;

#[derive(Clone, Debug)]
pub(crate) struct Agents {
    pub(crate) listen: ListenAddress,
    /// How long a node's certificate lives.
    pub(crate) certificate: Duration,
    /// Without TLS. No setting: only `up` does it, and only on loopback.
    pub(crate) plain: bool,
    /// Whose pods may enrol as agents.
    pub(crate) service_account: ServiceAccount,
}

/// A namespaced object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ObjectName {
    fn parse(text: &str) -> Option<Self> {
        let (namespace, name) = text.split_once('/')?;
        Some(Self { namespace: values::label(namespace)?, name: values::node(name)? })
    }
}

impl std::fmt::Display for ObjectName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The service account of agents that enrol as pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServiceAccount {
    /// `fairlead-agent` in the fleet's namespace.
    Auto,
    None,
    Named(ObjectName),
}

impl Default for Agents {
    fn default() -> Self {
        let listen = ListenAddress::loopback(7681);
        Self { listen, certificate: LIFETIME, plain: false, service_account: ServiceAccount::Auto }
    }
}

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: "agents.listen",
        metavar: "ADDR",
        help: "gRPC for agents, with certificates of its own authority; without TLS only in `up`, on loopback",
        allowed: listen::ALLOWED,
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
    Setting {
        key: "agents.service-account",
        metavar: "NAMESPACE/NAME",
        help: "Service account whose pods may enrol as the agent of their node; `auto` is fairlead-agent in fleet.namespace, `none` lets no pod enrol without a token of `fairlead agents token`",
        allowed: "auto, none, or a namespace and a name, such as fairlead/fairlead-agent",
        take: |c, v| {
            c.agents.service_account = match v {
                "auto" => ServiceAccount::Auto,
                "none" => ServiceAccount::None,
                name => ServiceAccount::Named(ObjectName::parse(name)?),
            };
            Some(())
        },
        show: |c| match &c.agents.service_account {
            ServiceAccount::Auto => "auto".to_owned(),
            ServiceAccount::None => "none".to_owned(),
            ServiceAccount::Named(name) => name.to_string(),
        },
    },
];
