use std::process::ExitCode;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::cli::client::{
    Access, ClientResult, ClusterChoice, Route, Server, Target, across, decode,
};
use crate::cli::listing::items;
use crate::cli::table::{Cell, Table, age};
use crate::cli::terminal::{Colour, Paint};
use crate::output::{Failure, Format, Output};

/// Show the events of one cluster, of several, or of all, oldest first
///
/// Examples:
///   fairlead events -n shop
///   fairlead events -A --all-clusters
///   fairlead events --for pod/web-0 -n shop --cluster prod
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// All namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Only events of this object
    #[arg(long = "for", value_name = "KIND/NAME")]
    of: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: Target,
}

/// An event of Kubernetes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct KubeEvent {
    cluster: Option<String>,
    namespace: Option<String>,
    last_seen: Option<String>,
    #[serde(rename = "type")]
    kind: String,
    reason: String,
    object: Involved,
    message: String,
    count: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Involved {
    kind: String,
    name: String,
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    let server = args.target.open()?;
    let chosen = args.target.chosen(&server, Access::Read).await?;
    let answer = match (&chosen, &args.of) {
        (ClusterChoice::One(cluster), of) => one(args, &server, cluster, of.as_deref()).await?,
        (_, Some(_)) => {
            return Err(
                Failure("--for looks into one cluster; name it with --cluster".into()).into()
            );
        }
        (several, None) => {
            let route = Route::to(["events"]).maybe("clusters", several.list());
            across::fan_out(&server, &args.in_namespace(route)).await?
        }
    };
    let events: ClientResult<Vec<KubeEvent>> =
        items(&answer, "events").iter().map(decode).collect();
    let mut events = events?;
    // Kubernetes gives its times in one form, so that text order is time order.
    events.sort_by(|a, b| a.last_seen.cmp(&b.last_seen));
    let across = !matches!(chosen, ClusterChoice::One(_));
    if events.is_empty() && args.output.output == Format::Table {
        eprintln!("no events");
    } else {
        let now = Timestamp::now();
        args.output.print(&answer, || {
            table(&events, across, args.all_namespaces, now).render(Paint::stdout())
        })?;
    }
    Ok(across::report_missing(&across::outcomes(&answer)?))
}

impl Args {
    fn in_namespace(&self, route: Route) -> Route {
        route.maybe("namespace", self.target.namespace_unless(self.all_namespaces))
    }
}

async fn one(args: &Args, server: &Server, cluster: &str, of: Option<&str>) -> ClientResult<Value> {
    let Some(of) = of else {
        return server.get(&args.in_namespace(Route::to(["clusters", cluster, "events"]))).await;
    };
    let (kind, name) = of
        .split_once('/')
        .filter(|(kind, name)| !kind.is_empty() && !name.is_empty())
        .ok_or_else(|| Failure(format!("--for {of:?}: expected KIND/NAME, such as pod/web-0")))?;
    let route = Route::to(["clusters", cluster, "resources", kind, name, "events"]);
    server.get(&route.with("namespace", args.target.namespace())).await
}

/// The events as kubectl shows them.
pub(crate) fn table(
    events: &[KubeEvent],
    clusters: bool,
    namespaces: bool,
    now: Timestamp,
) -> Table {
    let mut titles = Vec::new();
    titles.extend(clusters.then_some("CLUSTER"));
    titles.extend(namespaces.then_some("NAMESPACE"));
    titles.extend(["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]);
    let mut table = Table::new(titles);
    for event in events {
        let mut cells: Vec<Cell> = Vec::new();
        if clusters {
            cells.push(event.cluster.as_deref().into());
        }
        if namespaces {
            cells.push(event.namespace.as_deref().into());
        }
        let seen = age(event.last_seen.as_deref(), now);
        let seen = match event.count {
            Some(count) if count > 1 => format!("{seen} (x{count})"),
            _ => seen,
        };
        let kind = match event.kind.as_str() {
            "Normal" => event.kind.as_str().into(),
            other => Cell::coloured(other, Colour::Yellow),
        };
        let object = format!("{}/{}", event.object.kind.to_lowercase(), event.object.name);
        cells.extend([
            seen.into(),
            kind,
            event.reason.as_str().into(),
            object.into(),
            event.message.as_str().into(),
        ]);
        table.row(cells);
    }
    table
}

#[cfg(test)]
mod tests;
