use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::mesh::{self as planner, Input, Peer, Plan, Seen, View};
use objects::Kind;
use objects::kinds::ClusterMesh;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::output::{self, Failure, Output, Verdict};

/// A list of every node of a large cluster, as kubectl prints it.
const LARGEST: u64 = 256 << 20;

/// Say which peers a mesh needs, from files alone
///
/// Reads what kubectl prints (-o yaml or -o json; lists, or several documents) and writes nothing.
/// A cluster without --nodes is taken for one that is away: its peers are left alone. A cluster
/// without --peers is taken to have none.
///
/// Examples:
///   kubectl --context a get nodes -o yaml > a.yaml
///   kubectl --context b get nodes -o yaml > b.yaml
///   fairlead mesh plan --mesh mesh.yaml --nodes a=a.yaml --nodes b=b.yaml
///   fairlead mesh plan --mesh mesh.yaml --nodes a=a.yaml --nodes b=b.yaml \
///     --peers a=a-peers.yaml --peers b=b-peers.yaml -o yaml
///
/// Exit codes: 0 a plan was made, whatever it says; 2 it could not be made.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The ClusterMesh; further ones in the file are those that it must not overlap with
    #[arg(long, value_name = "FILE")]
    mesh: PathBuf,
    /// The nodes of a cluster, by the mesh's name for it
    #[arg(long, value_name = "CLUSTER=FILE", value_parser = of_cluster, required = true)]
    nodes: Vec<(String, PathBuf)>,
    /// The peers that a cluster has
    #[arg(long, value_name = "CLUSTER=FILE", value_parser = of_cluster)]
    peers: Vec<(String, PathBuf)>,
    /// Take over the peers that kilo-clustermesh made for a mesh of this name
    #[arg(long)]
    adopt: bool,
    #[command(flatten)]
    output: Output,
}

fn of_cluster(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((cluster, file)) if !cluster.is_empty() && !file.is_empty() => {
            Ok((cluster.to_owned(), file.into()))
        }
        _ => Err("expected CLUSTER=FILE, such as prod-eu=nodes.yaml".to_owned()),
    }
}

pub(crate) fn run(args: &Args) -> Verdict {
    let mut meshes = meshes(&args.mesh)?;
    let mesh = meshes.remove(0);
    let views = views(args, &mesh)?;
    let adopt = args.adopt || mesh.spec.adopt;
    let plan = planner::plan(Input { mesh: &mesh, others: &meshes, views: &views, adopt });
    args.output.print(&value(&mesh, &plan), || table(&plan))?;
    Ok(ExitCode::SUCCESS)
}

/// The meshes of a file; there is one at least, and all of them can be.
pub(super) fn meshes(file: &Path) -> Result<Vec<ClusterMesh>, Failure> {
    let meshes: Vec<ClusterMesh> = read(file, "ClusterMesh")?;
    if meshes.is_empty() {
        return Err(Failure(format!("{} has no ClusterMesh", file.display())));
    }
    for mesh in &meshes {
        mesh.check().map_err(|invalid| Failure(format!("{}: {invalid}", file.display())))?;
    }
    Ok(meshes)
}

fn views(args: &Args, mesh: &ClusterMesh) -> Result<BTreeMap<String, View>, Failure> {
    let nodes = by_cluster(&args.nodes, "--nodes", "Node")?;
    let peers: BTreeMap<String, Vec<Peer>> = by_cluster(&args.peers, "--peers", "Peer")?;
    let known: Vec<&str> = mesh.spec.clusters.iter().map(|c| c.name.as_str()).collect();
    // A cluster that left the mesh may still have its peers; its nodes are of no use.
    if let Some(stranger) = nodes.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(Failure(format!(
            "--nodes {stranger}=...: the mesh has no cluster {stranger}; it has {}",
            known.join(", ")
        )));
    }
    let mut views = BTreeMap::new();
    for cluster in known.iter().map(|name| (*name).to_owned()).chain(peers.keys().cloned()) {
        let nodes = nodes.get(&cluster).cloned().map_or_else(
            || Seen::Away(format!("its nodes were not given (--nodes {cluster}=FILE)")),
            Seen::Known,
        );
        let peers = Seen::Known(peers.get(&cluster).cloned().unwrap_or_default());
        views.insert(cluster, View { nodes, peers });
    }
    Ok(views)
}

