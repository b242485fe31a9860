use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::cli::client::{Answer, Route, ServerFlags};
use crate::cli::event_tail::say_missing_replicas;
use crate::cli::listing::field;
use crate::cli::table::{Cell, Table, moment};
use crate::cli::terminal::{Colour, Paint};
use crate::cli::values;
use crate::output::Output;

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
    /// Only of the last so long, such as 10m, 24h
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<Duration>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

fn since(text: &str) -> Result<Duration, String> {
    // A time that lies before all time is a slip of the hand.
    values::time(text, "1s", "87600h").ok_or_else(|| "expected a time such as 10m, 24h".to_owned())
}

pub(crate) fn run(args: &Args) -> Answer<ExitCode> {
    let route = Route::to(["audit"])
        .with("limit", args.limit)
        .maybe("user", args.user.as_deref())
        .maybe("cluster", args.cluster.as_deref())
        .maybe("since", args.since.map(|since| Timestamp::now() - since));
    let answer: Value = args.server.open()?.get(&route)?;
    args.output.print(&answer, || table(&answer).render(Paint::stdout()))?;
    say_missing_replicas(&answer);
    Ok(ExitCode::SUCCESS)
}

fn table(answer: &Value) -> Table {
    let mut table =
        Table::new(["TIME", "USER", "VERB", "CLUSTER", "NAMESPACE", "RESOURCE", "NAME", "OUTCOME"]);
    for entry in answer["entries"].as_array().into_iter().flatten() {
        let mut cells = vec![Cell::from(moment(&field(entry, "at")))];
        cells.extend(
            ["user", "verb", "cluster", "namespace", "resource", "name"]
                .map(|name| Cell::from(field(entry, name))),
        );
        let outcome = field(entry, "outcome");
        // Details follow a colon.
        cells.push(match outcome.split(':').next() {
            Some("ok" | "opened" | "begun") => outcome.into(),
            _ => Cell::coloured(&outcome, Colour::Yellow),
        });
        table.row(cells);
    }
    table
}
