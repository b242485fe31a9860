//! A mesh whose peers are all written, for the dimensions that it grows in.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use mesh::{Index, Observation, Observed, PeerIndex, Planner, index};
use objects::kinds::ClusterMesh;
use serde_json::json;

use crate::incident::Cannot;

pub(super) struct Mesh {
    planner: Planner,
    clusters: Vec<Observation>,
}

/// Cluster `c` has pod networks of its own, and one network that no node covers.
fn spec(clusters: usize) -> Result<ClusterMesh, Cannot> {
    let cluster = |c: usize| {
        json!({"name": format!("c{c}"), "clusterRef": format!("c{c}"),
               "allowedNetworks": [format!("fd00:{c:x}::/32"), format!("fd01:{c:x}::/32")]})
    };
    Ok(serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh",
        "metadata": {"name": "m", "namespace": "fairlead"},
        "spec": {"clusters": (0..clusters).map(cluster).collect::<Vec<_>>()},
    }))?)
}

fn node(cluster: usize, i: usize, port: usize) -> Result<Node, Cannot> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": format!("n{i:05}"), "annotations": {
            "kilo.squat.ai/key": format!("{:=<44}", format!("key-{cluster}-{i}")),
            "kilo.squat.ai/wireguard-ip": format!("fd00:{cluster:x}:ffff::{i:x}/32"),
            "kilo.squat.ai/force-endpoint": format!("198.51.100.7:{port}"),
        }},
        "spec": {"podCIDRs": [format!("fd00:{cluster:x}:{i:x}::/64")]},
        "status": {"addresses": [
            {"type": "InternalIP", "address": format!("fd02:{cluster:x}::{i:x}")},
        ]},
    }))?)
}

impl Mesh {
    /// Plans the mesh, and writes what is planned.
    pub(super) fn new(clusters: usize, nodes: usize) -> Result<Self, Cannot> {
        let planner = Planner::new(&spec(clusters)?, &[]);
        let observation = |c: usize| -> Result<Observation, Cannot> {
            let nodes: Result<Vec<Node>, Cannot> = (0..nodes).map(|i| node(c, i, 51820)).collect();
            let peers = Observed::Known(PeerIndex::default());
            Ok(Observation { nodes: Observed::Known(index(nodes?)), peers })
        };
        let clusters: Result<Vec<Observation>, Cannot> = (0..clusters).map(observation).collect();
        let mut mesh = Self { clusters: clusters?, planner };
        (0..mesh.clusters.len()).for_each(|c| mesh.show(c));
        for c in 0..mesh.clusters.len() {
            let plan = mesh.planner.target_plan(&format!("c{c}")).unwrap_or_default();
            mesh.clusters[c].peers = Observed::Known(plan.creates.into_iter().collect());
            mesh.show(c);
        }
        if mesh.to_write() != 0 {
            return Err("a mesh whose peers are written has something to write".into());
        }
        Ok(mesh)
    }

    fn show(&mut self, cluster: usize) {
        self.planner.observe(&format!("c{cluster}"), &self.clusters[cluster]);
        while self.planner.advance(256) {}
    }

    fn nodes(&mut self) -> Option<&mut Index<Node>> {
        match &mut self.clusters[0].nodes {
            Observed::Known(nodes) => Some(nodes),
            _ => None,
        }
    }

    /// How many clusters something is to be written in.
    fn to_write(&self) -> usize {
        self.planner.targets_to_write().count()
    }

    /// The endpoint of a node of the first cluster changes, or is as it was; how many clusters that is to be
    /// written in.
    pub(super) fn move_node(&mut self, i: usize, moved: bool) -> Result<usize, Cannot> {
        let node = Arc::new(node(0, i, if moved { 4000 } else { 51820 })?);
        self.nodes().map(|nodes| nodes.insert(format!("n{i:05}").into(), node));
        self.show(0);
        Ok(self.to_write())
    }

    /// A node of the first cluster is gone, or is back.
    pub(super) fn remove_node(&mut self, i: usize, gone: bool) -> Result<usize, Cannot> {
        if !gone {
            return self.move_node(i, false);
        }
        self.nodes().map(|nodes| nodes.remove(format!("n{i:05}").as_str()));
        self.show(0);
        Ok(self.to_write())
    }
}
