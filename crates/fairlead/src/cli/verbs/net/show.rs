//! The verbs that ask the agent of this node.

use std::io::ErrorKind;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cni::wire::{self, Operation, Reply, Request, Show};
use jiff::Timestamp;
use serde_json::Value;

use crate::cli::listing::{field, fields};
use crate::cli::table::{Cell, age};
use crate::cli::terminal::Colour;
use crate::cli::verbs::config::load;
use crate::config::ConfigFlags;
use crate::output::{self, Failure, Output, Verdict, yes_or_no};

/// How long the agent may take; a check looks at every interface.
const PATIENCE: Duration = Duration::from_secs(30);

/// The flags of a verb that asks the agent.
#[derive(Debug, clap::Args)]
pub(super) struct AgentFlags {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    flags: ConfigFlags,
}

pub(super) fn pools(agent: &AgentFlags) -> Verdict {
    let columns = ["name", "subnets", "blocks", "claimed", "used", "free", "nodes", "trouble"];
    let titles = ["POOL", "SUBNETS", "BLOCKS", "CLAIMED", "USED", "FREE", "NODES", "TROUBLE"];
    agent.print(&agent.ask(Show::Pools)?, titles, |pool| fields(pool, columns))
}

pub(super) fn blocks(agent: &AgentFlags, here: bool) -> Verdict {
    let mut rows = agent.ask(Show::Blocks)?;
    rows.retain(|block| !here || block["here"] == true);
    let columns = ["name", "pool", "node", "ipv4", "ipv6", "via", "used", "free", "trouble"];
    let titles = ["BLOCK", "POOL", "NODE", "IPV4", "IPV6", "VIA", "USED", "FREE", "TROUBLE"];
    agent.print(&rows, titles, |block| fields(block, columns))
}

pub(super) fn addresses(agent: &AgentFlags) -> Verdict {
    let now = Timestamp::now();
    let titles = ["POD", "IPV4", "IPV6", "POOL", "CONTAINER", "INTERFACE", "HOST", "AGE"];
    agent.print(&agent.ask(Show::Addresses)?, titles, |attachment| {
        let pod = &attachment["pod"];
        let pod = match (&pod["namespace"], &pod["name"]) {
            (Value::String(namespace), Value::String(name)) => format!("{namespace}/{name}"),
            _ => "-".to_owned(),
        };
        let container: String = field(attachment, "container").chars().take(13).collect();
        let [ipv4, ipv6, pool, interface, host] =
            fields(attachment, ["ipv4", "ipv6", "pool", "ifname", "hostInterface"]);
        let since = age(attachment["since"].as_str(), now);
        [pod.into(), ipv4, ipv6, pool, container.into(), interface, host, since.into()]
    })
}

pub(super) fn egresses(agent: &AgentFlags) -> Verdict {
    let titles =
        ["EGRESS", "REPLICAS", "READY", "CLIENTS", "HERE", "FAILURE", "DESTINATIONS", "WAITS"];
    agent.print(&agent.ask(Show::Egresses)?, titles, |egress| {
        let name = format!("{}/{}", field(egress, "namespace"), field(egress, "name"));
        let columns =
            ["replicas", "ready", "clients", "clientsHere", "failure", "destinations", "waits"];
        let [replicas, ready, clients, here, failure, destinations, waits] =
            fields(egress, columns);
        [name.into(), replicas, ready, clients, here, failure, destinations, waits]
    })
}

pub(super) fn status(agent: &AgentFlags) -> Verdict {
    let nodes = agent.ask(Show::Nodes)?;
    let titles =
        ["NODE", "PACKETS", "BY", "HANDSHAKE", "RECEIVED", "SENT", "LOSS", "MS", "MTU", "FAULT"];
    agent.output.print(&nodes, || match nodes.is_empty() {
        true => "no other node has pods' addresses yet".to_owned(),
        false => output::table(
            titles,
            nodes.iter().map(|node| {
                let columns =
                    ["node", "way", "implementation", "receivedBytes", "sentBytes", "mtu"];
                let [name, way, by, received, sent, mtu] = fields(node, columns);
                let handshake = node["lastHandshakeSeconds"].as_u64();
                let handshake = handshake.map_or("-".to_owned(), |it| format!("{it}s ago"));
                let loss = node["lossPercent"].as_u64();
                let loss = loss.map_or("-".to_owned(), |it| format!("{it}%"));
                let time = node["milliseconds"].as_f64();
                let time = time.map_or("-".to_owned(), |it| format!("{it:.2}"));
                let fault = match node["fault"].as_str() {
                    Some(fault) => Cell::coloured(fault, Colour::Red),
                    None => "-".into(),
                };
                let (handshake, loss, time) = (handshake.into(), loss.into(), time.into());
                [name, way, by, handshake, received, sent, loss, time, mtu, fault]
            }),
        ),
    })?;
    Ok(yes_or_no(nodes.iter().all(|node| node["fault"].is_null())))
}

pub(super) fn check(agent: &AgentFlags) -> Verdict {
    let faults = agent.ask(Show::Faults)?;
    agent.output.print(&faults, || match faults.is_empty() {
        true => "every interface, address and route is as it should be".to_owned(),
        false => {
            let rows = faults.iter().map(|fault| fields(fault, ["what", "fault"]));
            output::table(["WHAT", "FAULT"], rows)
        }
    })?;
    Ok(yes_or_no(faults.is_empty()))
}

impl AgentFlags {
    pub(super) fn output(&self) -> Output {
        self.output
    }

    pub(super) fn ask(&self, what: Show) -> Result<Vec<Value>, Failure> {
        let socket = load(&self.flags)?.config.net.socket;
        let deadline = Instant::now() + PATIENCE;
        let request = Request::within(deadline, Operation::Show(what));
        let shown = socket.display();
        match wire::call(&socket, &request, None, deadline) {
            Ok(Reply::Shown(Value::Array(rows))) => Ok(rows),
            Ok(Reply::Failed(error)) => Err(Failure(error.to_string())),
            Ok(_) => Err(Failure(format!(
                "{shown} answers something else than was asked; is the agent of another version?"
            ))),
            Err(error) => Err(Failure(match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => format!(
                    "no agent listens on {shown}: start it with `fairlead agent`, or say where it listens (--net-socket)"
                ),
                ErrorKind::PermissionDenied => {
                    format!("{shown} is for root only: run this as root")
                }
                _ => format!("the agent on {shown} does not answer: {error}"),
            })),
        }
    }

    fn print<const N: usize>(
        &self,
        rows: &Vec<Value>,
        titles: [&str; N],
        cells: impl Fn(&Value) -> [Cell; N],
    ) -> Verdict {
        self.output.print(rows, || output::table(titles, rows.iter().map(cells)))?;
        Ok(ExitCode::SUCCESS)
    }
}
