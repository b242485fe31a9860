//! What asks a running Fairlead about its meshes.

use std::path::PathBuf;
use std::process::ExitCode;

use http::Method;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use objects::kinds::{ClusterMesh, ClusterMeshSpec, ClusterMeshStatus, MeshState};
use serde::Deserialize;
use serde_json::{Value, json};

use super::plan;
use crate::cli::client::{Answer, Body, Route, Server, ServerFlags, understood};
use crate::cli::table::{Cell, Table, age};
use crate::cli::terminal::{Colour, Paint};
use crate::output::{self, Failure, NO, Output};

/// Show every mesh: its clusters, their peers, what each waits for
///
/// Exit codes: 0 all are ready; 1 one is not; 2 it could not be asked.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Status {
    /// Only this one: NAME, or NAMESPACE/NAME
    mesh: Option<String>,
    /// How to print; `dot` is a graph for Graphviz
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Shape,
    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Shape {
    #[default]
    Table,
    Json,
    Yaml,
    Dot,
}

/// Say why the pods of one cluster cannot reach those of another
///
/// The first thing to mend comes first. Exit codes: 0 they can; 1 something is in the way.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Check {
    /// NAME, or NAMESPACE/NAME
    mesh: String,
    from: String,
    to: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

/// Make meshes what a file says
#[derive(Debug, clap::Args)]
pub(super) struct Apply {
    /// ClusterMeshes as YAML or JSON, or `-` for standard input
    file: PathBuf,
    #[command(flatten)]
    server: ServerFlags,
}

/// Remove a mesh, and its peers in every cluster
#[derive(Debug, clap::Args)]
pub(super) struct Delete {
    /// NAME, or NAMESPACE/NAME
    mesh: String,
    #[command(flatten)]
    server: ServerFlags,
}

/// Give up a cluster that left a mesh, or that a mesh waits for before it goes
///
/// Its peers stay as they are: remove them by hand if the cluster ever comes back.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Forget {
    /// NAME, or NAMESPACE/NAME
    mesh: String,
    cluster: String,
    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Debug, Deserialize)]
struct Listed {
    meshes: Vec<Mesh>,
}

#[derive(Debug, Deserialize)]
struct Mesh {
    namespace: String,
    name: String,
    #[serde(default)]
    deleting: bool,
    spec: ClusterMeshSpec,
    status: Option<ClusterMeshStatus>,
}

impl Mesh {
    fn is_called(&self, word: &str) -> bool {
        word == self.name || word == format!("{}/{}", self.namespace, self.name)
    }

