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
mod egress;
mod events;
mod exec;
mod forward;
mod get;
mod groups;
mod guard;
mod images;
mod inflight;
mod install;
mod kinds;
mod kubeconfig;
mod login;
mod login_link;
mod logs;
mod man;
mod mesh;
mod net;
mod nodes;
mod oidc;
mod policy;
mod receivers;
#[cfg(feature = "replay")]
mod replay;
mod responses;
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

use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};

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
  fairlead login https://HOST:7680      log in with an identity provider or a password
  fairlead clusters list                every cluster, its state and why
  fairlead get pods -A --all-clusters   resources of many clusters, as kubectl shows them
  fairlead search checkout              where is it?
  fairlead conversations --since 1h     who talks to whom?
  fairlead doctor dump.txt daemon.log   what is stuck in a daemon, and who holds it?
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
    Egress(egress::Args),
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
    Login(login::LoginArgs),
    Logout(login::LogoutArgs),
    Users(users::Args),
    Roles(roles::Args),
    Tokens(tokens::Args),
    LoginLink(login_link::Args),
    Kubeconfig(kubeconfig::Args),
    Oidc(oidc::Args),
    Audit(Box<audit::Args>),
    Admission(admission::Args),
    Images(images::Args),
    Conversations(conversations::Args),
    Guard(guard::Args),
    Groups(groups::Args),
    Rules(rules::Args),
    Violations(violations::Args),
    Receivers(receivers::Args),
    Responses(responses::Args),
    Policy(policy::Args),
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

/// Parses the command line. As `kubectl-fairlead`, which is how kubectl runs it as a plugin, the
/// program calls itself what its user typed.
pub(crate) fn parse() -> Cli {
    let program = std::env::args_os().next().map(std::path::PathBuf::from);
    let plugin = program.is_some_and(|p| p.file_name().is_some_and(|n| n == "kubectl-fairlead"));
    let command = command();
    let command = if plugin { command.bin_name("kubectl fairlead") } else { command };
    Cli::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
}

/// The command line, with every description in paragraphs.
pub(crate) fn command() -> Command {
    in_paragraphs(Cli::command())
}

/// Joins the lines of each paragraph of a description, so that clap wraps it to the width of the
/// terminal. Indented lines are examples, and stay as they are.
fn in_paragraphs(command: Command) -> Command {
    let command = command.mut_subcommands(in_paragraphs);
    let Some(text) = command.get_long_about().map(ToString::to_string) else { return command };
    let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
    let mut joined = String::new();
    let mut before = "";
    for line in text.lines() {
        if !joined.is_empty() {
            joined.push(if is_prose(before) && is_prose(line) { ' ' } else { '\n' });
        }
        joined.push_str(line);
        before = line;
    }
    command.long_about(joined)
}

pub(crate) fn dispatch(cli: &Cli) -> Verdict {
    match &cli.verb {
        Verb::Up(args) => up::run(args),
        Verb::Controller(args) => controller::run(args),
        Verb::Agent(args) => agent::run(args),
        Verb::Egress(args) => egress::run(args),
        Verb::Install(args) => install::run(args),
        Verb::Upgrade(args) => install::upgrade(args),
        Verb::Uninstall(args) => install::uninstall(args),
        Verb::Status(args) => install::status(args),
        Verb::Admission(args) => admission::run(args),
        Verb::Images(args) => images::run(args),
        Verb::Policy(args) => policy::run(args),
        Verb::Mesh(args) => mesh::run(args),
        Verb::Net(args) => net::run(args),
        Verb::Doctor(args) => doctor::run(args),
        Verb::Inflight(args) => inflight::run(args),
        Verb::Support(args) => support::run(args),
        #[cfg(feature = "replay")]
        Verb::Replay(args) => replay::run(args),
        Verb::Crds(args) => crds::run(args),
        Verb::Config(args) => config::run(args),
        Verb::Completions(args) => completions::run(args),
        Verb::Man(args) => man::run(args),
        Verb::Version(args) => version::run(args),
        // The others ask a running server.
        Verb::Agents(args) => client::run(agents::run(args)),
        Verb::Clusters(args) => client::run(clusters::run(args)),
        Verb::Get(args) => client::run(get::run(args)),
        Verb::Describe(args) => client::run(describe::run(args)),
        Verb::Search(args) => client::run(search::run(args)),
        Verb::Events(args) => client::run(events::run(args)),
        Verb::Kinds(args) => client::run(kinds::run(args)),
        Verb::Apply(args) => client::run(apply::run(args)),
        Verb::Delete(args) => client::run(delete::run(args)),
        Verb::Scale(args) => client::run(scale::run(args)),
        Verb::Restart(args) => client::run(restart::run(args)),
        Verb::Cordon(args) => client::run(nodes::cordon(args)),
        Verb::Uncordon(args) => client::run(nodes::uncordon(args)),
        Verb::Drain(args) => client::run(nodes::drain(args)),
        Verb::Logs(args) => client::run(logs::run(args)),
        Verb::Exec(args) => client::run(exec::run(args)),
        Verb::Forward(args) => client::run(forward::run(args)),
        Verb::Login(args) => client::run(login::login(args)),
        Verb::Logout(args) => client::run(login::logout(args)),
        Verb::Oidc(args) => client::run(oidc::run(args)),
        Verb::Users(args) => client::run(users::run(args)),
        Verb::Roles(args) => client::run(roles::run(args)),
        Verb::Tokens(args) => client::run(tokens::run(args)),
        Verb::LoginLink(args) => client::run(login_link::run(args)),
        Verb::Kubeconfig(args) => client::run(kubeconfig::run(args)),
        Verb::Audit(args) => client::run(audit::run(args)),
        Verb::Conversations(args) => client::run(conversations::run(args)),
        Verb::Guard(args) => client::run(guard::run(args)),
        Verb::Groups(args) => client::run(groups::run(args)),
        Verb::Rules(args) => client::run(rules::run(args)),
        Verb::Violations(args) => client::run(violations::run(args)),
        Verb::Receivers(args) => client::run(receivers::run(args)),
        Verb::Responses(args) => client::run(responses::run(args)),
    }
}

#[cfg(test)]
mod tests;
