mod install;
mod show;
mod uninstall;

use crate::output::Verdict;

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
    Pools(show::Pools),
    Blocks(show::Blocks),
    Addresses(show::Addresses),
    Check(show::Check),
}

pub(crate) fn run(args: &Args) -> Verdict {
    match &args.verb {
        Verb::Install(args) => install::install(args),
        Verb::Uninstall(args) => uninstall::uninstall(args),
        Verb::Pools(args) => show::pools(args),
        Verb::Blocks(args) => show::blocks(args),
        Verb::Addresses(args) => show::addresses(args),
        Verb::Check(args) => show::check(args),
    }
}
