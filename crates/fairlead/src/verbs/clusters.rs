use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use http::Method;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::client::{Answer, Body, ClusterView, Clusters, Route, Server, ServerFlags};
use crate::output::{self, Failure, Format, NO, Output};
use crate::table::{Cell, Table, age};
use crate::terminal::{Colour, Paint};

/// A kubeconfig is some pages; what is larger is the wrong file.
const LARGEST_KUBECONFIG: u64 = 1 << 20;

/// The clusters of the fleet: list, add, remove, enable, disable, test
///
/// Examples:
///   fairlead clusters list
///   fairlead clusters list -w                              go on with every change
///   fairlead clusters add staging --kubeconfig ~/.kube/staging.yaml
///   kubectl config view --flatten --minify | fairlead clusters add here --kubeconfig -
///   fairlead clusters test staging                         where exactly does connecting fail?
///   fairlead clusters disable staging                      keep it listed, stop connecting to it
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Every cluster with its state, since when, and why
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
        #[command(flatten)]
        server: ServerFlags,
    },
    /// Remove an imported cluster, reachable or not; the cluster itself is left alone
    #[command(visible_alias = "rm")]
    Remove(Named),
    /// Connect to a disabled cluster again
    Enable(Named),
    /// Stop connecting to a cluster; it stays listed
    Disable(Named),
    /// Connect step by step and say where it fails; exit 1 when it does
    Test {
        name: String,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        server: ServerFlags,
    },
}

#[derive(Debug, clap::Args)]
struct Named {
    name: String,
    #[command(flatten)]
    server: ServerFlags,
}

pub(crate) fn run(args: &Args) -> Answer<ExitCode> {
    match &args.verb {
        Verb::List { watch: true, output, server } => watch(&server.open()?, *output),
        Verb::List { output, server, .. } => list(&server.open()?, *output),
        Verb::Add { name, kubeconfig, context, server } => {
            add(&server.open()?, name, &read(kubeconfig)?, context.as_deref())
        }
        Verb::Remove(named) => {
            let route = Route::to(["clusters", &named.name]);
            named.server.open()?.ask::<Value>(&Method::DELETE, &route, &Body::None)?;
            said(&format!("cluster {} removed", named.name))
        }
        Verb::Enable(named) => enable(named, true),
        Verb::Disable(named) => enable(named, false),
        Verb::Test { name, output, server } => test(&server.open()?, name, *output),
    }
}

fn said(text: &str) -> Answer<ExitCode> {
    output::line(text)?;
    Ok(ExitCode::SUCCESS)
}

fn list(server: &Server, output: Output) -> Answer<ExitCode> {
    let all: Clusters = server.get(&Route::to(["clusters"]))?;
    if all.clusters.is_empty() && output.output == Format::Table {
        eprintln!("no clusters yet; add one with `fairlead clusters add NAME --kubeconfig FILE`");
        return Ok(ExitCode::SUCCESS);
    }
    output.print(&all, || table(&all.clusters, Timestamp::now()).render(Paint::stdout()))?;
    Ok(ExitCode::SUCCESS)
}

const TITLES: [&str; 8] =
    ["NAME", "STATE", "SINCE", "VERSION", "NODES", "LATENCY", "SOURCE", "WHY"];

fn table(clusters: &[ClusterView], now: Timestamp) -> Table {
    let mut table = Table::new(TITLES);
    for cluster in clusters {
        table.row(row(cluster, now));
    }
    table
}

fn row(cluster: &ClusterView, now: Timestamp) -> [Cell; 8] {
    let number = |value: Option<String>| Cell::from(value.as_deref());
    [
        cluster.name.as_str().into(),
        Cell::coloured(&cluster.state, colour(&cluster.state)),
        age(cluster.since.as_deref(), now).into(),
        cluster.version.as_deref().into(),
        number(cluster.nodes.map(|nodes| nodes.to_string())),
        number(cluster.latency_ms.map(|millis| format!("{millis:.0}ms"))),
        cluster.source.as_deref().into(),
        cluster.why.as_deref().unwrap_or_default().into(),
    ]
}

fn colour(state: &str) -> Colour {
    match state {
        "ready" => Colour::Green,
        "connecting" | "degraded" => Colour::Yellow,
        "disabled" => Colour::Dim,
        _ => Colour::Red,
    }
}

