//! The verbs that ask the agent of this node.

use std::io::ErrorKind;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cni::wire::{self, Operation, Reply, Request, Show};
use jiff::Timestamp;
use serde_json::Value;

use crate::cli::listing::{field, fields};
use crate::cli::table::age;
use crate::cli::verbs::config::load;
use crate::config::ConfigFlags;
use crate::output::{self, Failure, Output, Verdict, yes_or_no};

/// How long the agent may take; a check looks at every interface.
const PATIENCE: Duration = Duration::from_secs(30);

/// Show the address pools, and how full they are
///
/// Examples:
///   fairlead net pools
///   fairlead net pools -o json | jq '.[] | select(.free == 0)'
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Pools {
    #[command(flatten)]
    agent: AgentFlags,
}

/// Show the address blocks of nodes, and how they are reached
///
/// Examples:
///   fairlead net blocks
///   fairlead net blocks --here -o yaml
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Blocks {
    /// Only the blocks of this node
    #[arg(long)]
    here: bool,
    #[command(flatten)]
    agent: AgentFlags,
}

/// Show which container of this node has which address
///
/// Examples:
///   fairlead net addresses
///   fairlead net addresses -o json | jq '.[] | select(.pod.namespace == "shop")'
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Addresses {
    #[command(flatten)]
    agent: AgentFlags,
}

/// Verify this node: interfaces, addresses and routes against what is recorded
///
/// Changes nothing; the agent repairs what it finds by itself, a little later. Exit codes: 0 all is
/// as it should be; 1 something is not, and is listed; 2 the agent could not be asked.
///
/// Examples:
///   fairlead net check
///   fairlead net check -o json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Check {
    #[command(flatten)]
    agent: AgentFlags,
}

#[derive(Debug, clap::Args)]
struct AgentFlags {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    flags: ConfigFlags,
}

pub(super) fn pools(args: &Pools) -> Verdict {
    let rows = args.agent.ask(Show::Pools)?;
    args.agent.print(
        &rows,
        |pool| {
            let columns =
                ["name", "subnets", "blocks", "claimed", "used", "free", "nodes", "trouble"];
            columns.map(|column| field(pool, column))
        },
        ["POOL", "SUBNETS", "BLOCKS", "CLAIMED", "USED", "FREE", "NODES", "TROUBLE"],
    )
}

pub(super) fn blocks(args: &Blocks) -> Verdict {
    let mut rows = args.agent.ask(Show::Blocks)?;
    rows.retain(|block| !args.here || block["here"] == true);
    args.agent.print(
        &rows,
        |block| {
            let columns =
                ["name", "pool", "node", "ipv4", "ipv6", "via", "used", "free", "trouble"];
            columns.map(|column| field(block, column))
        },
        ["BLOCK", "POOL", "NODE", "IPV4", "IPV6", "VIA", "USED", "FREE", "TROUBLE"],
    )
}

pub(super) fn addresses(args: &Addresses) -> Verdict {
    let rows = args.agent.ask(Show::Addresses)?;
    let now = Timestamp::now();
    args.agent.print(
        &rows,
        |attachment| {
            let pod = &attachment["pod"];
            let pod = match (&pod["namespace"], &pod["name"]) {
                (Value::String(namespace), Value::String(name)) => format!("{namespace}/{name}"),
                _ => "-".to_owned(),
            };
            let container: String = field(attachment, "container").chars().take(13).collect();
            [
                pod,
                field(attachment, "ipv4"),
                field(attachment, "ipv6"),
                field(attachment, "pool"),
                container,
                field(attachment, "ifname"),
                field(attachment, "hostInterface"),
                age(attachment["since"].as_str(), now),
            ]
        },
        ["POD", "IPV4", "IPV6", "POOL", "CONTAINER", "INTERFACE", "HOST", "AGE"],
    )
}

pub(super) fn check(args: &Check) -> Verdict {
    let faults = args.agent.ask(Show::Faults)?;
    args.agent.output.print(&faults, || match faults.is_empty() {
        true => "every interface, address and route is as it should be".to_owned(),
        false => {
            let rows = faults.iter().map(|fault| fields(fault, ["what", "fault"]));
            output::table(["WHAT", "FAULT"], rows)
        }
    })?;
    Ok(yes_or_no(faults.is_empty()))
}

impl AgentFlags {
    fn ask(&self, what: Show) -> Result<Vec<Value>, Failure> {
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
        cells: impl Fn(&Value) -> [String; N],
        titles: [&str; N],
    ) -> Verdict {
        self.output.print(rows, || output::table(titles, rows.iter().map(cells)))?;
        Ok(ExitCode::SUCCESS)
    }
}
