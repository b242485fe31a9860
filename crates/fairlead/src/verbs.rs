//! The verbs, one a file.

mod completions;
mod config;
mod doctor;
mod inflight;
mod up;
mod version;

use clap::{Parser, Subcommand};

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
  fairlead doctor dump.txt daemon.log   what is stuck in a Go daemon, and who holds it?
  fairlead inflight                     what is it doing right now, oldest first?
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
    Doctor(doctor::Args),
    Inflight(inflight::Args),
    Config(config::Args),
    Completions(completions::Args),
    Version(version::Args),
}

pub(crate) fn dispatch(cli: &Cli) -> Verdict {
    match &cli.verb {
        Verb::Up(args) => up::run(args),
        Verb::Doctor(args) => doctor::run(args),
        Verb::Inflight(args) => inflight::run(args),
        Verb::Config(args) => config::run(args),
        Verb::Completions(args) => completions::run(args),
        Verb::Version(args) => version::run(args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