fn by_cluster<T: DeserializeOwned>(
    files: &[(String, PathBuf)],
    flag: &str,
    kind: &str,
) -> Result<BTreeMap<String, Vec<T>>, Failure> {
    let mut all = BTreeMap::new();
    for (cluster, file) in files {
        if all.insert(cluster.clone(), read(file, kind)?).is_some() {
            return Err(Failure(format!("{flag} {cluster}=... is given twice")));
        }
    }
    Ok(all)
}

/// Every object of a kind in a file; one of another kind is a mistake that should not pass for none.
fn read<T: DeserializeOwned>(file: &Path, kind: &str) -> Result<Vec<T>, Failure> {
    let shown = file.display();
    let wrong = |why: String| Failure(format!("{shown}: {why}"));
    let unreadable = |e: std::io::Error| Failure(format!("{shown} cannot be read: {e}"));
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin().take(LARGEST + 1).read_to_string(&mut text).map_err(unreadable)?;
    } else {
        let opened = std::fs::File::open(file).map_err(unreadable)?;
        opened.take(LARGEST + 1).read_to_string(&mut text).map_err(unreadable)?;
    }
    if text.len() as u64 > LARGEST {
        return Err(wrong(format!("is larger than {} MiB", LARGEST >> 20)));
    }
    let mut objects = Vec::new();
    for document in documents(&text).map_err(wrong)? {
        flatten(document, kind, &mut objects).map_err(wrong)?;
    }
    let parse = |object: Value| {
        let name = object["metadata"]["name"].as_str().map(str::to_owned);
        let name = name.ok_or_else(|| wrong(format!("a {kind} has no metadata.name")))?;
        serde_json::from_value(object)
            .map_err(|e| wrong(format!("{kind} {name} cannot be read: {e}")))
    };
    objects.into_iter().map(parse).collect()
}

fn documents(text: &str) -> Result<Vec<Value>, String> {
    // JSON is YAML too, and many times faster read as what it is.
    if text.trim_start().starts_with('{') {
        let json: Result<Vec<_>, _> =
            serde_json::Deserializer::from_str(text).into_iter().collect();
        if let Ok(values) = json {
            return Ok(values);
        }
    }
    // The size is bounded already; what is left is what aliases make of it.
    let most = LARGEST as usize;
    let budget = serde_saphyr::budget! {
        max_documents: most,
        max_events: most,
        max_nodes: most,
        max_total_scalar_bytes: most,
    };
    // A snippet would quote, and a peer may have a preshared key.
    let options = serde_saphyr::options! {
        budget: budget,
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        match error.location() {
            Some(at) => format!("is not YAML at line {}, column {}", at.line(), at.column()),
            None => "is neither YAML nor JSON".to_owned(),
        }
    })
}

fn flatten(document: Value, kind: &str, into: &mut Vec<Value>) -> Result<(), String> {
    if document.is_null() {
        return Ok(());
    }
    let found = document["kind"].as_str().unwrap_or_default().to_owned();
    let list = found == "List" || found == format!("{kind}List");
    if found == kind {
        into.push(document);
        Ok(())
    } else if list && let Some(Value::Array(items)) = document.get("items") {
        for item in items {
            let mut item = item.clone();
            // The items of a typed list may leave out what they are.
            if let Some(object) = item.as_object_mut().filter(|o| !o.contains_key("kind")) {
                object.insert("kind".to_owned(), kind.into());
                object.insert("apiVersion".to_owned(), document["apiVersion"].clone());
            }
            flatten(item, kind, into)?;
        }
        Ok(())
    } else if found.is_empty() {
        Err(format!("has an object without a kind; a {kind} or a list of them was expected"))
    } else {
        Err(format!("has a {found}; a {kind} or a list of them was expected"))
    }
}

