use std::process::ExitCode;

use http::Method;
use serde_json::Value;

use crate::cli::client::{ClientResult, Object, Route, Target, across};

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

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    let request = |route: Route| (Method::POST, route.and("restart"), Value::Null);
    across::change_object(&args.object, &args.target, request, |_| "restarted".to_owned()).await
}
