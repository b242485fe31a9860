//! Rules and decisions of a running server.

use std::process::ExitCode;
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use serde_json::Value;

use crate::client::{Answer, Body, Route, Server, ServerFlags};
use crate::listing::field;
use crate::output::{self, Format, NO, Output};
use crate::table::{Cell, Table, moment};
use crate::terminal::{Colour, Paint};
use crate::values;

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
        return watch(&server, &route, args.output);
    }
    let answer: Value = server.get(&route)?;
    args.output.print(&answer, || {
        let mut table = line_table();
        lines(&answer).iter().for_each(|line| table.row(row(line)));
        table.render(Paint::stdout())
    })?;
    say_missing(&answer, &Value::Null);
    Ok(ExitCode::SUCCESS)
}

/// The table in the order of time, then a row for every line that changes.
fn watch(server: &Server, route: &Route, output: Output) -> Answer<ExitCode> {
    let mut events = server.events(&Method::GET, route, &Body::None)?;
    let mut table: Option<Table> = None;
    let mut before = Value::Null;
    loop {
        let event = events.expect("you left")?;
        if event.name != "audit" {
            continue;
        }
        let told: Value = event.json()?;
        let text = match output.output {
            Format::Table => {
                let begins = table.is_none();
                let table = table.get_or_insert_with(line_table);
                lines(&told).iter().rev().for_each(|line| table.row(row(line)));
                let paint = Paint::stdout();
                let titles = begins.then(|| table.render(paint));
                let rows = table.take(paint);
                titles.unwrap_or_else(|| rows.join("\n")) + "\n"
            }
            Format::Json => format!("{told}\n"),
            Format::Yaml => format!("---\n{}", output::yaml(&told)?),
        };
        if !output::heard(text.as_bytes())? {
            return Ok(ExitCode::SUCCESS);
        }
        say_missing(&told, &before);
        before = told;
    }
}

fn lines(answer: &Value) -> &[Value] {
    answer["lines"].as_array().map_or(&[][..], Vec::as_slice)
}

/// What is not in the lines, when that grows.
fn say_missing(answer: &Value, before: &Value) {
    let more = |name: &str| {
        let (now, before) = (answer[name].as_u64(), before[name].as_u64());
        now.filter(|now| *now > before.unwrap_or_default())
    };
    if let Some(forgotten) = more("forgotten") {
        eprintln!("{forgotten} older lines made room for others");
    }
    if let Some(dropped) = more("dropped") {
        eprintln!("{dropped} decisions came faster than they were written down");
    }
}

fn line_table() -> Table {
    Table::new([
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
    ])
}

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
