use std::process::ExitCode;

use http::Method;
use serde_json::Value;

use super::conversations::{Which, end, port};
use crate::client::{Answer, Body, Route, Server, ServerFlags};
use crate::listing::field;
use crate::output::{self, Format, Output};
use crate::table::{Cell, Table, moment};
use crate::terminal::Paint;

/// What was against the network rules: seen and reported, not stopped
///
/// One line for the same client, server, port and rule, however often it came. Only workloads in
/// groups with the mode monitor or protect have violations; protect is not enforced yet.
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
    which: Which,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=8192))]
    limit: u64,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

pub(crate) fn run(args: &Args) -> Answer<ExitCode> {
    let server = args.server.open()?;
    let route = args.which.add_to(Route::to(["guard", "violations"])).with("limit", args.limit);
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
    super::groups::say(&answer);
    Ok(ExitCode::SUCCESS)
}

/// The table in the order of time, then a row for every line that changes.
fn watch(server: &Server, route: &Route, output: Output) -> Answer<ExitCode> {
    let mut events = server.events(&Method::GET, route, &Body::None)?;
    let mut table: Option<Table> = None;
    let mut before = Value::Null;
    loop {
        let event = events.expect("you left")?;
        if event.name != "violations" {
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
    answer["violations"].as_array().map_or(&[][..], Vec::as_slice)
}

/// What is not in the lines, when that grows.
fn say_missing(answer: &Value, before: &Value) {
    let more = |name: &str| {
        let (now, before) = (answer[name].as_u64(), before[name].as_u64());
        now.filter(|now| *now > before.unwrap_or_default())
    };
    if let Some(gone) = more("letGo") {
        eprintln!("{gone} older lines made room for others");
    }
    if let Some(missed) = more("missed") {
        eprintln!("{missed} violations came faster than they were written down");
    }
}

fn line_table() -> Table {
    Table::new(["LAST", "CLIENT", "SERVER", "PORT", "RULE", "STOPPED", "SESSIONS", "BYTES"])
}

fn row(line: &Value) -> Vec<Cell> {
    let rule = line["rule"].as_str().unwrap_or("(none allows it)");
    // Protect is not enforced yet, and monitor never stops anything.
    let stopped = if line["enforced"] == false { "no (not enforced)" } else { "no" };
    vec![
        moment(&field(line, "last")).into(),
        end(&line["client"]).into(),
        end(&line["server"]).into(),
        port(line).into(),
        rule.into(),
        stopped.into(),
        field(line, "sessions").into(),
        field(line, "bytes").into(),
    ]
}