    /// The condition `Ready`: whether, and in which words.
    fn ready(&self) -> (bool, &str) {
        let status = self.status.as_ref();
        let ready = status.and_then(|s| s.conditions.iter().find(|c| c.r#type == "Ready"));
        match ready {
            Some(ready) => (ready.status == "True" && !self.deleting, ready.message.as_str()),
            None => (false, "no controller that leads has looked at it yet"),
        }
    }
}

/// Those that are meant; `Err` when a word means none, or several.
fn named(server: &Server, word: &str) -> Answer<(Value, Mesh)> {
    let (answer, all) = list(server)?;
    let mut found: Vec<(usize, Mesh)> =
        all.meshes.into_iter().enumerate().filter(|(_, mesh)| mesh.is_called(word)).collect();
    match found.len() {
        1 => {
            let (place, mesh) = found.remove(0);
            Ok((answer["meshes"][place].clone(), mesh))
        }
        0 => Err(Failure(format!(
            "there is no mesh {word}; `fairlead mesh status` shows those there are"
        ))
        .into()),
        _ => {
            let all: Vec<_> =
                found.iter().map(|(_, mesh)| format!("{}/{}", mesh.namespace, mesh.name)).collect();
            Err(Failure(format!("{word} may be any of {}", all.join(", "))).into())
        }
    }
}

fn list(server: &Server) -> Answer<(Value, Listed)> {
    let answer: Value = server.get(&Route::to(["meshes"]))?;
    let all = understood(&answer)?;
    Ok((answer, all))
}

pub(super) fn status(args: &Status) -> Answer<ExitCode> {
    let server = args.server.open()?;
    let (answer, meshes) = match &args.mesh {
        Some(word) => {
            let (value, mesh) = named(&server, word)?;
            (json!({"meshes": [value]}), vec![mesh])
        }
        None => {
            let (answer, all) = list(&server)?;
            (answer, all.meshes)
        }
    };
    let text = match args.output {
        Shape::Table if meshes.is_empty() => {
            eprintln!("there is no mesh yet; make one with `fairlead mesh apply FILE`");
            return Ok(ExitCode::SUCCESS);
        }
        Shape::Table => shown(&meshes, Timestamp::now()),
        Shape::Json => output::json(&answer)?,
        Shape::Yaml => output::yaml(&answer)?,
        Shape::Dot => {
            let meshes: Vec<ClusterMesh> = meshes.iter().map(object).collect();
            ::mesh::dot(&meshes)
        }
    };
    output::line(text.trim_end())?;
    let well = meshes.iter().all(|mesh| mesh.ready().0);
    Ok(if well { ExitCode::SUCCESS } else { NO.into() })
}

fn object(mesh: &Mesh) -> ClusterMesh {
    ClusterMesh {
        metadata: ObjectMeta {
            name: Some(mesh.name.clone()),
            namespace: Some(mesh.namespace.clone()),
            ..ObjectMeta::default()
        },
        spec: mesh.spec.clone(),
        status: mesh.status.clone(),
    }
}

fn shown(meshes: &[Mesh], now: Timestamp) -> String {
    let mut table = Table::new(["MESH", "CLUSTER", "STATE", "PEERS", "SKIPPED", "SINCE", "WHY"]);
    for mesh in meshes {
        let name = format!("{}/{}", mesh.namespace, mesh.name);
        let (ready, why) = mesh.ready();
        let (state, colour) = match () {
            () if mesh.deleting => ("Deleting", Colour::Yellow),
            () if ready => ("Ready", Colour::Green),
            () => ("NotReady", Colour::Yellow),
        };
        let none = Cell::from(None);
        let row = [
            name.as_str().into(),
            none.clone(),
            Cell::coloured(state, colour),
            none.clone(),
            none.clone(),
            none.clone(),
            if ready { none.clone() } else { why.into() },
        ];
        table.row(row);
        let status = mesh.status.clone().unwrap_or_default();
        for cluster in &status.clusters {
            let peers = format!("{}/{}", cluster.registered_peers, cluster.wanted_peers);
            let skipped = (cluster.skipped > 0).then(|| cluster.skipped.to_string());
            table.row([
                name.as_str().into(),
                cluster.name.as_str().into(),
                Cell::coloured(&format!("{:?}", cluster.state), colour_of(cluster.state)),
                peers.as_str().into(),
                skipped.as_deref().into(),
                age(cluster.since.as_deref(), now).into(),
                cluster.why.as_deref().into(),
            ]);
        }
        for joined in &status.joined {
            if let Some(why) = joined.leaving.as_deref() {
                table.row([
                    name.as_str().into(),
                    joined.name.as_str().into(),
                    Cell::coloured("Leaving", Colour::Yellow),
                    none.clone(),
                    none.clone(),
                    none.clone(),
                    why.into(),
                ]);
            }
        }
    }
    table.render(Paint::stdout())
}

fn colour_of(state: MeshState) -> Colour {
    match state {
        MeshState::Converged => Colour::Green,
        MeshState::Waiting => Colour::Yellow,
        MeshState::Unreachable | MeshState::Overlapping => Colour::Red,
    }
}

#[derive(Debug, Deserialize)]
struct Checked {
    reaches: bool,
    reasons: Vec<Reason>,
}

#[derive(Debug, Deserialize)]
struct Reason {
    reason: String,
    message: String,
}

pub(super) fn check(args: &Check) -> Answer<ExitCode> {
    let server = args.server.open()?;
    let (_, mesh) = named(&server, &args.mesh)?;
    let route = Route::to(["meshes", &mesh.namespace, &mesh.name, "check"]);
    let answer: Value = server.get(&route.with("from", &args.from).with("to", &args.to))?;
    let checked: Checked = understood(&answer)?;
    let (from, to) = (&args.from, &args.to);
    args.output.print(&answer, || {
        if checked.reaches {
            return format!("{from} reaches {to}: every node has its peer on the other side");
        }
        let rows: Vec<[String; 2]> =
            checked.reasons.iter().map(|r| [r.reason.clone(), r.message.clone()]).collect();
        output::table(["REASON", "WHY"], &rows)
    })?;
    Ok(if checked.reaches { ExitCode::SUCCESS } else { NO.into() })
}

pub(super) fn apply(args: &Apply) -> Answer<ExitCode> {
    let meshes = plan::meshes(&args.file)?;
    let server = args.server.open()?;
    for mesh in meshes {
        let (namespace, name) =
            (mesh.namespace().unwrap_or_else(|| "default".to_owned()), mesh.name_any());
        let route = Route::to(["meshes", &namespace, &name]);
        let body = json!({"spec": mesh.spec});
        server.ask::<Value>(&Method::PUT, &route, &Body::Json(&body))?;
        output::line(&format!("mesh {namespace}/{name} applied"))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn delete(args: &Delete) -> Answer<ExitCode> {
    let server = args.server.open()?;
    let (_, mesh) = named(&server, &args.mesh)?;
    let Mesh { namespace, name, .. } = &mesh;
    let route = Route::to(["meshes", namespace, name]);
    let answer: Value = server.ask(&Method::DELETE, &route, &Body::None)?;
    let gone = answer["gone"].as_bool() == Some(true);
    let how = if gone { "deleted" } else { "is deleted once its peers are gone" };
    output::line(&format!("mesh {namespace}/{name} {how}"))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn forget(args: &Forget) -> Answer<ExitCode> {
    let server = args.server.open()?;
    let (_, mesh) = named(&server, &args.mesh)?;
    let Mesh { namespace, name, .. } = &mesh;
    let route = Route::to(["meshes", namespace, name, "forget"]);
    let body = json!({"cluster": args.cluster});
    server.ask::<Value>(&Method::POST, &route, &Body::Json(&body))?;
    output::line(&format!("mesh {namespace}/{name} no longer waits for {}", args.cluster))?;
    Ok(ExitCode::SUCCESS)
}
