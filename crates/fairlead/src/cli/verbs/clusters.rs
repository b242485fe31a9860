use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use http::Method;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::client::{
    Answer, Body, ClusterView, Clusters, Route, Server, ServerFlags, understood,
};
use crate::cli::table::{Cell, Table, age};
use crate::cli::terminal::{Colour, Paint};
use crate::output::{self, Failure, Format, NO, Output};

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
    let answer: Value = server.get(&Route::to(["clusters"]))?;
    let all: Clusters = understood(&answer)?;
    if all.shown().next().is_none() && output.output == Format::Table {
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
    for cluster in all.shown() {
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
        let all: Value = event.json()?;
        let text = match output.output {
            Format::Table => shown.changes(&understood(&all)?, Timestamp::now(), Paint::stdout()),
            Format::Json => format!("{all}\n"),
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
    /// By name and source.
    clusters: BTreeMap<(String, Option<String>), ClusterView>,
}

impl Shown {
    /// The lines for what is new; a latency that moves is not.
    fn changes(&mut self, all: &Clusters, now: Timestamp, paint: Paint) -> String {
        let key = |cluster: &ClusterView| (cluster.name.clone(), cluster.source.clone());
        let begins = self.table.is_none();
        let table = self.table.get_or_insert_with(|| Table::new(TITLES));
        for cluster in all.shown() {
            let lasting = ClusterView { latency_ms: None, ..cluster.clone() };
            if self.clusters.get(&key(cluster)) != Some(&lasting) {
                table.row(row(cluster, now));
                self.clusters.insert(key(cluster), lasting);
            }
        }
        self.clusters.retain(|known, gone| {
            let stays = all.shown().any(|cluster| key(cluster) == *known);
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

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Tested {
    ok: bool,
    steps: Vec<Step>,
    verdict: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Step {
    step: String,
    ok: bool,
    took_ms: f64,
    why: Option<String>,
}

fn test(server: &Server, name: &str, output: Output) -> Answer<ExitCode> {
    let route = Route::to(["clusters", name, "test"]);
    let answer: Value = server.ask(&Method::POST, &route, &Body::None)?;
    let tested: Tested = understood(&answer)?;
    output.print(&answer, || {
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
