use crate::cli::verbs::config::load;
use crate::config::ConfigFlags;
use crate::daemon::controller;
use crate::daemon::process::{self, Listeners};
use crate::output::Verdict;

/// Run everything on this machine, with nothing else installed
///
/// Listens on loopback unless told otherwise. Stop it with Ctrl-C: work in flight gets its grace.
///
/// Examples:
///   fairlead up --data ./data
///   fairlead up --config fairlead.yaml --log-level info,stallproof=debug
///   curl http://127.0.0.1:7682/debug/inflight
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: ConfigFlags,
}

pub(crate) fn run(args: &Args) -> Verdict {
    let mut config = load(&args.flags)?.config;
    // Whoever is on this machine may say which node it is; beyond it, certificates say so.
    config.agents.plain = config.agents.listen.is_loopback();
    let listeners = Listeners::take(&config)?;
    let api = controller::Listeners::take(&config)?;
    process::run(&config, listeners, |process, registry| {
        controller::begin(&config, api, process, registry)
    })
}
