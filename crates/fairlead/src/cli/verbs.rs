//! The verbs, one a file.

mod admission;
mod agent;
mod agents;
mod apply;
mod audit;
mod clusters;
mod completions;
mod config;
mod controller;
mod conversations;
mod crds;
mod delete;
mod describe;
mod doctor;
mod events;
mod exec;
mod forward;
mod get;
mod groups;
mod inflight;
mod install;
mod kinds;
mod logs;
mod man;
mod mesh;
mod net;
mod nodes;
#[cfg(feature = "replay")]
mod replay;
mod restart;
mod roles;
mod rules;
mod scale;
mod search;
mod support;
mod tokens;
mod up;
mod users;
mod version;
mod violations;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::cli::client;
use crate::output::Verdict;

/// One system for Kubernetes platforms that cannot stall: fleet, net, guard and mesh.
///
/// A slow call, a stuck lock, a dead cluster or a flood holds up nothing but itself, and is named
/// within seconds.
#[derive(Debug, Parser)]
#[command(
    name = "fairlead",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  fairlead up --data ./data             run everything on this machine
  fairlead agent                        run this node's pod network
  fairlead install                      put it into a cluster; then: status, upgrade, uninstall
  fairlead clusters list                every cluster, its state and why
  fairlead get pods -A --all-clusters   resources of many clusters, as kubectl shows them
  fairlead search checkout              where is it?
  fairlead conversations --since 1h     who talks to whom?
  fairlead doctor dump.txt daemon.log   what is stuck in a Go daemon, and who holds it?
  fairlead inflight                     what is it doing right now, oldest first?
  fairlead support --cluster            one archive of what is needed to find out what went wrong
  fairlead config show                  every setting, and where its value came from
  fairlead completions bash             shell completions

Exit codes: 0 yes or done; 1 no, denied or something found; 2 could not do it."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Up(up::Args),
    Controller(controller::Args),
    Install(Box<install::Args>),
    Upgrade(install::UpgradeArgs),
    Uninstall(install::UninstallArgs),
    Status(install::StatusArgs),
    Agent(agent::Args),
    Agents(agents::Args),
    Clusters(clusters::Args),
    Get(Box<get::Args>),
    Describe(describe::Args),
    Search(search::Args),
    Events(events::Args),
    Kinds(kinds::Args),
    Apply(apply::Args),
    Delete(delete::Args),
    Scale(scale::Args),
    Restart(restart::Args),
    Cordon(nodes::Cordon),
    Uncordon(nodes::Uncordon),
    Drain(nodes::Drain),
    Logs(logs::Args),
    Exec(exec::Args),
    Forward(forward::Args),
    Users(users::Args),
    Roles(roles::Args),
    Tokens(tokens::Args),
    Audit(audit::Args),
    Admission(admission::Args),
    Conversations(conversations::Args),
    Groups(groups::Args),
    Rules(rules::Args),
    Violations(violations::Args),
    Mesh(mesh::Args),
    Net(net::Args),
    Doctor(doctor::Args),
    Inflight(inflight::Args),
    Support(Box<support::Args>),
    #[cfg(feature = "replay")]
    Replay(replay::Args),
    Crds(crds::Args),
    Config(config::Args),
    Completions(completions::Args),
    Man(man::Args),
    Version(version::Args),
}

/// Reads the command line. As `kubectl-fairlead`, which is how kubectl runs it as a plugin, the program
/// calls itself what its user typed.
pub(crate) fn parse() -> Cli {
    let program = std::env::args_os().next().map(std::path::PathBuf::from);
    let plugin = program.is_some_and(|p| p.file_name().is_some_and(|n| n == "kubectl-fairlead"));
    let command = Cli::command();
    let command = if plugin { command.bin_name("kubectl fairlead") } else { command };
    Cli::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
}

pub(crate) fn dispatch(cli: &Cli) -> Verdict {
    let answer = match &cli.verb {
        Verb::Up(args) => return up::run(args),
        Verb::Controller(args) => return controller::run(args),
        Verb::Agent(args) => return agent::run(args),
        Verb::Install(args) => return install::run(args),
        Verb::Upgrade(args) => return install::upgrade(args),
        Verb::Uninstall(args) => return install::uninstall(args),
        Verb::Status(args) => return install::status(args),
        Verb::Admission(args) => return admission::run(args),
        Verb::Mesh(args) => return mesh::run(args),
        Verb::Net(args) => return net::run(args),
        Verb::Doctor(args) => return doctor::run(args),
        Verb::Inflight(args) => return inflight::run(args),
        Verb::Support(args) => return support::run(args),
        #[cfg(feature = "replay")]
        Verb::Replay(args) => return replay::run(args),
        Verb::Crds(args) => return crds::run(args),
        Verb::Config(args) => return config::run(args),
        Verb::Completions(args) => return completions::run(args),
        Verb::Man(args) => return man::run(args),
        Verb::Version(args) => return version::run(args),
        // The others ask a running server.
        Verb::Agents(args) => agents::run(args),
        Verb::Clusters(args) => clusters::run(args),
        Verb::Get(args) => get::run(args),
        Verb::Describe(args) => describe::run(args),
        Verb::Search(args) => search::run(args),
        Verb::Events(args) => events::run(args),
        Verb::Kinds(args) => kinds::run(args),
        Verb::Apply(args) => apply::run(args),
        Verb::Delete(args) => delete::run(args),
        Verb::Scale(args) => scale::run(args),
        Verb::Restart(args) => restart::run(args),
        Verb::Cordon(args) => nodes::cordon(args),
        Verb::Uncordon(args) => nodes::uncordon(args),
        Verb::Drain(args) => nodes::drain(args),
        Verb::Logs(args) => logs::run(args),
        Verb::Exec(args) => exec::run(args),
        Verb::Forward(args) => forward::run(args),
        Verb::Users(args) => users::run(args),
        Verb::Roles(args) => roles::run(args),
        Verb::Tokens(args) => tokens::run(args),
        Verb::Audit(args) => audit::run(args),
        Verb::Conversations(args) => conversations::run(args),
        Verb::Groups(args) => groups::run(args),
        Verb::Rules(args) => rules::run(args),
        Verb::Violations(args) => violations::run(args),
    };
    client::verdict(answer)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
