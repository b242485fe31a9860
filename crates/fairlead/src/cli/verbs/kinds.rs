use std::process::ExitCode;

use http::Method;
use serde::Deserialize;
use serde_json::Value;

use crate::cli::client::{Answer, Body, Change, Route, Target, understood};
use crate::cli::table::Table;
use crate::cli::terminal::Paint;
use crate::output::{NO, Output};

/// List the kinds of resources that a cluster has
///
/// Examples:
///   fairlead kinds
///   fairlead kinds --cluster prod --reset      forget what was found and look again
///
/// Exit 1 when some API groups of the cluster do not answer; they are named.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Look again first
    #[arg(long)]
    reset: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: Target,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Kinds {
    kinds: Vec<Kind>,
    failed: Vec<Failed>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Kind {
    name: String,
    short_names: Vec<String>,
    group: String,
    version: String,
    kind: String,
    namespaced: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Failed {
    group: String,
    why: String,
}

pub(crate) fn run(args: &Args) -> Answer<ExitCode> {
    let server = args.target.open()?;
    let cluster = args.target.one(&server, Change::No)?;
    let route = Route::to(["clusters", &cluster, "kinds"]);
    if args.reset {
        server.ask::<Value>(&Method::POST, &route.clone().and("reset"), &Body::None)?;
    }
    let answer: Value = server.get(&route)?;
    let found: Kinds = understood(&answer)?;
    args.output.print(&answer, || table(&found.kinds))?;
    for failed in &found.failed {
        eprintln!("failed: {}: {}", failed.group, failed.why);
    }
    Ok(if found.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

fn table(kinds: &[Kind]) -> String {
    let mut table = Table::new(["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]);
    for kind in kinds {
        let version = if kind.group.is_empty() {
            kind.version.clone()
        } else {
            format!("{}/{}", kind.group, kind.version)
        };
        table.row([
            kind.name.clone(),
            kind.short_names.join(","),
            version,
            kind.namespaced.to_string(),
            kind.kind.clone(),
        ]);
    }
    table.render(Paint::stdout())
}
