use std::process::ExitCode;

use http::Method;
use serde_json::Value;

use crate::cli::client::{Answer, Body, Change, Object, Target, across};
use crate::output::{self, texts};

/// Restart the pods of a workload, as its rollout strategy has it
///
/// Examples:
///   fairlead restart deploy/web -n shop
///   fairlead restart daemonset agent -n kube-system --all-clusters
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    object: Object,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(args: &Args) -> Answer<ExitCode> {
    args.object.named()?;
    let server = args.target.open()?;
    let names = args.target.names(&server, Change::Yes)?;
    let several = names.len() > 1;
    across::each(
        &names,
        |name| {
            let route = args.object.route(name)?.and("restart");
            let route = route.with("namespace", args.target.namespace());
            server.ask::<Value>(&Method::POST, &route, &Body::None)
        },
        |name, restarted| {
            let prefix = if several { format!("{name}: ") } else { String::new() };
            output::warn(&prefix, &texts(&restarted["warnings"]));
            output::line(&format!("{prefix}{} restarted", args.object))?;
            Ok(0)
        },
    )
}
