use crate::agent;
use crate::config::ConfigFlags;
use crate::ground::{self, Claims};
use crate::output::{Failure, Verdict};
use crate::verbs::config::load;

/// Run this node's pod network: addresses, interfaces and routes of its pods
///
/// Serves the plugin that `fairlead net install` sets up. Addresses come from AddressPools: on
/// Kubernetes (--store kubernetes) those of the cluster, else of this machine alone, for which
/// --net-subnets makes a first one. Needs root. Pods keep their network while the agent is away;
/// only new ones wait for it.
///
/// Examples:
///   fairlead agent --net-subnets 10.64.0.0/16
///   fairlead agent --net-subnets 10.64.0.0/16+fd64::/112 --data /var/lib/fairlead
///   fairlead agent --store kubernetes --net-node node1
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: ConfigFlags,
}

pub(crate) fn run(args: &Args) -> Verdict {
    let config = load(&args.flags)?.config;
    if !rustix::process::geteuid().is_root() {
        return Err(Failure("the agent makes interfaces and routes: run it as root".to_owned()));
    }
    let claims = Claims::take(&config)?;
    ground::run(&config, claims, |ground, registry| agent::begin(&config, ground, registry))
}