/// The table, then a row for every cluster that changes its state.
fn watch(server: &Server, output: Output) -> Answer<ExitCode> {
    let route = Route::to(["clusters"]);
    let mut events = server.events(&Method::GET, &route, &Body::None)?;
    let mut shown = Shown::default();
    loop {
        let event = events.expect("you left")?;
        if event.name != "clusters" {
            continue;
        }
        let all: Clusters = event.json()?;
        let text = match output.output {
            Format::Table => shown.changes(&all.clusters, Timestamp::now(), Paint::stdout()),
            Format::Json => format!("{}\n", json!(all)),
            Format::Yaml => format!("---\n{}", output::yaml(&all)?),
        };
        if !text.is_empty() && !output::heard(text.as_bytes())? {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// What a watch has printed.
#[derive(Default)]
struct Shown {
    table: Option<Table>,
    clusters: BTreeMap<String, ClusterView>,
}

impl Shown {
    /// The lines for what is new; a latency that moves is not.
    fn changes(&mut self, all: &[ClusterView], now: Timestamp, paint: Paint) -> String {
        let lasting = |cluster: &ClusterView| ClusterView {
            latency_ms: None,
            next_try: None,
            ..cluster.clone()
        };
        let begins = self.table.is_none();
        let table = self.table.get_or_insert_with(|| Table::new(TITLES));
        for cluster in all {
            let lasting = lasting(cluster);
            if self.clusters.get(&cluster.name) != Some(&lasting) {
                table.row(row(cluster, now));
                self.clusters.insert(cluster.name.clone(), lasting);
            }
        }
        self.clusters.retain(|name, gone| {
            let stays = all.iter().any(|cluster| cluster.name == *name);
            if !stays {
                let gone = ClusterView {
                    state: "removed".to_owned(),
                    since: Some(now.to_string()),
                    why: None,
                    ..gone.clone()
                };
                table.row(row(&gone, now));
            }
            stays
        });
        let mut text = String::new();
        if begins {
            text = format!("{}\n", table.render(paint));
            table.take(paint);
        }
        for line in table.take(paint) {
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

fn read(file: &Path) -> Result<String, Failure> {
    let shown = file.display();
    let wrong = |why: String| Failure(format!("--kubeconfig {shown} {why}"));
    let mut text = String::new();
    let count = if file == Path::new("-") {
        std::io::stdin().lock().take(LARGEST_KUBECONFIG + 1).read_to_string(&mut text)
    } else {
        std::fs::File::open(file)
            .and_then(|file| file.take(LARGEST_KUBECONFIG + 1).read_to_string(&mut text))
    };
    let count = count.map_err(|e| wrong(format!("cannot be read: {e}")))? as u64;
    if count > LARGEST_KUBECONFIG {
        return Err(wrong("is larger than a kubeconfig can be; is it the right file?".to_owned()));
    }
    if text.trim().is_empty() {
        return Err(wrong("is empty".to_owned()));
    }
    Ok(text)
}

fn add(server: &Server, name: &str, kubeconfig: &str, context: Option<&str>) -> Answer<ExitCode> {
    let mut body = json!({ "name": name, "kubeconfig": kubeconfig });
    if let Some(context) = context {
        body["context"] = context.into();
    }
    server.ask::<Value>(&Method::POST, &Route::to(["clusters"]), &Body::Json(&body))?;
    said(&format!("cluster {name} added; `fairlead clusters test {name}` says whether it answers"))
}

fn enable(named: &Named, enabled: bool) -> Answer<ExitCode> {
    let route = Route::to(["clusters", &named.name]);
    let body = json!({ "enabled": enabled });
    named.server.open()?.ask::<Value>(&Method::PATCH, &route, &Body::Json(&body))?;
    said(&format!("cluster {} {}", named.name, if enabled { "enabled" } else { "disabled" }))
}

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Tested {
    ok: bool,
    steps: Vec<Step>,
    verdict: String,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Step {
    step: String,
    ok: bool,
    took_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

fn test(server: &Server, name: &str, output: Output) -> Answer<ExitCode> {
    let route = Route::to(["clusters", name, "test"]);
    let tested: Tested = server.ask(&Method::POST, &route, &Body::None)?;
    output.print(&tested, || {
        let mut table = Table::new(["STEP", "OUTCOME", "TOOK", "WHY"]);
        for step in &tested.steps {
            let (word, colour) =
                if step.ok { ("ok", Colour::Green) } else { ("failed", Colour::Red) };
            table.row([
                step.step.as_str().into(),
                Cell::coloured(word, colour),
                format!("{:.0}ms", step.took_ms).into(),
                step.why.as_deref().unwrap_or_default().into(),
            ]);
        }
        format!("{}\n{}", table.render(Paint::stdout()), tested.verdict)
    })?;
    Ok(if tested.ok { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

#[cfg(test)]
mod tests;
