mod between;
mod import;
mod install;
mod show;
mod uninstall;

use crate::output::Verdict;
use show::AgentFlags;

/// Set up, show and verify this node's pod network
///
/// Examples:
///   fairlead net install     the plugin and a network for the container runtime
///   fairlead net addresses   which pod has which address
///   fairlead net check       is every route and interface as it should be?
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Install(install::Install),
    Uninstall(uninstall::Uninstall),
    Import(import::Import),
    /// Show the address pools, and how full they are
    ///
    /// Examples:
    ///   fairlead net pools
    ///   fairlead net pools -o json | jq '.[] | select(.free == 0)'
    #[command(verbatim_doc_comment)]
    Pools(AgentFlags),
    /// Show the address blocks of nodes, and how they are reached
    ///
    /// Examples:
    ///   fairlead net blocks
    ///   fairlead net blocks --here -o yaml
    #[command(verbatim_doc_comment)]
    Blocks {
        /// Only the blocks of this node
        #[arg(long)]
        here: bool,
        #[command(flatten)]
        agent: AgentFlags,
    },
    /// Show which container of this node has which address
    ///
    /// Examples:
    ///   fairlead net addresses
    ///   fairlead net addresses -o json | jq '.[] | select(.pod.namespace == "shop")'
    #[command(verbatim_doc_comment)]
    Addresses(AgentFlags),
    /// Show how packets between this node and the others are encrypted (net.encryption)
    ///
    /// A node without a handshake is named, and why. Exit codes: 0 packets to all nodes are encrypted; 1 to
    /// some they are not, or do not arrive; 2 the agent could not be asked.
    ///
    /// Examples:
    ///   fairlead net status
    ///   fairlead net status -o json | jq '.[] | select(.fault)'
    #[command(verbatim_doc_comment)]
    Status(AgentFlags),
    /// Show egresses, who uses them, and what they wait for
    #[command(subcommand)]
    Egress(EgressVerb),
    /// Verify this node: interfaces, addresses and routes against what is recorded
    ///
    /// Changes nothing; the agent repairs what it finds by itself, a little later. Exit codes: 0 all
    /// is as it should be; 1 something is not, and is listed; 2 the agent could not be asked.
    ///
    /// Examples:
    ///   fairlead net check
    ///   fairlead net check -o json
    ///   fairlead net check --towards node-b           the way from this node to node-b, with real packets
    ///   fairlead net check --between node-a node-b    both ways, asked through the cluster's agents
    #[command(verbatim_doc_comment)]
    Check(between::Check),
}

#[derive(Debug, clap::Subcommand)]
enum EgressVerb {
    /// List egresses with their replicas and clients, as this node's agent sees them
    ///
    /// Examples:
    ///   fairlead net egress list
    ///   fairlead net egress list -o json | jq '.[] | select(.waits != [])'
    #[command(verbatim_doc_comment)]
    List(AgentFlags),
}

pub(crate) fn run(args: &Args) -> Verdict {
    match &args.verb {
        Verb::Install(args) => install::install(args),
        Verb::Uninstall(args) => uninstall::uninstall(args),
        Verb::Import(args) => import::import(args),
        Verb::Pools(agent) => show::pools(agent),
        Verb::Blocks { here, agent } => show::blocks(agent, *here),
        Verb::Addresses(agent) => show::addresses(agent),
        Verb::Status(agent) => show::status(agent),
        Verb::Egress(EgressVerb::List(agent)) => show::egresses(agent),
        Verb::Check(args) => between::check(args),
    }
}
