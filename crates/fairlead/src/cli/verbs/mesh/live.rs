//! The verbs that ask a running Fairlead about its meshes.

use std::process::ExitCode;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use objects::kinds::{ClusterMesh, ClusterMeshSpec, ClusterMeshStatus, DataPlane, MeshState};
use serde::Deserialize;
use serde_json::{Value, json};

use super::tunnels;
use crate::cli::client::{Body, ClientResult, Route, Server, ServerFlags, decode};
use crate::cli::listing::{fields, items};
use crate::cli::table::{Cell, Table, age};
use crate::cli::terminal::{Colour, Paint};
use crate::cli::verbs::groups::{self, ApplyFlags};
use crate::output::{self, Failure, Output, yes_or_no};

/// Show every mesh: its clusters, their peers, what each waits for
///
/// Of one mesh with `dataPlane: wireguard` the tunnels are shown, too, as its agents see them.
///
/// Exit codes: 0 all are ready; 1 one is not; 2 it could not be asked.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Status {
    /// Only this one: NAME, or NAMESPACE/NAME
    mesh: Option<String>,
    /// How to print; `dot` is a graph for Graphviz
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: StatusFormat,
    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum StatusFormat {
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
    /// The cluster whose pods connect
    from: String,
    /// The cluster that they connect to
    to: String,
    #[command(flatten)]
    output: Output,
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
    /// The cluster that left
    cluster: String,
    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Debug, Deserialize)]
struct Listed {
    meshes: Vec<Mesh>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Mesh {
    pub(super) namespace: String,
    pub(super) name: String,
    #[serde(default)]
    deleting: bool,
    spec: ClusterMeshSpec,
    status: Option<ClusterMeshStatus>,
}

impl Mesh {
    fn has_name(&self, word: &str) -> bool {
        word == self.name || word == format!("{}/{}", self.namespace, self.name)
    }

