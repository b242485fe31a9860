use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cli::client::{
    Body, ClientResult, ClusterView, Clusters, NamedFlags, Route, Server, ServerFlags, decode,
};
use crate::cli::files;
use crate::cli::listing::{field, items};
use crate::cli::table::{Cell, Table, age};
use crate::cli::terminal::{Colour, Paint};
use crate::output::{self, Failure, Format, Output, yes_or_no};

/// A kubeconfig is some pages; what is larger is the wrong file.
const LARGEST_KUBECONFIG: u64 = 1 << 20;

/// Manage the clusters of the fleet: list, add, remove, enable, disable, test
///
/// Examples:
///   fairlead clusters list
///   fairlead clusters list -w           go on with every change
///   fairlead clusters add staging --kubeconfig ~/.kube/staging.yaml
///   kubectl config view --flatten --minify | fairlead clusters add x --kubeconfig -
///   fairlead clusters test staging      where exactly does connecting fail?
///   fairlead clusters disable staging   keep it listed, stop connecting to it
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List every cluster with its state, since when, and why
    #[command(visible_alias = "ls")]
    List {
        /// Go on with every change
        #[arg(short, long)]
        watch: bool,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        server: ServerFlags,
    },
    /// Import a cluster from a kubeconfig; its certificates and keys must be in the file itself
    Add {
        name: String,
        /// The kubeconfig, or `-` for standard input
        #[arg(long, value_name = "FILE")]
        kubeconfig: PathBuf,
        /// Which of its contexts [default: its current one]
        #[arg(long)]
        context: Option<String>,
        /// Users act on it under their own names (PREFIXUSER); Fairlead's account there needs the right
        /// to impersonate [default prefix: fairlead:]
        #[arg(long, value_name = "PREFIX", num_args = 0..=1, default_missing_value = "fairlead:")]
        impersonate: Option<String>,
        #[command(flatten)]
        server: ServerFlags,
    },
    /// Remove an imported cluster, reachable or not; the cluster itself is left alone
    #[command(visible_alias = "rm")]
    Remove(NamedFlags),
    /// Connect to a disabled cluster again
    Enable(NamedFlags),
    /// Stop connecting to a cluster; it stays listed
    Disable(NamedFlags),
    /// Connect step by step and say where it fails; exit 1 when it does
    Test {
        name: String,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        server: ServerFlags,
    },
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    match &args.verb {
        Verb::List { watch: true, output, server } => {
            let mut printed = PrintedClusters::new();
            let show = |all: &Value| {
                let clusters = decode(all)?;
                let changes = || printed.changes(&clusters, Timestamp::now(), Paint::stdout());
                Ok(output.event(all, changes)?)
            };
            server.open()?.follow(&Route::to(["clusters"]), "clusters", show).await
        }
        Verb::List { output, server, .. } => list(&server.open()?, *output).await,
        Verb::Add { name, kubeconfig, context, impersonate, server } => {
            let mut body = json!({ "name": name, "kubeconfig": read(kubeconfig)? });
            if let Some(context) = context {
                body["context"] = context.as_str().into();
            }
            if let Some(prefix) = impersonate {
                body["impersonation"] = json!({ "prefix": prefix });
            }
            let route = Route::to(["clusters"]);
            server.open()?.post::<Value>(&route, Body::Json(&body)).await?;
            Ok(output::done(&format!(
                "cluster {name} added; `fairlead clusters test {name}` says whether it answers"
            ))?)
        }
        Verb::Remove(NamedFlags { name, server }) => {
            server.open()?.delete(&Route::to(["clusters", name])).await?;
            Ok(output::done(&format!("cluster {name} removed"))?)
        }
        Verb::Enable(named) => enable(named, true).await,
        Verb::Disable(named) => enable(named, false).await,
        Verb::Test { name, output, server } => test(&server.open()?, name, *output).await,
    }
}

async fn list(server: &Server, output: Output) -> ClientResult<ExitCode> {
    let answer: Value = server.get(&Route::to(["clusters"])).await?;
    let all: Clusters = decode(&answer)?;
    if all.all().next().is_none() && output.output == Format::Table {
        let hint = all.hint.as_deref().unwrap_or(
            "there is no cluster yet; add one with `fairlead clusters add NAME --kubeconfig FILE`",
        );
        eprintln!("{hint}");
        return Ok(ExitCode::SUCCESS);
    }
    output.print(&answer, || table(&all, Timestamp::now()).render(Paint::stdout()))?;
    Ok(ExitCode::SUCCESS)
}

