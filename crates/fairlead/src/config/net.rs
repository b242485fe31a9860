//! A node's pod network.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use objects::kinds::Subnet;

use super::Setting;
use crate::cli::values;

#[derive(Clone, Debug)]
pub(crate) struct Net {
    /// Whether this agent serves the node's pod network, rather than leave that to others.
    pub(crate) serve: bool,
    pub(crate) socket: PathBuf,
    /// This node's name; the machine's where none is set.
    pub(crate) node: String,
    /// Where other nodes reach this one; none: those that it would itself use.
    pub(crate) addresses: Vec<IpAddr>,
    /// What the pool `default` is made of where there is none.
    pub(crate) subnets: Vec<Subnet>,
    pub(crate) mtu: Option<u32>,
    pub(crate) export_table: Option<u32>,
    /// How long after the agent was last well its node is still taken for ready.
    pub(crate) grace: Duration,
}

impl Default for Net {
    fn default() -> Self {
        Self {
            serve: true,
            socket: PathBuf::from(cni::spec::DEFAULT_SOCKET),
            node: values::machine_name(),
            addresses: Vec::new(),
            subnets: Vec::new(),
            mtu: None,
            export_table: Some(119),
            grace: cni::ready::DEFAULT_GRACE,
        }
    }
}

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: "net.serve",
        metavar: "WHETHER",
        help: "Serve this node's pod network; `off` leaves pods to another CNI plugin, and the agent only observes",
        allowed: "on or off",
        take: |c, v| {
            c.net.serve = match v {
                "on" | "true" => true,
                "off" | "false" => false,
                _ => return None,
            };
            Some(())
        },
        show: |c| if c.net.serve { "on" } else { "off" }.to_owned(),
    },
    Setting {
        key: "net.socket",
        metavar: "FILE",
        help: "Socket of the agent, on which container runtimes and `fairlead net` ask it",
        allowed: "a file",
        take: |c, v| values::path(v).map(|v| c.net.socket = v),
        show: |c| c.net.socket.display().to_string(),
    },
    Setting {
        key: "net.node",
        metavar: "NAME",
        help: "This node's name, as Kubernetes has it",
        allowed: "a name of a-z, 0-9, - and .",
        take: |c, v| values::node(v).map(|v| c.net.node = v),
        show: |c| c.net.node.clone(),
    },
    Setting {
        key: "net.addresses",
        metavar: "LIST",
        help: "Addresses at which other nodes reach this one, separated by commas; `auto` takes those that it would send from",
        allowed: "auto, or addresses separated by commas",
        take: |c, v| values::addresses(v).map(|v| c.net.addresses = v),
        show: |c| values::show_addresses(&c.net.addresses),
    },
    Setting {
        key: "net.subnets",
        metavar: "LIST",
        help: "Subnets of the pool `default`, made where there is no pool of that name: separated by commas, the two of a dual stack joined by +",
        allowed: "none, or subnets such as 10.64.0.0/16 or 10.64.0.0/16+fd64::/112",
        take: |c, v| values::subnets(v).map(|v| c.net.subnets = v),
        show: |c| values::show_subnets(&c.net.subnets),
    },
    Setting {
        key: "net.mtu",
        metavar: "BYTES",
        help: "MTU of pods' interfaces; `auto` takes that of the node's uplink",
        allowed: "auto, or a whole number from 576 to 65535",
        take: |c, v| {
            let mtu = (v != "auto")
                .then(|| values::number(v, 576, 65535))
                .map_or(Some(None), |n| n.map(Some))?;
            c.net.mtu = mtu.and_then(|mtu| u32::try_from(mtu).ok());
            Some(())
        },
        show: |c| c.net.mtu.map_or_else(|| "auto".to_owned(), |mtu| mtu.to_string()),
    },
    Setting {
        key: "net.export-table",
        metavar: "TABLE",
        help: "Routing table in which this node's blocks are put for BIRD and the like; `none` puts them nowhere",
        allowed: "none, or a number from 1 to 4294967295 that is not 253, 254 or 255",
        take: |c, v| values::table(v).map(|v| c.net.export_table = v),
        show: |c| c.net.export_table.map_or_else(|| "none".to_owned(), |table| table.to_string()),
    },
    Setting {
        key: "net.grace",
        metavar: "TIME",
        help: "How long the agent may be away (while it is replaced) before its node is not ready; 0s for not at all",
        allowed: "a time from 0s to 10m",
        take: |c, v| values::time(v, "0s", "10m").map(|v| c.net.grace = v),
        show: |c| values::show_time(c.net.grace),
    },
];
