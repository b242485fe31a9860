use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::audit::export;
use crate::cli::client::{ClientResult, Route, ServerFlags};
use crate::cli::event_tail::report_missing_replicas;
use crate::cli::listing::{field, items};
use crate::cli::table::{Cell, moment};
use crate::cli::terminal::Colour;
use crate::output::{self, Failure, Output};
use crate::values;

const TITLES: [&str; 8] =
    ["CLIENT", "SERVER", "PORT", "VERDICT", "RULE", "SESSIONS", "BYTES", "LAST"];
/// How much of the past is shown around a moment.
const AROUND: Duration = Duration::from_secs(5 * 60);

/// Show who talks to whom
///
/// Each line is a client, a server, a port and an application, the latest first. Conversations that
/// became too old or too many are folded into one line without a port, which keeps their totals.
///
/// A verdict is one of: allowed (a rule allows it), discovered (a rule was learned from it), violates
/// (no rule allows it, or one denies it; it was stopped if both ends are in protect and their nodes
/// enforce policies), unjudged (neither end is a workload).
///
/// With --at, or --until, it is who talked to whom then, from the history that controllers keep by the minute
/// (guard.history), with the names and verdicts of that time.
///
/// Examples:
///   fairlead conversations --since 1h
///   fairlead conversations --at 20h --end shop/Deployment/db          who talked to it 20 hours ago
///   fairlead conversations --at 2026-01-31T15:00 --external
///   fairlead conversations --since 24h --until 12h -n shop
///   fairlead conversations --since 24h --export otlp > logs.jsonl
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
    /// Who talked then, within five minutes: so long ago (20h), or a time (2026-01-31T15:00)
    #[arg(long, value_name = "MOMENT", value_parser = values::moment,
          conflicts_with_all = ["since", "until", "after", "graph", "export"])]
    at: Option<Timestamp>,
    /// Who talked from --since on until then: so long ago (12h), or a time
    #[arg(long, value_name = "MOMENT", value_parser = values::moment, requires = "since",
          conflicts_with_all = ["after", "graph"])]
    until: Option<Timestamp>,
    /// Of the past, only with this end: an address, a network, namespace/pod or namespace/Kind/name
    #[arg(long, value_name = "END")]
    end: Option<String>,
    /// Print the history line by line, minute by minute: jsonl, or otlp for OpenTelemetry's collector
    #[arg(long, value_name = "FORMAT", value_parser = ["jsonl", "otlp"],
          conflicts_with_all = ["group", "external", "port", "verdict", "after", "graph", "end"])]
    export: Option<String>,
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
    if let Some(format) = &args.export {
        let route = Route::to(["guard", "history", "export"])
            .with("format", format)
            .maybe("namespace", args.filter.namespace.as_deref())
            .maybe("from", args.filter.since())
            .maybe("until", args.until);
        return export(&args.server.open()?, &route).await;
    }
    if let Some((from, until)) = args.past()? {
        return past(args, from, until).await;
    }
    let route = args
        .filter
        .add_to(Route::to(["guard", "conversations"]))
        .with("limit", args.limit)
        .maybe("port", args.port)
        .maybe("verdict", args.verdict.as_deref())
        .maybe("continue", args.after.as_deref());
    let answer: Value = args.server.open()?.get(&route).await?;
    args.output.print_list(&answer, "conversations", &TITLES, row)?;
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

impl Args {
    /// The time that is asked for, if it is past.
    fn past(&self) -> Result<Option<(Timestamp, Timestamp)>, Failure> {
        match (self.at, self.until, self.filter.since()) {
            (Some(at), ..) => Ok(Some((at, at + AROUND))),
            (None, Some(until), Some(since)) => Ok(Some((since, until))),
            _ if self.end.is_some() => {
                Err(Failure("--end is for the past: say when, by --at or --until".to_owned()))
            }
            _ => Ok(None),
        }
    }
}

/// Who talked to whom between two moments.
async fn past(args: &Args, from: Timestamp, until: Timestamp) -> ClientResult<ExitCode> {
    let ConversationFilter { group, namespace, external, since: _ } = &args.filter;
    let route = Route::to(["guard", "history"])
        .with("from", from)
        .with("until", until)
        .maybe("group", group.as_deref())
        .maybe("namespace", namespace.as_deref())
        .when("external", *external)
        .maybe("end", args.end.as_deref())
        .maybe("port", args.port)
        .maybe("verdict", args.verdict.as_deref())
        .with("limit", args.limit);
    let answer: Value = args.server.open()?.get(&route).await?;
    args.output.print_list(&answer, "conversations", &TITLES, row)?;
    let shown = items(&answer, "conversations").len();
    let matched = answer["matched"].as_u64().unwrap_or_default();
    if shown == 0 {
        let kept = match answer["keptSince"].as_str() {
            Some(since) => format!("history is kept since {since}"),
            None => "no history is kept yet (guard.history)".to_owned(),
        };
        eprintln!("nobody who fits talked then; {kept}");
    } else if matched > shown as u64 {
        eprintln!("{shown} of {matched}; more with --limit");
    }
    if answer["complete"] == false {
        eprintln!("note: there is more than could be added up; ask for less time, or for fewer");
    }
    report_missing_replicas(&answer);
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
    match (line["application"].as_str(), line["applicationBy"].as_str()) {
        // What such a port is for is no more than a guess.
        (Some(application), Some("port")) => format!("{service} ({application})"),
        (Some(application), _) => format!("{service} {application}"),
        (None, _) => service,
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
