use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::cli::client::{Answer, Route, ServerFlags};
use crate::cli::listing::field;
use crate::cli::table::{Cell, Table, moment};
use crate::cli::terminal::{Colour, Paint};
use crate::cli::values;
use crate::output::Output;

/// Who talks to whom
///
/// One line for a client, a server, a port and an application, the latest first. What became too old
/// or too much is folded: it has no port, and is in the totals.
///
/// Verdicts: allowed (a rule says so), discovered (learned from), violates (no rule allows it, or one
/// denies it; protect is not enforced yet, so it was not stopped), unjudged (no workload is in it).
///
/// Examples:
///   fairlead conversations --since 1h
///   fairlead conversations --group shop/Deployment/web --verdict violates
///   fairlead conversations --namespace shop --external -o json
///   fairlead conversations --graph namespace -o json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    /// Only to this port of the server
    #[arg(long)]
    port: Option<u16>,
    /// Only with this verdict
    #[arg(long, value_parser = ["unjudged", "allowed", "discovered", "violates"])]
    verdict: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    limit: u64,
    /// Begin after the page that gave this
    #[arg(long = "continue", value_name = "PLACE")]
    after: Option<String>,
    /// Sums between workloads, groups or namespaces instead of single lines
    #[arg(long, value_name = "LEVEL", value_parser = ["workload", "group", "namespace"],
          conflicts_with_all = ["group", "namespace", "external", "port", "verdict", "after"])]
    graph: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

/// Whose.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// Only with an end in this group: a name, namespace/Kind/name, or any, external, hosts,
    /// ingress, services, unmanaged, workloads
    #[arg(long)]
    group: Option<String>,
    /// Only with an end in this namespace
    #[arg(short, long)]
    namespace: Option<String>,
    /// Only of the last so long, such as 10m, 24h
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<Duration>,
    /// Only with an end outside of the cluster
    #[arg(long)]
    external: bool,
}

impl Which {
    pub(super) fn add_to(&self, route: Route) -> Route {
        route
            .maybe("group", self.group.as_deref())
            .maybe("namespace", self.namespace.as_deref())
            .maybe("since", self.moment())
            .when("external", self.external)
    }

    fn moment(&self) -> Option<Timestamp> {
        self.since.map(|since| Timestamp::now() - since)
    }
}

fn since(text: &str) -> Result<Duration, String> {
    values::time(text, "1s", "87600h").ok_or_else(|| "expected a time such as 10m, 24h".to_owned())
}

pub(crate) fn run(args: &Args) -> Answer<ExitCode> {
    if let Some(level) = &args.graph {
        return graph(args, level);
    }
    let route = args
        .which
        .add_to(Route::to(["guard", "conversations"]))
        .with("limit", args.limit)
        .maybe("port", args.port)
        .maybe("verdict", args.verdict.as_deref())
        .maybe("continue", args.after.as_deref());
    let answer: Value = args.server.open()?.get(&route)?;
    let lines = answer["conversations"].as_array().map_or(&[][..], Vec::as_slice);
    args.output.print(&answer, || {
        let titles = ["CLIENT", "SERVER", "PORT", "VERDICT", "RULE", "SESSIONS", "BYTES", "LAST"];
        let mut table = Table::new(titles);
        lines.iter().for_each(|line| table.row(row(line)));
        table.render(Paint::stdout())
    })?;
    let matched = answer["matched"].as_u64().unwrap_or_default();
    if lines.is_empty() {
        eprintln!("no conversation fits; agents report who talks to whom (`fairlead agents`)");
    } else if let Some(next) = answer["continue"].as_str() {
        let shown = lines.len();
        eprintln!("{shown} of {matched}; more with --limit, or --continue {next:?}");
    }
    Ok(ExitCode::SUCCESS)
}

fn row(line: &Value) -> Vec<Cell> {
    vec![
        end(&line["client"]).into(),
        end(&line["server"]).into(),
        port(line).into(),
        verdict(line),
        field(line, "rule").into(),
        field(line, "sessions").into(),
        field(line, "bytes").into(),
        moment(&field(line, "last")).into(),
    ]
}

/// By name where it has one of its own, else by address.
pub(super) fn end(end: &Value) -> String {
    let (name, address) = (field(end, "name"), field(end, "address"));
    match end["kind"].as_str() {
        Some("external" | "unmanaged") => format!("{name} {address}"),
        _ => name,
    }
}

pub(super) fn port(line: &Value) -> String {
    let Some(protocol) = line["protocol"].as_str() else { return "(folded)".to_owned() };
    let port = line["port"].as_u64().filter(|port| *port > 0);
    let service = port.map_or_else(|| protocol.to_owned(), |port| format!("{protocol}/{port}"));
    match line["application"].as_str() {
        Some(application) => format!("{service} {application}"),
        None => service,
    }
}

fn verdict(line: &Value) -> Cell {
    let word = field(line, "verdict");
    match (word.as_str(), line["enforced"].as_bool()) {
        ("violates", Some(false)) => Cell::coloured("violates (not enforced)", Colour::Red),
        ("violates", _) => Cell::coloured(&word, Colour::Red),
        ("discovered", _) => Cell::coloured(&word, Colour::Yellow),
        _ => word.into(),
    }
}

fn graph(args: &Args, level: &str) -> Answer<ExitCode> {
    let route =
        Route::to(["guard", "graph"]).with("level", level).maybe("since", args.which.moment());
    let answer: Value = args.server.open()?.get(&route)?;
    let empty = Vec::new();
    let nodes = answer["nodes"].as_array().unwrap_or(&empty);
    let edges = answer["edges"].as_array().unwrap_or(&empty);
    args.output.print(&answer, || {
        let titles = ["CLIENT", "SERVER", "CONVERSATIONS", "SESSIONS", "BYTES", "LAST"];
        let mut table = Table::new(titles);
        let name = |edge: &Value, side: &str| {
            let place = edge[side].as_u64().and_then(|place| usize::try_from(place).ok());
            let node = place.and_then(|place| nodes.get(place));
            node.map_or_else(String::new, |node| field(node, "name"))
        };
        let mut edges: Vec<_> = edges.iter().collect();
        edges.sort_by_key(|edge| std::cmp::Reverse(edge["bytes"].as_u64()));
        for edge in edges.iter().take(usize::try_from(args.limit).unwrap_or(usize::MAX)) {
            let sums = ["conversations", "sessions", "bytes"].map(|sum| field(edge, sum));
            let ends = [name(edge, "client"), name(edge, "server")];
            let last = [moment(&field(edge, "last"))];
            table.row(ends.into_iter().chain(sums).chain(last));
        }
        table.render(Paint::stdout())
    })?;
    Ok(ExitCode::SUCCESS)
}
