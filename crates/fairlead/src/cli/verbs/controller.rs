use crate::cli::verbs::config::load_with;
use crate::config::{ConfigFlags, Resolved, Store};
use crate::daemon::controller;
use crate::daemon::process::{self, Listeners};
use crate::output::Verdict;

/// Run one of several controllers, with the state in Kubernetes
///
/// As `up`, but objects live in the API server of this pod, and no kubeconfig of this machine is picked
/// up, unless settings say otherwise. Any number of replicas serve; one of them leads (the Lease
/// `fairlead-controller` in the fleet's namespace) and does what only one may do, and another takes over
/// within seconds when it dies.
///
/// Examples:
///   fairlead crds | kubectl apply -f -
///   fairlead controller --data /var/lib/fairlead
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: ConfigFlags,
}

pub(crate) fn run(args: &Args) -> Verdict {
    let config = load_with(&args.flags, imply)?.config;
    let listeners = Listeners::take(&config)?;
    let api = controller::Listeners::take(&config)?;
    process::run(&config, listeners, |process, registry| {
        let mut told = controller::begin(&config, api, process, registry)?;
        // For whoever sits at the machine; a log keeps it too long.
        told.retain(|(what, _)| *what != "login");
        Ok(told)
    })
}

/// What a controller runs with unless settings say otherwise.
fn imply(resolved: &mut Resolved) {
    resolved.unless_set("store", |config| config.store = Store::Kubernetes);
    resolved.unless_set("fleet.kubeconfig", |config| config.fleet.kubeconfig.clear());
}

#[cfg(test)]
mod tests;
