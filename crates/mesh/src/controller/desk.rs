//! A desk: one mesh. It reads the newest world, plans what differs, has it written target by target,
//! and says how it stands. It waits for none of them: what takes time is under way beside it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use fleet::Fleet;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use imbl::OrdMap;
use kube::ResourceExt;
use objects::kinds::{ClusterMesh, ClusterMeshStatus, JoinedCluster, MeshClusterRef};
use objects::{Fence, Id, Objects};
use stallproof::backoff::Curve;
use stallproof::ledger::Outcome as Ended;
use stallproof::{Backoff, Ledger, Snapshot};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use super::apply::{Batch, Outcome};
use super::observe::PEER_CRD;
use super::record::{self, Record};
use super::roster::reach;
use super::world::World;
use super::{FINALIZER, forgotten};
use crate::overlap;
use crate::plan::Seen;
use crate::state::State;
use crate::status::TO_WRITE;

/// Decisions between two looks at whatever else there is to do: a few milliseconds.
const SLICE: usize = 256;
/// A target that could not be written, and a store that could not.
const RETRY: Curve = Curve { first: Duration::from_millis(500), most: Duration::from_secs(30) };
/// What is incomplete is looked at again after this, whatever else happens.
const INCOMPLETE: Duration = Duration::from_secs(30);
/// A mesh of many peers changes its numbers with each: they are written this often.
const RECORD_EVERY: Duration = Duration::from_secs(1);
/// Batches in a row after which a target is written to with pauses: it may be that somebody undoes
/// what is written.
const IN_A_ROW: u32 = 64;

pub(super) struct Desk {
    id: Id,
    objects: Objects,
    fence: Fence,
    ledger: Ledger,
    world: Snapshot<World>,
    fleets: [Fleet; 2],
    state: Option<State>,
    /// The meshes that the state was framed with.
    framed: OrdMap<Id, Arc<ClusterMesh>>,
    /// The clusters that the state was shown, by its names for them.
    shown: BTreeMap<String, MeshClusterRef>,
    writing: BTreeSet<String>,
    rests: HashMap<String, Rest>,
    /// Which mesh of this name: another has nothing in common with it.
    uid: Option<String>,
    /// What was last written of the mesh, which its watch may not have told yet.
    recorded: Option<ClusterMeshStatus>,
    recording: bool,
    record_after: Instant,
    store: Backoff,
}

/// How a target's writes went of late.
struct Rest {
    backoff: Backoff,
    until: Instant,
    why: Option<String>,
    in_a_row: u32,
}

enum Done {
    Wrote { target: String, outcome: Outcome },
    Recorded(Result<Option<ClusterMeshStatus>, String>),
}

type Jobs = FuturesUnordered<BoxFuture<'static, Done>>;

/// A cluster of the mesh, or one on its way out.
struct Party {
    reference: MeshClusterRef,
    /// Where it is no longer in the mesh.
    leaving: Option<JoinedCluster>,
    /// It may be the cluster that has its name now, reached another way: until that is known it is left
    /// alone.
    doubtful: bool,
}

impl Desk {
    pub(super) fn new(
        id: Id,
        objects: Objects,
        fence: Fence,
        ledger: Ledger,
        world: Snapshot<World>,
        fleets: [Fleet; 2],
    ) -> Self {
        Self {
            id,
            objects,
            fence,
            ledger,
            world,
            fleets,
            state: None,
            framed: OrdMap::new(),
            shown: BTreeMap::new(),
            writing: BTreeSet::new(),
            rests: HashMap::new(),
            uid: None,
            recorded: None,
            recording: false,
            record_after: Instant::now(),
            store: Backoff::new(RETRY),
        }
    }

    /// Until it is dropped.
    pub(super) async fn run(mut self) {
        let mut changes = self.world.subscribe();
        let mut jobs = Jobs::new();
        loop {
            let world = self.world.load();
            let wake = match world.meshes.get(&self.id) {
                Some(mesh) => self.turn(&world, mesh, &mut jobs).await,
                // The roster is about to end this.
                None => Instant::now() + INCOMPLETE,
            };
            drop(world);
            tokio::select! {
                _ = changes.changed() => {}
                Some(done) = jobs.next() => self.done(done),
                () = sleep_until(wake) => {}
            }
        }
    }