const TITLES: [&str; 8] =
    ["NAME", "STATE", "SINCE", "VERSION", "NODES", "LATENCY", "SOURCE", "WHY"];

fn table(all: &Clusters, now: Timestamp) -> Table {
    let mut table = Table::new(TITLES);
    for cluster in all.all() {
        table.row(row(cluster, now));
    }
    table
}

fn row(cluster: &ClusterView, now: Timestamp) -> [Cell; 8] {
    let shadowed = cluster.shadowed_by.as_ref().map(|by| format!("{by} has this name"));
    let state = if shadowed.is_some() { "shadowed" } else { &cluster.state };
    let why = shadowed.as_deref().or(cluster.why.as_deref()).unwrap_or_default();
    let number = |value: Option<String>| Cell::from(value.as_deref());
    [
        cluster.name.as_str().into(),
        Cell::coloured(state, colour(state)),
        age(cluster.since.as_deref(), now).into(),
        cluster.version.as_deref().into(),
        number(cluster.nodes.map(|nodes| nodes.to_string())),
        number(cluster.latency_ms.map(|millis| format!("{millis:.0}ms"))),
        cluster.source.as_deref().into(),
        why.into(),
    ]
}

fn colour(state: &str) -> Colour {
    match state {
        "ready" => Colour::Green,
        "connecting" | "degraded" => Colour::Yellow,
        "disabled" | "shadowed" => Colour::Dim,
        _ => Colour::Red,
    }
}

/// The clusters that a watch has printed.
struct PrintedClusters {
    table: Table,
    /// By name and source.
    clusters: BTreeMap<(String, Option<String>), ClusterView>,
}

impl PrintedClusters {
    fn new() -> Self {
        Self { table: Table::new(TITLES), clusters: BTreeMap::new() }
    }

    /// The lines for clusters that have changed; a latency that moves is no change.
    fn changes(&mut self, all: &Clusters, now: Timestamp, paint: Paint) -> String {
        let key = |cluster: &ClusterView| (cluster.name.clone(), cluster.source.clone());
        let table = &mut self.table;
        for cluster in all.all() {
            let lasting = ClusterView { latency_ms: None, ..cluster.clone() };
            if self.clusters.get(&key(cluster)) != Some(&lasting) {
                table.row(row(cluster, now));
                self.clusters.insert(key(cluster), lasting);
            }
        }
        self.clusters.retain(|known, gone| {
            let stays = all.all().any(|cluster| key(cluster) == *known);
            if !stays {
                let gone = ClusterView {
                    name: gone.name.clone(),
                    source: gone.source.clone(),
                    state: "removed".to_owned(),
                    since: Some(now.to_string()),
                    ..ClusterView::default()
                };
                table.row(row(&gone, now));
            }
            stays
        });
        table.unprinted(paint)
    }
}

fn read(file: &Path) -> Result<String, Failure> {
    let text = files::read(file, LARGEST_KUBECONFIG)
        .map_err(|Failure(why)| Failure(format!("--kubeconfig {why}")))?;
    if text.trim().is_empty() {
        return Err(Failure(format!("--kubeconfig {} is empty", file.display())));
    }
    Ok(text)
}

async fn enable(NamedFlags { name, server }: &NamedFlags, on: bool) -> ClientResult<ExitCode> {
    let body = json!({ "enabled": on });
    server.open()?.patch(&Route::to(["clusters", name]), &body).await?;
    Ok(output::done(&format!("cluster {name} {}", if on { "enabled" } else { "disabled" }))?)
}

async fn test(server: &Server, name: &str, output: Output) -> ClientResult<ExitCode> {
    let route = Route::to(["clusters", name, "test"]);
    let answer: Value = server.post(&route, Body::None).await?;
    output.print(&answer, || {
        let rows = items(&answer, "steps").iter().map(|step| {
            let outcome = match step["ok"] == true {
                true => Cell::coloured("ok", Colour::Green),
                false => Cell::coloured("failed", Colour::Red),
            };
            let took = format!("{:.0}ms", step["tookMs"].as_f64().unwrap_or_default());
            let why = step["why"].as_str().unwrap_or_default();
            [field(step, "step").into(), outcome, took.into(), why.into()]
        });
        let table = output::table(["STEP", "OUTCOME", "TOOK", "WHY"], rows);
        format!("{table}\n{}", field(&answer, "verdict"))
    })?;
    Ok(yes_or_no(answer["ok"] == true))
}

#[cfg(test)]
mod tests;
