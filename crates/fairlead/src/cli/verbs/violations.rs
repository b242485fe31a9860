use std::process::ExitCode;

use serde_json::Value;

use super::conversations::{ConversationFilter, endpoint, port};
use crate::cli::client::{ClientResult, Route, ServerFlags};
use crate::cli::event_tail::EventTail;
use crate::cli::listing::field;
use crate::cli::table::{Cell, moment};
use crate::output::Output;

/// Show connections that were against the network rules, and which were stopped
///
/// Each line is a client, a server, a port and a rule, however often they came. Only workloads in
/// groups with the mode monitor or protect have violations; protect stops them on nodes that enforce policies.
///
/// Examples:
///   fairlead violations --since 1h
///   fairlead violations -w --namespace shop
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Go on with every change
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    filter: ConversationFilter,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=8192))]
    limit: u64,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    let server = args.server.open()?;
    let route = args.filter.add_to(Route::to(["guard", "violations"])).with("limit", args.limit);
    if args.watch {
        return VIOLATIONS.follow(&server, &route, args.output).await;
    }
    let answer = VIOLATIONS.show(&server, &route, args.output).await?;
    super::groups::note_enforcement(&answer);
    Ok(ExitCode::SUCCESS)
}

const VIOLATIONS: EventTail = EventTail {
    event: "violations",
    lines: "violations",
    titles: &["LAST", "CLIENT", "SERVER", "PORT", "RULE", "STOPPED", "SESSIONS", "BYTES"],
    row,
    missing: [
        ("letGo", "older lines made room for others"),
        ("missed", "violations came faster than they were written down"),
    ],
};

fn row(line: &Value) -> Vec<Cell> {
    let rule = line["rule"].as_str().unwrap_or("(none allows it)");
    // Monitor never stops anything; protect does on nodes that enforce policies.
    let stopped = match line["enforced"].as_bool() {
        Some(true) => "yes",
        Some(false) => "where enforced",
        None => "no",
    };
    vec![
        moment(&field(line, "last")).into(),
        endpoint(&line["client"]).into(),
        endpoint(&line["server"]).into(),
        port(line).into(),
        rule.into(),
        stopped.into(),
        field(line, "sessions").into(),
        field(line, "bytes").into(),
    ]
}
