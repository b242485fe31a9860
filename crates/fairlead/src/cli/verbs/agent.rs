use crate::cli::verbs::config::load;
use crate::config::ConfigFlags;
use crate::daemon::agent;
use crate::daemon::process::{self, Listeners};
use crate::output::{Failure, Verdict};

/// Run this node's pod network, and tell a controller who talks to whom
///
/// Serves the plugin that `fairlead net install` sets up. Addresses come from AddressPools: on
/// Kubernetes (--store kubernetes) those of the cluster, else of this machine alone, for which
/// --net-subnets makes a first one. Needs root. Pods keep their network while the agent is away;
/// only new ones wait for it.
///
/// With --guard-controllers it reports the node's connections, as the kernel tracks them, for
/// `fairlead conversations`. A controller on another machine asks for a token the first time:
/// `fairlead agents token`. With --net-serve off it does only that, beside any other CNI plugin.
///
/// Examples:
///   fairlead agent --net-subnets 10.64.0.0/16
///   fairlead agent --net-subnets 10.64.0.0/16+fd64::/112 --data /var/lib/fairlead
///   fairlead agent --store kubernetes --net-node node1
///   fairlead agent --net-serve off --guard-controllers fairlead:7681 \
///     --guard-token-file token
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: ConfigFlags,
}

pub(crate) fn run(args: &Args) -> Verdict {
    let config = load(&args.flags)?.config;
    if !rustix::process::geteuid().is_root() {
        return Err(Failure("the agent makes interfaces and routes, and reads the kernel's connections: run it as root".to_owned()));
    }
    let listeners = Listeners::take(&config)?;
    process::run(&config, listeners, |process, registry| agent::begin(&config, process, registry))
}
