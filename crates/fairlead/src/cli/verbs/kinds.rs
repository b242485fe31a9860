use std::process::ExitCode;

use serde_json::Value;

use crate::cli::client::{Access, Body, ClientResult, Route, Target};
use crate::cli::listing::{field, items, joined};
use crate::output::{Output, yes_or_no};

/// List the kinds of resources that a cluster has
///
/// Examples:
///   fairlead kinds
///   fairlead kinds --cluster prod --reset   forget what was found and look again
///
/// Exit 1 when some API groups of the cluster do not answer; they are named.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Look again before listing
    #[arg(long)]
    reset: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    let server = args.target.open()?;
    let cluster = args.target.one(&server, Access::Read).await?;
    let route = Route::to(["clusters", &cluster, "kinds"]);
    if args.reset {
        server.post::<Value>(&route.clone().and("reset"), Body::None).await?;
    }
    let answer: Value = server.get(&route).await?;
    let titles = ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"];
    args.output.print_list(&answer, "kinds", &titles, row)?;
    let failed = items(&answer, "failed");
    for group in failed {
        eprintln!("failed: {}: {}", field(group, "group"), field(group, "why"));
    }
    Ok(yes_or_no(failed.is_empty()))
}

fn row(kind: &Value) -> [String; 5] {
    let version = match kind["group"].as_str() {
        None | Some("") => field(kind, "version"),
        Some(group) => format!("{group}/{}", field(kind, "version")),
    };
    let short_names = joined(kind, "shortNames", ",");
    [field(kind, "name"), short_names, version, field(kind, "namespaced"), field(kind, "kind")]
}