/// The JSON, which is a contract.
fn value(mesh: &ClusterMesh, plan: &Plan) -> Value {
    let target = |(name, target): (&String, &planner::TargetPlan)| {
        let update = |update: &planner::Update| json!({"name": update.name, "patch": update.patch});
        let conflict = |c: &planner::Conflict| json!({"cluster": c.cluster, "node": c.node, "holder": c.holder, "adoptable": c.adoptable});
        json!({
            "cluster": name,
            "deletes": target.deletes,
            "updates": target.updates.iter().map(update).collect::<Vec<_>>(),
            "creates": target.creates,
            "conflicts": target.conflicts.iter().map(conflict).collect::<Vec<_>>(),
        })
    };
    let skipped = plan.skipped.iter().flat_map(|(cluster, nodes)| {
        nodes.iter().map(move |skipped| {
            json!({
                "cluster": cluster,
                "node": skipped.node,
                "reason": skipped.reason.to_string(),
                "transient": skipped.reason.is_transient(),
                "message": skipped.message,
            })
        })
    });
    json!({
        "mesh": mesh.metadata.name,
        "namespace": mesh.metadata.namespace.as_deref().unwrap_or("default"),
        "targets": plan.targets.iter().map(target).collect::<Vec<_>>(),
        "skipped": skipped.collect::<Vec<_>>(),
        "overlaps": plan.overlaps.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "notes": plan.notes,
        "status": plan.status,
    })
}

fn table(plan: &Plan) -> String {
    let mut rows = Vec::new();
    for (target, planned) in &plan.targets {
        let mut row = |action: &str, peer: &str, what: String| {
            rows.push([target.clone(), action.to_owned(), peer.to_owned(), what]);
        };
        for name in &planned.deletes {
            row("delete", name, String::new());
        }
        for update in &planned.updates {
            row("update", &update.name, update.patch.to_string());
        }
        for peer in &planned.creates {
            let spec = &peer.spec;
            let name = peer.metadata.name.as_deref().unwrap_or_default();
            row("create", name, spec.allowed_ips.join(","));
        }
        for conflict in &planned.conflicts {
            let hint = if conflict.adoptable { " (--adopt takes it over)" } else { "" };
            let what = format!("its public key is that of peer {}{hint}", conflict.holder);
            row("withhold", &format!("{}/{}", conflict.cluster, conflict.node), what);
        }
    }
    let mut text = match rows.is_empty() {
        true => "nothing to write".to_owned(),
        false => output::table(["IN", "DO", "PEER", "WHAT"], &rows),
    };
    let skipped: Vec<[String; 4]> = plan
        .skipped
        .iter()
        .flat_map(|(cluster, nodes)| {
            nodes
                .iter()
                .map(|s| [cluster.clone(), s.node.clone(), s.reason.to_string(), s.message.clone()])
        })
        .collect();
    if !skipped.is_empty() {
        text.push_str("\n\n");
        text.push_str(&output::table(["CLUSTER", "SKIPPED", "REASON", "WHY"], &skipped));
    }
    let states: Vec<[String; 4]> = plan
        .status
        .clusters
        .iter()
        .map(|cluster| {
            let peers = format!("{}/{}", cluster.registered_peers, cluster.wanted_peers);
            let why = cluster.why.clone().unwrap_or_default();
            [cluster.name.clone(), format!("{:?}", cluster.state), peers, why]
        })
        .collect();
    text.push_str("\n\n");
    text.push_str(&output::table(["CLUSTER", "STATE", "PEERS", "WHY"], &states));
    for note in &plan.notes {
        text.push_str("\nnote: ");
        text.push_str(&crate::cli::table::printable(note));
    }
    text
}