    /// The condition `Ready`: whether it is true, and its message.
    fn ready(&self) -> (bool, &str) {
        let status = self.status.as_ref();
        let ready = status.and_then(|s| s.conditions.iter().find(|c| c.r#type == "Ready"));
        match ready {
            Some(ready) => (ready.status == "True" && !self.deleting, ready.message.as_str()),
            None => (false, "no controller that leads has looked at it yet"),
        }
    }
}

/// The one mesh that has a name, with or without its namespace.
pub(super) async fn named(server: &Server, word: &str) -> ClientResult<(Value, Mesh)> {
    let (answer, all) = list(server).await?;
    let mut found: Vec<(usize, Mesh)> =
        all.meshes.into_iter().enumerate().filter(|(_, mesh)| mesh.has_name(word)).collect();
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

async fn list(server: &Server) -> ClientResult<(Value, Listed)> {
    let answer: Value = server.get(&Route::to(["meshes"])).await?;
    let all = decode(&answer)?;
    Ok((answer, all))
}

pub(super) async fn status(args: &Status) -> ClientResult<ExitCode> {
    let server = args.server.open()?;
    let mut found_tunnels = None;
    let (answer, meshes) = match &args.mesh {
        Some(word) => {
            let (mut value, mesh) = named(&server, word).await?;
            let has_tunnels = mesh.spec.data_planes().contains(&DataPlane::Wireguard);
            if has_tunnels && args.output != StatusFormat::Dot {
                let route = Route::to(["meshes", &mesh.namespace, &mesh.name, "tunnels"]);
                let found: Value = server.get(&route).await?;
                value["tunnels"] = found["clusters"].clone();
                found_tunnels = Some(found);
            }
            (json!({"meshes": [value]}), vec![mesh])
        }
        None => {
            let (answer, all) = list(&server).await?;
            (answer, all.meshes)
        }
    };
    let text = match args.output {
        StatusFormat::Table if meshes.is_empty() => {
            eprintln!("there is no mesh yet; make one with `fairlead mesh apply FILE`");
            return Ok(ExitCode::SUCCESS);
        }
        StatusFormat::Table => {
            let now = Timestamp::now();
            let tunnels = found_tunnels.map(|it| tunnels::table(&it, now)).unwrap_or_default();
            format!("{}\n{tunnels}", table(&meshes, now).trim_end())
        }
        StatusFormat::Json => output::json(&answer)?,
        StatusFormat::Yaml => output::yaml(&answer)?,
        StatusFormat::Dot => {
            let meshes: Vec<ClusterMesh> = meshes.iter().map(object).collect();
            ::mesh::dot(&meshes)
        }
    };
    output::line(text.trim_end())?;
    Ok(yes_or_no(meshes.iter().all(|mesh| mesh.ready().0)))
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

fn table(meshes: &[Mesh], now: Timestamp) -> String {
    let mut table = Table::new(["MESH", "CLUSTER", "STATE", "PEERS", "SKIPPED", "SINCE", "WHY"]);
    let none = || Cell::from(None);
    for mesh in meshes {
        let name = || Cell::from(format!("{}/{}", mesh.namespace, mesh.name));
        let (ready, why) = mesh.ready();
        let state = match (mesh.deleting, ready) {
            (true, _) => Cell::coloured("Deleting", Colour::Yellow),
            (false, true) => Cell::coloured("Ready", Colour::Green),
            (false, false) => Cell::coloured("NotReady", Colour::Yellow),
        };
        let why = if ready { none() } else { why.into() };
        table.row([name(), none(), state, none(), none(), none(), why]);
        let Some(status) = &mesh.status else { continue };
        for cluster in &status.clusters {
            let skipped = (cluster.skipped > 0).then(|| cluster.skipped.to_string());
            table.row([
                name(),
                cluster.name.as_str().into(),
                Cell::coloured(&format!("{:?}", cluster.state), colour_of(cluster.state)),
                format!("{}/{}", cluster.registered_peers, cluster.wanted_peers).into(),
                skipped.as_deref().into(),
                age(cluster.since.as_deref(), now).into(),
                cluster.why.as_deref().into(),
            ]);
        }
        for joined in &status.joined {
            if let Some(why) = joined.leaving.as_deref() {
                let leaving = Cell::coloured("Leaving", Colour::Yellow);
                let cluster = joined.name.as_str().into();
                table.row([name(), cluster, leaving, none(), none(), none(), why.into()]);
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

pub(super) async fn check(args: &Check) -> ClientResult<ExitCode> {
    let server = args.server.open()?;
    let (_, mesh) = named(&server, &args.mesh).await?;
    let route = Route::to(["meshes", &mesh.namespace, &mesh.name, "check"]);
    let (from, to) = (&args.from, &args.to);
    let answer: Value = server.get(&route.with("from", from).with("to", to)).await?;
    let reaches = answer["reaches"] == true;
    args.output.print(&answer, || {
        if reaches {
            let tunnels = match answer["tunnels"].as_u64() {
                Some(count @ 1..) => format!(", and {count} tunnels between them answer"),
                _ => String::new(),
            };
            return format!(
                "{from} reaches {to}: every node has its peer on the other side{tunnels}"
            );
        }
        let reasons = items(&answer, "reasons").iter();
        output::table(
            ["REASON", "WHY"],
            reasons.map(|reason| fields(reason, ["reason", "message"])),
        )
    })?;
    Ok(yes_or_no(reaches))
}

pub(super) async fn apply(args: &ApplyFlags) -> ClientResult<ExitCode> {
    let names = |mesh: &ClusterMesh| {
        (mesh.namespace().unwrap_or_else(|| "default".to_owned()), mesh.name_any())
    };
    let route = |mesh: &ClusterMesh| {
        let (namespace, name) = names(mesh);
        Route::to(["meshes", &namespace, &name])
    };
    let applied = |mesh: &ClusterMesh| {
        let (namespace, name) = names(mesh);
        let said = format!("mesh {namespace}/{name} applied");
        // It is stored, since which of the two is wrong nobody but its author knows; who applies it should hear.
        match mesh::overlaps(mesh, &[]).first() {
            Some(overlap) => format!("{said}, but {overlap}: the peers of both stay as they are"),
            None => said,
        }
    };
    groups::apply(args, route, applied).await
}

pub(super) async fn delete(args: &Delete) -> ClientResult<ExitCode> {
    let server = args.server.open()?;
    let (_, Mesh { namespace, name, .. }) = named(&server, &args.mesh).await?;
    let answer = server.delete(&Route::to(["meshes", &namespace, &name])).await?;
    let gone = answer["gone"].as_bool() == Some(true);
    let how = if gone { "deleted" } else { "is deleted once its peers are gone" };
    Ok(output::done(&format!("mesh {namespace}/{name} {how}"))?)
}

pub(super) async fn forget(args: &Forget) -> ClientResult<ExitCode> {
    let server = args.server.open()?;
    let (_, Mesh { namespace, name, .. }) = named(&server, &args.mesh).await?;
    let route = Route::to(["meshes", &namespace, &name, "forget"]);
    server.post::<Value>(&route, Body::Json(&json!({"cluster": args.cluster}))).await?;
    let cluster = &args.cluster;
    Ok(output::done(&format!("mesh {namespace}/{name} no longer waits for {cluster}"))?)
}
