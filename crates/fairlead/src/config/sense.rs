//! Settings of an agent that observes connections.

use std::path::PathBuf;

use super::Setting;
use crate::cli::values;

#[derive(Clone, Debug)]
pub(crate) struct Sense {
    /// Where controllers take reports; none: nothing is observed.
    pub(crate) controllers: Vec<String>,
    /// With which this node enrols the first time.
    pub(crate) token_file: Option<PathBuf>,
    /// A token of the pod's service account, with which this node enrols whenever it has to.
    pub(crate) identity_token_file: Option<PathBuf>,
    /// The agents' authority; none: from the store, where that is Kubernetes.
    pub(crate) ca_file: Option<PathBuf>,
    /// Whether the kernel is made to track connections where nothing else needs it to.
    pub(crate) track: bool,
}

impl Default for Sense {
    fn default() -> Self {
        Self {
            controllers: Vec::new(),
            token_file: None,
            identity_token_file: None,
            ca_file: None,
            track: true,
        }
    }
}

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: "guard.controllers",
        metavar: "LIST",
        help: "Where the agent reports who talks to whom: names or addresses of controllers with the port for agents, separated by commas; `none` observes nothing",
        allowed: "none, or hosts with ports separated by commas, such as fairlead.example.com:7681",
        take: |c, v| values::words(v, host_and_port).map(|v| c.sense.controllers = v),
        show: |c| values::show_words(&c.sense.controllers),
    },
    Setting {
        key: "guard.token-file",
        metavar: "FILE",
        help: "Token that enrols this node the first time (`fairlead agents token`); not needed afterwards, nor for a controller on loopback",
        allowed: "a file",
        take: |c, v| values::path(v).map(|v| c.sense.token_file = Some(v)),
        show: |c| values::show_path(c.sense.token_file.as_deref()),
    },
    Setting {
        key: "guard.identity-token-file",
        metavar: "FILE",
        help: "Token of this pod's service account, for the audience fairlead-agents and bound to the pod, with which this node enrols; read again at each use. No `fairlead agents token` is needed then",
        allowed: "a file",
        take: |c, v| values::path(v).map(|v| c.sense.identity_token_file = Some(v)),
        show: |c| values::show_path(c.sense.identity_token_file.as_deref()),
    },
    Setting {
        key: "guard.ca-file",
        metavar: "FILE",
        help: "Authority (PEM) by which a controller is known before guard.identity-token-file is shown to it; without it the ConfigMap fairlead-agents-ca in fleet.namespace is read, with store=kubernetes",
        allowed: "a file",
        take: |c, v| values::path(v).map(|v| c.sense.ca_file = Some(v)),
        show: |c| values::show_path(c.sense.ca_file.as_deref()),
    },
    Setting {
        key: "guard.track",
        metavar: "WHETHER",
        help: "Have the kernel track connections: `auto` does, with an nftables table of its own that no packet passes; `off` sees only what other rules have it track",
        allowed: "auto or off",
        take: |c, v| {
            c.sense.track = match v {
                "auto" => true,
                "off" | "false" => false,
                _ => return None,
            };
            Some(())
        },
        show: |c| if c.sense.track { "auto" } else { "off" }.to_owned(),
    },
];

fn host_and_port(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    (!host.is_empty() && port != 0).then(|| text.to_owned())
}