    /// Plans, begins what is to be done, and says when to look again at the latest.
    async fn turn(&mut self, world: &World, mesh: &ClusterMesh, jobs: &mut Jobs) -> Instant {
        if self.uid != mesh.metadata.uid {
            self.uid.clone_from(&mesh.metadata.uid);
            self.recorded = None;
        }
        let mut state = self.framed_state(world, mesh);
        let parties = self.parties(world, mesh);
        for name in self.shown.keys().filter(|name| !parties.contains_key(*name)) {
            state.drop_cluster(name);
        }
        for (name, party) in &parties {
            // Another cluster by the same name has nothing in common with the one before.
            if self.shown.get(name).is_some_and(|before| *before != party.reference) {
                state.drop_cluster(name);
            }
            if let Some(observed) = world.clusters.get(&party.reference).filter(|_| !party.doubtful)
            {
                state.see(name, &observed.sight);
            }
        }
        self.shown =
            parties.iter().map(|(n, party)| (n.clone(), party.reference.clone())).collect();
        while state.work(SLICE) {
            tokio::task::yield_now().await;
        }
        self.begin_writes(&state, mesh, &parties, jobs);
        let wake = self.begin_record(&state, world, mesh, &parties, jobs);
        self.state = Some(state);
        let rests = self.rests.values().map(|rest| rest.until).filter(|at| *at > Instant::now());
        rests.chain([wake]).min().unwrap_or(wake)
    }

    fn framed_state(&mut self, world: &World, mesh: &ClusterMesh) -> State {
        let state = match self.state.take() {
            Some(state) if self.framed.ptr_eq(&world.meshes) => return state,
            state => state,
        };
        let others = world.meshes.iter().filter(|(id, _)| **id != self.id);
        let others: Vec<ClusterMesh> = others
            .map(|(_, other)| ClusterMesh {
                metadata: other.metadata.clone(),
                spec: other.spec.clone(),
                status: None,
            })
            .collect();
        let state = match state {
            Some(mut state) => {
                state.reframe(mesh, &others);
                state
            }
            None => State::new(mesh, &others),
        };
        self.framed = world.meshes.clone();
        state
    }

    /// The status as it is stored.
    fn stored<'a>(&'a self, mesh: &'a ClusterMesh) -> Option<&'a ClusterMeshStatus> {
        self.recorded.as_ref().or(mesh.status.as_ref())
    }

    /// By the names that the state has for them.
    fn parties(&self, world: &World, mesh: &ClusterMesh) -> BTreeMap<String, Party> {
        let namespace = overlap::namespace(mesh);
        let mut parties = BTreeMap::new();
        let mut references = BTreeSet::new();
        for cluster in &mesh.spec.clusters {
            if let Some(reference) = cluster.reference(&namespace) {
                references.insert(reference.clone());
                parties.insert(
                    cluster.name.clone(),
                    Party { reference, leaving: None, doubtful: false },
                );
            }
        }
        let forgotten = forgotten(mesh);
        let identity = |reference: &MeshClusterRef| {
            world.clusters.get(reference).and_then(|observed| observed.identity.clone())
        };
        let present: BTreeSet<_> = references.iter().filter_map(identity).collect();
        for joined in self.stored(mesh).into_iter().flat_map(|status| &status.joined) {
            let Some(reference) = joined.reference(&namespace) else { continue };
            // The same cluster, by another name or another way: its plan clears what is old.
            let is_present = references.contains(&reference)
                || identity(&reference).is_some_and(|identity| present.contains(&identity));
            if is_present || forgotten.contains(joined.name.as_str()) {
                continue;
            }
            let mut name = joined.name.clone();
            let mut doubtful = false;
            if let Some(successor) = parties.get(&name) {
                doubtful =
                    identity(&successor.reference).is_none() || identity(&reference).is_none();
                name = format!("{name} ({reference})");
            }
            parties.insert(name, Party { reference, leaving: Some(joined.clone()), doubtful });
        }
        parties
    }

