use crate::cli::verbs::config::load;
use crate::config::ConfigFlags;
use crate::daemon::egress;
use crate::daemon::process::{self, Listeners};
use crate::output::Verdict;

/// Translate addresses of other pods' connections, in the pod of an Egress
///
/// Controllers make pods that run this: one for each replica of an Egress. It needs NET_ADMIN in its own
/// network namespace and nothing of the cluster. What it sets up is done by the kernel: connections go on
/// if the process ends. At its end it waits for connections to end, as long as --grace says.
///
/// Example:
///   fairlead egress --data /var/lib/fairlead --grace 25s
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: ConfigFlags,
}

pub(crate) fn run(args: &Args) -> Verdict {
    let config = load(&args.flags)?.config;
    let listeners = Listeners::take(&config)?;
    process::run(&config, listeners, |process, registry| egress::begin(&config, process, registry))
}
