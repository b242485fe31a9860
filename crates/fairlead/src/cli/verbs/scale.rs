use std::process::ExitCode;

use http::Method;
use serde_json::{Value, json};

use crate::cli::client::{Answer, Body, Change, Object, Target, across};
use crate::output::{self, texts};

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
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=i32::MAX as i64))]
    replicas: u32,
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
            let route = args.object.route(name)?.and("scale");
            let route = route.with("namespace", args.target.namespace());
            let body = json!({ "replicas": args.replicas });
            server.ask::<Value>(&Method::POST, &route, &Body::Json(&body))
        },
        |name, scaled| {
            let prefix = if several { format!("{name}: ") } else { String::new() };
            output::warn(&prefix, &texts(&scaled["warnings"]));
            let was = scaled["was"].as_u64().map_or_else(String::new, |was| format!(" from {was}"));
            output::line(&format!("{prefix}{} scaled{was} to {}", args.object, args.replicas))?;
            Ok(0)
        },
    )
}
