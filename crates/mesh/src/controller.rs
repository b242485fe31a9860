//! The controller: what a leader does for the meshes of its store.
//!
//! ```text
//! ClusterMesh, Secret ──watch──► roster ──► which clusters to look at, which meshes there are
//!                                  │
//!                 a task a cluster │ a task a mesh
//!                                  ▼
//! Node, Peer, CRD ──watch──► observer ──► Snapshot<World> ──► desk ──► State (incremental plan)
//!                                              ▲                │
//!                                              │                ├─► writes, target by target
//!                                              └──what was written──┘
//!                                                               └─► status, finalizer, events
//! ```
//!
//! fetch → plan → apply → status, each by somebody who cannot hold up the others:
//! - **fetch**: an observer for each cluster that any mesh names, whoever names it how often. It says
//!   what it sees, or what it waits for, or why the cluster is away; it never acts. A kind that is
//!   missing is asked for again when the cluster's definitions change, and every few seconds.
//! - **plan**: a desk for each mesh. It reads the newest world, whatever happened since it last did,
//!   so no event can be lost or come in the wrong order; what differs is found without a look at the
//!   rest. Planning is done a slice at a time.
//! - **apply**: each target is written to by itself, one batch after the other, a bounded number of
//!   writes at once, each with a deadline, over the version that the plan was made for, and only while
//!   the leader's fence holds. A target that does not answer is tried again after a while, at most half
//!   a minute; no other waits for it. What was written is told to the world at once: the next plan
//!   is made of it.
//! - **status**: data, written when it changes. It is about what was seen, so `Ready` is never true
//!   with a peer missing.
//!
//! Before a cluster gets its first peer the mesh has a finalizer and the cluster is on the list
//! `status.joined`; it leaves the list when it was seen without peers of the mesh, or a person gave it
//! up (annotation [`FORGET`]). So nothing is forgotten by a restart, nor by a new leader.

mod apply;
mod desk;
mod observe;
mod record;
mod roster;
mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use fleet::{Fleet, Timing};
use kube::ResourceExt;
use objects::Leader;
use objects::kinds::ClusterMesh;
use stallproof::{Ledger, Snapshot};

use roster::Roster;
use world::World;

/// On a mesh: names of clusters that left it, or that it is deleted with, and that nobody waits for
/// any more; separated by commas.
pub const FORGET: &str = "fairlead.dev/forget";
/// Holds a mesh until its peers are gone.
pub const FINALIZER: &str = "fairlead.dev/mesh";

/// How often a cluster of a kubeconfig in a Secret is tried that does not answer: a mesh has few of
/// them, and somebody waits for each.
const RETRY: Duration = Duration::from_secs(10);

/// The clusters that a person gave up.
pub(crate) fn forgotten(mesh: &ClusterMesh) -> BTreeSet<&str> {
    let names = mesh.annotations().get(FORGET).map_or("", String::as_str);
    names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect()
}

/// Begins what the leader does for meshes; ends with the leader's tasks.
pub fn start(leader: &Leader, fleet: &Fleet, ledger: &Ledger) {
    let tasks = leader.tasks.child("mesh");
    let timing = Timing { retry: RETRY, ..Timing::default() };
    let (private, offers) = Fleet::private(timing, leader.objects.clone(), ledger.clone(), &tasks);
    let world = Snapshot::new(World::default());
    let stop = tasks.stopping();
    let roster = Roster::new(tasks, leader, fleet, private, offers, ledger, world);
    // Without it no mesh would be seen again: better that another leads.
    leader.tasks.spawn_essential("roster", async move {
        stop.bound(roster.run()).await;
    });
}
