use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::cli::client::{ClientResult, Route, ServerFlags};
use crate::cli::event_tail::report_missing_replicas;
use crate::cli::listing::{field, fields};
use crate::cli::table::{Cell, moment};
use crate::cli::terminal::Colour;
use crate::output::Output;
use crate::values;

/// Show who changed what, newest first
///
/// Examples:
///   fairlead audit --since 1h
///   fairlead audit --user ann --cluster prod -o json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Only by this user
    #[arg(long)]
    user: Option<String>,
    /// Only in this cluster
    #[arg(long)]
    cluster: Option<String>,
    /// Only what was done since so long ago, such as 10m, 24h
    #[arg(long, value_name = "TIME", value_parser = values::since)]
    since: Option<Duration>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    let route = Route::to(["audit"])
        .with("limit", args.limit)
        .maybe("user", args.user.as_deref())
        .maybe("cluster", args.cluster.as_deref())
        .maybe("since", args.since.map(|since| Timestamp::now() - since));
    let answer: Value = args.server.open()?.get(&route).await?;
    let titles = ["TIME", "USER", "VERB", "CLUSTER", "NAMESPACE", "RESOURCE", "NAME", "OUTCOME"];
    args.output.print_list(&answer, "entries", &titles, row)?;
    report_missing_replicas(&answer);
    Ok(ExitCode::SUCCESS)
}

fn row(entry: &Value) -> [Cell; 8] {
    let outcome = field(entry, "outcome");
    // Details follow a colon.
    let outcome = match outcome.split(':').next() {
        Some("ok" | "opened" | "begun") => outcome.into(),
        _ => Cell::coloured(&outcome, Colour::Yellow),
    };
    let [user, verb, cluster, namespace, resource, name] =
        fields(entry, ["user", "verb", "cluster", "namespace", "resource", "name"]);
    let at = moment(&field(entry, "at")).into();
    [at, user, verb, cluster, namespace, resource, name, outcome]
}
