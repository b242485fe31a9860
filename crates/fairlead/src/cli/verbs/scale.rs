use std::process::ExitCode;

use http::Method;
use serde_json::{Value, json};

use crate::cli::client::{ClientResult, Object, Route, Target, across};

/// Set how many replicas a workload has
///
/// Examples:
///   fairlead scale deploy/web --replicas 5 -n shop
///   fairlead scale statefulset db --replicas 0 --cluster staging
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    object: Object,
    /// How many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=i32::MAX as i64))]
    replicas: u32,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    let replicas = args.replicas;
    let request =
        |route: Route| (Method::POST, route.and("scale"), json!({ "replicas": replicas }));
    let outcome = |scaled: &Value| {
        let was = scaled["was"].as_u64().map_or_else(String::new, |was| format!(" from {was}"));
        format!("scaled{was} to {replicas}")
    };
    across::change_object(&args.object, &args.target, request, outcome).await
}
