use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use ::mesh::{self as planner, Index, Observation, Observed, Peer, Plan, index};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use objects::kinds::{AddressBlock, ClusterMesh, DataPlane, WireguardNode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cli::files;
use crate::output::{self, Failure, Output, Verdict};

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
/// For a mesh with dataPlane: wireguard a file of nodes has what agents say beside them:
///   kubectl --context a get nodes,wireguardnodes,addressblocks -o yaml > a.yaml
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
    let mut meshes: Vec<ClusterMesh> = files::valid_objects(&args.mesh)?;
    let mut mesh = meshes.remove(0);
    mesh.spec.adopt |= args.adopt;
    let plan = planner::plan(&mesh, &meshes, &observations(args, &mesh)?);
    args.output.print(&value(&mesh, &plan), || table(&plan))?;
    Ok(ExitCode::SUCCESS)
}

/// Reads what the files say of each cluster.
fn observations(args: &Args, mesh: &ClusterMesh) -> Result<BTreeMap<String, Observation>, Failure> {
    let (nodes, kind) = match mesh.spec.main_data_plane() {
        DataPlane::Kilo => (by_cluster(&args.nodes, "--nodes", "Node")?, "Peer"),
        DataPlane::Wireguard => (wireguard_nodes(&args.nodes)?, "WireguardPeer"),
    };
    let peers = by_cluster(&args.peers, "--peers", kind)?;
    let known: Vec<&str> = mesh.spec.clusters.iter().map(|c| c.name.as_str()).collect();
    // A cluster that left the mesh may still have peers, but its nodes are of no use.
    if let Some(unknown) = nodes.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(Failure(format!(
            "--nodes {unknown}=...: the mesh has no cluster {unknown}; it has {}",
            known.join(", ")
        )));
    }
    let mut observations = BTreeMap::new();
    for cluster in known.iter().map(|name| (*name).to_owned()).chain(peers.keys().cloned()) {
        let nodes = nodes.get(&cluster).cloned().map_or_else(
            || Observed::Away(format!("its nodes were not given (--nodes {cluster}=FILE)")),
            Observed::Known,
        );
        let peers: Option<&Index<Peer>> = peers.get(&cluster);
        let peers = peers.into_iter().flat_map(|all| all.values().map(|peer| Peer::clone(peer)));
        let peers = Observed::Known(peers.collect());
        observations.insert(cluster, Observation { nodes, peers });
    }
    Ok(observations)
}

/// Reads Nodes with what their agents say of them.
fn wireguard_nodes(files: &[(String, PathBuf)]) -> Result<BTreeMap<String, Index<Node>>, Failure> {
    const KINDS: [&str; 3] = ["Node", "WireguardNode", "AddressBlock"];
    let mut all = BTreeMap::new();
    for (cluster, file) in files {
        let [nodes, said, blocks] = files::objects_of_kinds(file, KINDS)?;
        let nodes: Vec<Node> = files::parsed(file, KINDS[0], nodes)?;
        let said: Vec<WireguardNode> = files::parsed(file, KINDS[1], said)?;
        let blocks: Vec<AddressBlock> = files::parsed(file, KINDS[2], blocks)?;
        let said: BTreeMap<String, WireguardNode> =
            said.into_iter().map(|it| (it.name_any(), it)).collect();
        let joined = nodes.into_iter().map(|node| {
            let said = said.get(&node.name_any());
            planner::with_wireguard(node, said, &blocks)
        });
        if all.insert(cluster.clone(), index(joined)).is_some() {
            return Err(Failure(format!("--nodes {cluster}=... is given twice")));
        }
    }
    Ok(all)
}

fn by_cluster<T: DeserializeOwned + ResourceExt>(
    files: &[(String, PathBuf)],
    flag: &str,
    kind: &str,
) -> Result<BTreeMap<String, Index<T>>, Failure> {
    let mut all = BTreeMap::new();
    for (cluster, file) in files {
        if all.insert(cluster.clone(), index(files::objects_of(file, kind)?)).is_some() {
            return Err(Failure(format!("{flag} {cluster}=... is given twice")));
        }
    }
    Ok(all)
}

/// The plan as JSON. Scripts depend on its fields.
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
        false => output::table(["IN", "DO", "PEER", "WHAT"], rows),
    };
    let skipped = plan.skipped.iter().flat_map(|(cluster, nodes)| {
        let row = |s: &planner::Skipped| {
            [cluster.clone(), s.node.clone(), s.reason.to_string(), s.message.clone()]
        };
        nodes.iter().map(row).collect::<Vec<_>>()
    });
    let skipped: Vec<_> = skipped.collect();
    if !skipped.is_empty() {
        text.push_str("\n\n");
        text.push_str(&output::table(["CLUSTER", "SKIPPED", "REASON", "WHY"], skipped));
    }
    let states = plan.status.clusters.iter().map(|cluster| {
        let peers = format!("{}/{}", cluster.registered_peers, cluster.wanted_peers);
        let why = cluster.why.clone().unwrap_or_default();
        [cluster.name.clone(), format!("{:?}", cluster.state), peers, why]
    });
    text.push_str("\n\n");
    text.push_str(&output::table(["CLUSTER", "STATE", "PEERS", "WHY"], states));
    for note in &plan.notes {
        text.push_str("\nnote: ");
        text.push_str(&crate::cli::table::printable(note));
    }
    text
}
