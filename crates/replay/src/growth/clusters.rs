//! Clusters of a fleet: one cluster's state changes, a cluster is looked up; a node's change in a mesh of them.

use std::hint::black_box;
use std::sync::Arc;

use fleet::{ClusterView, FleetView, Heartbeat, Source, SourceKind, State};
use k8s_openapi::jiff::Timestamp;
use stallproof::Snapshot;

use super::meter::{Grows, Meter};
use super::peers::Mesh;
use crate::incident::Cannot;

/// Nodes of each cluster of the mesh.
const NODES: usize = 2;
/// The fleet has so many times the clusters of the mesh: a mesh has few, and its peers are many.
const FLEET: usize = 10;

pub(super) fn measure(clusters: usize, meter: &mut Meter) -> Result<(), Cannot> {
    view(clusters * FLEET, meter);
    let mut mesh = Mesh::new(clusters, NODES)?;
    meter.change("mesh: the endpoint of a node changes, in all clusters", Grows::Linearly, |n| {
        let to_write = mesh.move_node(1, n % 2 == 0).unwrap_or_default();
        assert_eq!(to_write, if n % 2 == 0 { clusters - 1 } else { 0 });
    });
    Ok(())
}

fn cluster(number: usize, nodes: u64) -> Arc<ClusterView> {
    Arc::new(ClusterView {
        name: name(number),
        source: Source { kind: SourceKind::Kubeconfig, place: "config".to_owned() },
        labels: Default::default(),
        server: Some(format!("https://192.0.2.1:{number}")),
        state: State::Unreachable,
        since: Timestamp::UNIX_EPOCH,
        why: Some("it does not answer".to_owned()),
        version: Some("v1.31.2".to_owned()),
        nodes: Some(nodes),
        next_try: None,
        impersonating: false,
        shadowed_by: None,
        heartbeat: Heartbeat::default(),
    })
}

fn name(number: usize) -> Arc<str> {
    format!("cluster-{number}").into()
}

fn view(clusters: usize, meter: &mut Meter) {
    let mut all = FleetView::default();
    for number in 0..clusters {
        all.clusters.insert(name(number), cluster(number, 3));
    }
    let fleet = Snapshot::new(all);
    meter.change("fleet of ten times as many: the state of a cluster changes", Grows::Not, |i| {
        fleet.update(|view| {
            view.clusters.insert(name(0), cluster(0, i as u64));
            true
        });
    });
    let last = name(clusters - 1);
    meter.change("fleet of ten times as many: a cluster is looked up", Grows::Not, |_| {
        black_box(fleet.load().own_connection(&last).is_err());
    });
}
