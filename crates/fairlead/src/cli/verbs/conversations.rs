use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::cli::client::{ClientResult, Route, ServerFlags};
use crate::cli::listing::{field, items};
use crate::cli::table::{Cell, moment};
use crate::cli::terminal::Colour;
use crate::output::{self, Output};
use crate::values;

/// Show who talks to whom
///
/// Each line is a client, a server, a port and an application, the latest first. Conversations that
/// became too old or too many are folded into one line without a port, which keeps their totals.
///
/// A verdict is one of: allowed (a rule allows it), discovered (a rule was learned from it), violates
/// (no rule allows it, or one denies it; it was stopped if both ends are in protect and their nodes
/// enforce policies), unjudged (neither end is a workload).
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
    filter: ConversationFilter,
    /// Only to this port of the server
    #[arg(long)]
    port: Option<u16>,
    /// Only with this verdict
    #[arg(long, value_parser = ["unjudged", "allowed", "discovered", "violates"])]
    verdict: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    limit: u64,
    /// Begin after the page that printed this
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

/// The flags that choose conversations and violations.
#[derive(Debug, clap::Args)]
pub(super) struct ConversationFilter {
    /// Only with an end in this group: a name, namespace/Kind/name, or any, external, hosts,
    /// ingress, services, unmanaged, workloads
    #[arg(long)]
    group: Option<String>,
    /// Only with an end in this namespace
    #[arg(short, long)]
    namespace: Option<String>,
    /// Only those since so long ago, such as 10m, 24h
    #[arg(long, value_name = "TIME", value_parser = values::since)]
    since: Option<Duration>,
    /// Only with an end outside of the cluster
    #[arg(long)]
    external: bool,
}

impl ConversationFilter {
    pub(super) fn add_to(&self, route: Route) -> Route {
        route
            .maybe("group", self.group.as_deref())
            .maybe("namespace", self.namespace.as_deref())
            .maybe("since", self.since())
            .when("external", self.external)
    }

    fn since(&self) -> Option<Timestamp> {
        self.since.map(|since| Timestamp::now() - since)
    }
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    if let Some(level) = &args.graph {
        return graph(args, level).await;
    }
    let route = args
        .filter
        .add_to(Route::to(["guard", "conversations"]))
        .with("limit", args.limit)
        .maybe("port", args.port)
        .maybe("verdict", args.verdict.as_deref())
        .maybe("continue", args.after.as_deref());
    let answer: Value = args.server.open()?.get(&route).await?;
    let titles = ["CLIENT", "SERVER", "PORT", "VERDICT", "RULE", "SESSIONS", "BYTES", "LAST"];
    args.output.print_list(&answer, "conversations", &titles, row)?;
    let lines = items(&answer, "conversations");
    let matched = answer["matched"].as_u64().unwrap_or_default();
    if lines.is_empty() {
        eprintln!("no conversation fits; agents report who talks to whom (`fairlead agents`)");
    } else if let Some(next) = answer["continue"].as_str() {
        let shown = lines.len();
        eprintln!("{shown} of {matched}; more with --limit, or --continue {next:?}");
    }
    Ok(ExitCode::SUCCESS)
}

fn row(line: &Value) -> [Cell; 8] {
    let [client, server] = ["client", "server"].map(|side| endpoint(&line[side]).into());
    let [rule, sessions, bytes] =
        ["rule", "sessions", "bytes"].map(|name| field(line, name).into());
    let last = moment(&field(line, "last")).into();
    [client, server, port(line).into(), verdict(line), rule, sessions, bytes, last]
}

/// The name of one end of a conversation, with its address where many have that name.
pub(super) fn endpoint(end: &Value) -> String {
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
        ("violates", Some(false)) => Cell::coloured("violates (protect)", Colour::Red),
        ("violates", _) => Cell::coloured(&word, Colour::Red),
        ("discovered", _) => Cell::coloured(&word, Colour::Yellow),
        _ => word.into(),
    }
}

async fn graph(args: &Args, level: &str) -> ClientResult<ExitCode> {
    let route =
        Route::to(["guard", "graph"]).with("level", level).maybe("since", args.filter.since());
    let answer: Value = args.server.open()?.get(&route).await?;
    args.output.print(&answer, || {
        let nodes = items(&answer, "nodes");
        let name = |edge: &Value, side: &str| {
            let place = edge[side].as_u64().and_then(|place| usize::try_from(place).ok());
            let node = place.and_then(|place| nodes.get(place));
            node.map_or_else(String::new, |node| field(node, "name"))
        };
        let mut edges: Vec<_> = items(&answer, "edges").iter().collect();
        edges.sort_by_key(|edge| std::cmp::Reverse(edge["bytes"].as_u64()));
        let rows = edges.iter().take(usize::try_from(args.limit).unwrap_or(usize::MAX));
        let rows = rows.map(|edge| {
            let sums = ["conversations", "sessions", "bytes"].map(|sum| field(edge, sum));
            let ends = [name(edge, "client"), name(edge, "server")];
            ends.into_iter().chain(sums).chain([moment(&field(edge, "last"))])
        });
        let titles = ["CLIENT", "SERVER", "CONVERSATIONS", "SESSIONS", "BYTES", "LAST"];
        output::table(titles, rows)
    })?;
    Ok(ExitCode::SUCCESS)
}