    fn begin_writes(
        &mut self,
        state: &State,
        mesh: &ClusterMesh,
        parties: &BTreeMap<String, Party>,
        jobs: &mut Jobs,
    ) {
        let due: BTreeSet<&str> = state.due().collect();
        self.rests.retain(|target, _| due.contains(target.as_str()));
        if !mesh.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
            return;
        }
        for target in due {
            let Some(party) = parties.get(target) else { continue };
            let resting = self.rests.get(target).is_some_and(|rest| rest.until > Instant::now());
            if resting || self.writing.contains(target) || !self.is_joined(mesh, &party.reference) {
                continue;
            }
            let reach = reach(&party.reference, &self.fleets);
            // What is away is said by its observer.
            let (Ok(connection), Some(plan)) = (reach.connection(), state.target(target)) else {
                continue;
            };
            let batch = Batch {
                cluster: party.reference.clone(),
                connection,
                fence: self.fence.clone(),
                world: self.world.clone(),
                plan,
            };
            let op = self.ledger.begin("mesh-apply", self.id.to_string(), target.to_owned());
            let target = target.to_owned();
            self.writing.insert(target.clone());
            jobs.push(Box::pin(async move {
                let outcome = batch.write().await;
                op.finish(if outcome.result.is_ok() { Ended::Done } else { Ended::Failed });
                Done::Wrote { target, outcome }
            }));
        }
    }

    /// Whether it is written down that a cluster may have peers of this mesh.
    fn is_joined(&self, mesh: &ClusterMesh, reference: &MeshClusterRef) -> bool {
        let namespace = overlap::namespace(mesh);
        let mut joined = self.stored(mesh).into_iter().flat_map(|status| &status.joined);
        joined.any(|joined| joined.reference(&namespace).as_ref() == Some(reference))
    }

    /// Writes down what has changed about the mesh, if it is time to; says when to look again.
    fn begin_record(
        &mut self,
        state: &State,
        world: &World,
        mesh: &ClusterMesh,
        parties: &BTreeMap<String, Party>,
        jobs: &mut Jobs,
    ) -> Instant {
        let going = mesh.metadata.deletion_timestamp.is_some();
        let before = self.stored(mesh);
        let mut status = state.status(before, mesh.metadata.generation);
        status.joined = self.joined(state, world, mesh, parties);
        for cluster in &mut status.clusters {
            let rest = self.rests.get(&cluster.name).and_then(|rest| rest.why.as_ref());
            if let Some(why) = rest.filter(|_| cluster.why.as_deref() == Some(TO_WRITE)) {
                cluster.why = Some(format!("its peers cannot be written: {why}"));
            }
        }
        record::refuse(&mut status, before, mesh);
        record::complete(&mut status, before, going);
        let held = mesh.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
        let record = match () {
            () if !going && !held => Some(Record::Hold),
            // Whoever put it there may take it away only when nothing is left.
            () if going && held && status.joined.is_empty() => Some(Record::Release),
            () if going && !held => None,
            // It is done; the same cluster may come and go again.
            () if before == Some(&status) && is_forget_done(mesh, &status) => {
                Some(Record::Forgotten)
            }
            () if before != Some(&status) => Some(Record::Status(Box::new(status.clone()))),
            () => None,
        };
        let ready = record::is_ready(&status);
        let again = Instant::now() + if ready { INCOMPLETE * 10 } else { INCOMPLETE };
        let Some(record) = record.filter(|_| !self.recording) else { return again };
        let urgent = before.is_none_or(|before| {
            record::is_ready(before) != ready || before.joined != status.joined
        });
        let urgent = (urgent || !matches!(record, Record::Status(_))) && self.store.failures() == 0;
        if !urgent && self.record_after > Instant::now() {
            return self.record_after;
        }
        let (objects, before) = (self.objects.clone(), before.cloned());
        let mesh = mesh.clone();
        self.recording = true;
        jobs.push(Box::pin(async move {
            Done::Recorded(record.write(&objects, mesh, before.as_ref()).await)
        }));
        again
    }

    /// The clusters that may have peers of the mesh from now on.
    fn joined(
        &self,
        state: &State,
        world: &World,
        mesh: &ClusterMesh,
        parties: &BTreeMap<String, Party>,
    ) -> Vec<JoinedCluster> {
        let going = mesh.metadata.deletion_timestamp.is_some();
        let is_clear = |name: &str, party: &Party| {
            let observed = world.clusters.get(&party.reference);
            let peers = observed.map(|observed| &observed.sight.peers);
            let no_kind = matches!(peers, Some(Seen::Waiting(what)) if what == PEER_CRD);
            !party.doubtful && !self.writing.contains(name) && (state.is_clear(name) || no_kind)
        };
        let why = |party: &Party| {
            if party.doubtful {
                return Some("it may be the cluster that has its name now".to_owned());
            }
            let observed = world.clusters.get(&party.reference);
            Some(match observed.map(|observed| &observed.sight.peers) {
                Some(Seen::Known(_)) => "waiting for its peers to be removed".to_owned(),
                Some(Seen::Waiting(what)) => format!("waiting for {what}"),
                Some(Seen::Away(why)) => why.clone(),
                None => "nothing is known of it".to_owned(),
            })
        };
        let mut joined = Vec::new();
        for cluster in &mesh.spec.clusters {
            let Some(party) = parties.get(&cluster.name) else { continue };
            let entry = JoinedCluster::from(cluster);
            if !going {
                joined.push(entry);
            } else if self.is_joined(mesh, &party.reference)
                && !forgotten(mesh).contains(cluster.name.as_str())
                && !is_clear(&cluster.name, party)
            {
                joined.push(JoinedCluster { leaving: why(party), ..entry });
            }
        }
        for (name, party) in parties {
            if let Some(entry) = &party.leaving
                && !is_clear(name, party)
            {
                joined.push(JoinedCluster { leaving: why(party), ..entry.clone() });
            }
        }
        joined
    }

    fn done(&mut self, done: Done) {
        let mesh = &self.id;
        match done {
            Done::Wrote { target, outcome: Outcome { written, result } } => {
                self.writing.remove(&target);
                debug!(%mesh, target, written, "peers written");
                let rest = self.rests.entry(target.clone()).or_insert_with(|| Rest {
                    backoff: Backoff::new(RETRY),
                    until: Instant::now(),
                    why: None,
                    in_a_row: 0,
                });
                rest.in_a_row += 1;
                let why = result.err();
                if why.is_some() || rest.in_a_row > IN_A_ROW {
                    rest.until = Instant::now() + rest.backoff.failed().wait;
                } else {
                    rest.backoff.succeeded();
                }
                if let Some(why) = why.as_ref().filter(|why| rest.why.as_ref() != Some(*why)) {
                    warn!(%mesh, target, why, "peers could not be written");
                }
                rest.why = why;
            }
            Done::Recorded(result) => {
                self.recording = false;
                match result {
                    Ok(status) => {
                        self.recorded = status.or_else(|| self.recorded.take());
                        self.store.succeeded();
                        self.record_after = Instant::now() + RECORD_EVERY;
                    }
                    Err(why) => {
                        let retry = self.store.failed();
                        if retry.attempt == 1 {
                            info!(%mesh, why, "the mesh's status could not be written");
                        }
                        self.record_after = Instant::now() + retry.wait;
                    }
                }
            }
        }
    }
}

fn is_forget_done(mesh: &ClusterMesh, status: &ClusterMeshStatus) -> bool {
    let leaving = |name: &&str| {
        status.joined.iter().any(|joined| joined.name == **name && joined.leaving.is_some())
    };
    let names = forgotten(mesh);
    !names.is_empty() && !names.iter().any(leaving)
}
