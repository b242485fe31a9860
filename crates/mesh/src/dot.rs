//! Meshes as a graph in the DOT language of Graphviz. A cluster has the colour of its state, and an edge
//! is solid where both clusters have all peers of each other.

use std::fmt::Write as _;

use kube::ResourceExt;
use objects::kinds::{ClusterMesh, MeshClusterStatus, MeshState};

pub fn dot(meshes: &[ClusterMesh]) -> String {
    let mut text = String::from("graph meshes {\n  node [shape=box, style=rounded];\n");
    for (i, mesh) in meshes.iter().enumerate() {
        let title = format!("{}/{}", crate::overlap::namespace(mesh), mesh.name_any());
        let _ = writeln!(text, "  subgraph cluster_{i} {{\n    label={};", quoted(&title));
        let status = mesh.status.clone().unwrap_or_default();
        let status_of = |name: &str| status.clusters.iter().find(|cluster| cluster.name == name);
        let id = |name: &str| quoted(&format!("{i}/{name}"));
        for cluster in &mesh.spec.clusters {
            let known = status_of(&cluster.name);
            let peers = known.map_or(String::new(), |known| {
                format!("\n{}/{} peers", known.registered_peers, known.wanted_peers)
            });
            let label = quoted(&format!("{}{peers}", cluster.name));
            let colour = colour(known);
            let _ = writeln!(text, "    {} [label={label}, color={colour}];", id(&cluster.name));
        }
        for (j, a) in mesh.spec.clusters.iter().enumerate() {
            for b in &mesh.spec.clusters[j + 1..] {
                let is_missing = |source: &str, target: &str| {
                    status_of(source)
                        .is_none_or(|source| source.missing_in.iter().any(|t| t == target))
                };
                let complete = !is_missing(&a.name, &b.name) && !is_missing(&b.name, &a.name);
                let style = if complete { "solid" } else { "dashed" };
                let _ = writeln!(text, "    {} -- {} [style={style}];", id(&a.name), id(&b.name));
            }
        }
        text.push_str("  }\n");
    }
    text.push_str("}\n");
    text
}

fn colour(cluster: Option<&MeshClusterStatus>) -> &'static str {
    match cluster.map(|cluster| cluster.state) {
        Some(MeshState::Converged) => "green",
        Some(MeshState::Waiting) | None => "orange",
        Some(MeshState::Unreachable | MeshState::Overlapping) => "red",
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests;
