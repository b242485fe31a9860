//! Meshes: planned from files alone, or as a running Fairlead has them.

mod live;
mod peer;
mod plan;
mod tunnels;

use crate::cli::client;
use crate::cli::verbs::groups::ApplyFlags;
use crate::output::Verdict;

/// Join clusters by WireGuard
///
/// Examples:
///   fairlead mesh apply mesh.yaml
///   fairlead mesh status             every mesh, its clusters, what each waits for
///   fairlead mesh status -o dot | dot -Tsvg > meshes.svg
///   fairlead mesh check prod eu us   why can eu not reach us?
///   fairlead mesh status prod        also its tunnels: handshakes, bytes, loss, round trip
///   fairlead mesh peer add laptop --mesh prod > prod.conf
///   fairlead mesh forget prod us     give up a cluster that left and does not answer
///   fairlead mesh plan --mesh mesh.yaml --nodes eu=eu.yaml --nodes us=us.yaml
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Plan(plan::Args),
    Status(live::Status),
    Check(live::Check),
    /// Create or change meshes from a file
    Apply(ApplyFlags),
    Delete(live::Delete),
    Forget(live::Forget),
    Peer(peer::Args),
}

pub(crate) fn run(args: &Args) -> Verdict {
    match &args.verb {
        Verb::Plan(args) => plan::run(args),
        Verb::Status(args) => client::run(live::status(args)),
        Verb::Check(args) => client::run(live::check(args)),
        Verb::Apply(args) => client::run(live::apply(args)),
        Verb::Delete(args) => client::run(live::delete(args)),
        Verb::Forget(args) => client::run(live::forget(args)),
        Verb::Peer(args) => match &args.verb {
            peer::Verb::Add(args) => client::run(peer::add(args)),
            peer::Verb::List(args) => client::run(peer::list(args)),
            peer::Verb::Revoke(args) => client::run(peer::revoke(args)),
        },
    }
}
