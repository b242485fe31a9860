//! Rules and decisions of a running server.

use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::cli::client::{Answer, Route, ServerFlags};
use crate::cli::event_tail::EventTail;
use crate::cli::listing::field;
use crate::cli::table::{Cell, Table, moment};
use crate::cli::terminal::{Colour, Paint};
use crate::cli::values;
use crate::output::{NO, Output};

#[derive(Debug, clap::Args)]
pub(super) struct Rules {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Debug, clap::Args)]
pub(super) struct Audit {
    /// Go on with every change
    #[arg(short, long)]
    watch: bool,
    /// Only what was allowed, denied or monitored (admitted although a rule matched)
    #[arg(long, value_parser = ["allowed", "denied", "monitored"])]
    outcome: Option<String>,
    /// Only of this cluster; `local` is the one that the store is in
    #[arg(long)]
    cluster: Option<String>,
    /// Only of this namespace
    #[arg(short, long)]
    namespace: Option<String>,
    /// Only by this rule
    #[arg(long)]
    rule: Option<String>,
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
    values::time(text, "1s", "87600h").ok_or_else(|| "expected a time such as 10m, 24h".to_owned())
}

pub(super) fn rules(args: &Rules) -> Answer<ExitCode> {
    let answer: Value = args.server.open()?.get(&Route::to(["admission", "rules"]))?;
    let rules = answer["rules"].as_array().map_or(&[][..], Vec::as_slice);
    args.output.print(&answer, || rule_table(rules).render(Paint::stdout()))?;
    let invalid = rules.iter().any(|rule| rule["state"] == "invalid");
    Ok(if invalid { ExitCode::from(NO) } else { ExitCode::SUCCESS })
}

fn rule_table(rules: &[Value]) -> Table {
    let mut table = Table::new(["NAME", "ACTION", "MODE", "ORIGIN", "STATE", "CRITERIA", "WHY"]);
    for rule in rules {
        let criteria = rule["criteria"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let origin = field(rule, "origin");
        let origin = if rule["critical"] == true { format!("{origin}, critical") } else { origin };
        let state = field(rule, "state");
        let state = match state.as_str() {
            "invalid" => Cell::coloured(&state, Colour::Red),
            "disabled" => Cell::coloured(&state, Colour::Dim),
            _ => state.into(),
        };
        table.row([
            field(rule, "name").into(),
            field(rule, "action").into(),
            field(rule, "mode").into(),
            origin.into(),
            state,
            criteria.collect::<Vec<_>>().join("; ").into(),
            field(rule, "why").into(),
        ]);
    }
    table
}

pub(super) fn audit(args: &Audit) -> Answer<ExitCode> {
    let server = args.server.open()?;
    let route = Route::to(["admission", "audit"])
        .with("limit", args.limit)
        .maybe("outcome", args.outcome.as_deref())
        .maybe("cluster", args.cluster.as_deref())
        .maybe("namespace", args.namespace.as_deref())
        .maybe("rule", args.rule.as_deref())
        .maybe("since", args.since.map(|since| Timestamp::now() - since));
    if args.watch {
        return AUDIT.follow(&server, &route, args.output);
    }
    AUDIT.show(&server, &route, args.output)?;
    Ok(ExitCode::SUCCESS)
}

const AUDIT: EventTail = EventTail {
    event: "audit",
    lines: "lines",
    titles: &[
        "LAST",
        "COUNT",
        "OUTCOME",
        "CLUSTER",
        "NAMESPACE",
        "OWNER",
        "IMAGE",
        "RULE",
        "USER",
        "WHY",
    ],
    row,
    missing: [
        ("forgotten", "older lines made room for others"),
        ("dropped", "decisions came faster than they were written down"),
    ],
};

fn row(line: &Value) -> Vec<Cell> {
    let outcome = field(line, "outcome");
    let shown =
        if line["dryRun"] == true { format!("{outcome} (dry run)") } else { outcome.clone() };
    let outcome = match outcome.as_str() {
        "denied" => Cell::coloured(&shown, Colour::Red),
        "monitored" => Cell::coloured(&shown, Colour::Yellow),
        _ => shown.into(),
    };
    let mut cells = vec![moment(&field(line, "last")).into(), field(line, "count").into(), outcome];
    let names = ["cluster", "namespace", "owner", "image", "rule", "user", "why"];
    cells.extend(names.map(|name| Cell::from(field(line, name))));
    cells
}
