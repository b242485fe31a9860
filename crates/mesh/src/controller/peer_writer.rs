//! Writes one target's plan, or the first batch of it.
//!
//! Contract:
//! - Deletes come first, then updates that give routes up, then the other updates, then creates. A peer
//!   must have let go of an address before another takes it: if one of the first two stages fails,
//!   nothing further is written. A refused write of the other stages holds up nothing.
//! - Each write checks the fence, has a deadline that ends with it, and names the version that the plan
//!   was made for. So the write of a leader that lost its term is either not made or refused as a
//!   conflict; a peer that it still creates is observed by its successor like any other.
//! - The result of a write is in the snapshot before the batch ends.

use std::time::Duration;

use fleet::{Connection, Error};
use futures::{StreamExt, stream};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use objects::Fence;
use objects::kinds::{DataPlane, MeshClusterRef};
use serde_json::json;
use stallproof::{Deadline, Snapshot, sentence};

use super::observed_clusters::ObservedClusters;
use super::observer::strip_peer;
use crate::observation::Observed;
use crate::peer::Peer;
use crate::peer_index::PeerIndex;
use crate::plan::{TargetPlan, Update};

/// How many writes run at a time in one target: an API server does not notice this many, and they share
/// the cluster's gate with users.
const CONCURRENCY: usize = 8;
/// How many writes one batch has; then it is planned again.
const BATCH_SIZE: usize = 256;
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct WriteBatch {
    pub(super) cluster: MeshClusterRef,
    pub(super) connection: Connection,
    pub(super) fence: Fence,
    pub(super) clusters: Snapshot<ObservedClusters>,
    pub(super) data_plane: DataPlane,
    pub(super) plan: TargetPlan,
}

/// How many peers were written, and why the rest is to be tried again later.
pub(super) struct BatchResult {
    pub(super) written: usize,
    pub(super) error: Option<String>,
}

enum PeerWrite {
    Delete(String),
    Update(Update),
    Create(Box<Peer>),
}

impl WriteBatch {
    pub(super) async fn write(mut self) -> BatchResult {
        let TargetPlan { deletes, updates, creates, .. } = std::mem::take(&mut self.plan);
        let (releasing, taking): (Vec<_>, Vec<_>) =
            updates.into_iter().partition(|update| update.releases_routes);
        let stages: [(Vec<PeerWrite>, bool); 4] = [
            (deletes.into_iter().map(PeerWrite::Delete).collect(), true),
            (releasing.into_iter().map(PeerWrite::Update).collect(), true),
            (taking.into_iter().map(PeerWrite::Update).collect(), false),
            (creates.into_iter().map(|peer| PeerWrite::Create(Box::new(peer))).collect(), false),
        ];
        let mut left = BATCH_SIZE;
        let mut result = BatchResult { written: 0, error: None };
        for (mut writes, must_succeed) in stages {
            writes.truncate(left);
            left -= writes.len();
            let writes = writes.into_iter().map(|write| self.write_peer(write));
            let mut writes = stream::iter(writes).buffer_unordered(CONCURRENCY);
            while let Some(written) = writes.next().await {
                match written {
                    Ok(()) => result.written += 1,
                    Err(WriteError { message, affects_cluster }) => {
                        result.error.get_or_insert(message);
                        if must_succeed || affects_cluster {
                            // The writes under way are dropped.
                            return result;
                        }
                    }
                }
            }
        }
        result
    }

    async fn write_peer(&self, write: PeerWrite) -> Result<(), WriteError> {
        let remaining = self.fence.remaining();
        if remaining.is_zero() {
            let message = "leadership was lost".to_owned();
            return Err(WriteError { message, affects_cluster: true });
        }
        let deadline = Deadline::after(WRITE_TIMEOUT.min(remaining));
        let name = match &write {
            PeerWrite::Delete(name) => name.clone(),
            PeerWrite::Update(update) => update.name.clone(),
            PeerWrite::Create(peer) => peer.name_any(),
        };
        let mut result = match write {
            PeerWrite::Delete(name) => self.delete(&name, deadline).await,
            PeerWrite::Update(update) => self.update(update, deadline).await,
            PeerWrite::Create(peer) => self.create(*peer, deadline).await,
        };
        if matches!(&result, Err(Error::Refused { status, .. }) if matches!(status.code, 404 | 409))
        {
            // The plan was made for another version. The next plan is made for the one that is there.
            result = self.refresh(&name, deadline).await;
        }
        result.map_err(|error| WriteError::new(&name, &error))
    }

    async fn create(&self, peer: Peer, deadline: Deadline) -> Result<(), Error> {
        let plane = self.data_plane;
        let made = self.connection.call("creating a peer", deadline, |client| async move {
            Api::<Peer>::all_with(client, &plane).create(&PostParams::default(), &peer).await
        });
        self.put(made.await?);
        Ok(())
    }

    async fn update(&self, update: Update, deadline: Deadline) -> Result<(), Error> {
        let Update { name, version, mut patch, .. } = update;
        patch["metadata"]["resourceVersion"] = json!(version);
        let plane = self.data_plane;
        let made = self.connection.call("updating a peer", deadline, |client| async move {
            let patch = Patch::Merge(patch);
            Api::<Peer>::all_with(client, &plane)
                .patch(&name, &PatchParams::default(), &patch)
                .await
        });
        self.put(made.await?);
        Ok(())
    }

    async fn delete(&self, name: &str, deadline: Deadline) -> Result<(), Error> {
        let Some(version) = self.version(name) else { return Ok(()) };
        let resource_version = Some(version.clone());
        let params = DeleteParams::default()
            .preconditions(Preconditions { resource_version, ..Preconditions::default() });
        let plane = self.data_plane;
        let deleted = self.connection.call("deleting a peer", deadline, |client| async move {
            Api::<Peer>::all_with(client, &plane).delete(name, &params).await
        });
        // A peer with finalizers stays for a while, and the watch reports its end.
        if deleted.await?.is_right() {
            self.edit(|peers| peers.remove(name, Some(&version)));
        }
        Ok(())
    }

    /// Reads a peer that is not as the plan assumed.
    async fn refresh(&self, name: &str, deadline: Deadline) -> Result<(), Error> {
        let plane = self.data_plane;
        let found = self.connection.call("reading a peer", deadline, |client| async move {
            Api::<Peer>::all_with(client, &plane).get_opt(name).await
        });
        match found.await? {
            Some(peer) => self.put(peer),
            None => {
                // The peer is gone, or the kind is: the observer asks for the kind again.
                self.connection.discovery().reset_all();
                self.edit(|peers| peers.remove(name, None));
            }
        }
        Ok(())
    }

    fn version(&self, name: &str) -> Option<String> {
        let clusters = self.clusters.load();
        let observed = clusters.get(&self.cluster)?.observation(self.data_plane);
        let peers = observed.peers.known()?;
        peers.get(name)?.resource_version()
    }

    fn put(&self, peer: Peer) {
        self.edit(|peers| peers.put(strip_peer(peer)));
    }

    fn edit(&self, edit: impl FnOnce(&mut Observed<PeerIndex>) -> bool) {
        self.clusters.update(|clusters| {
            clusters.edit(&self.cluster, |observed| {
                edit(&mut observed.observation_mut(self.data_plane).peers)
            })
        });
    }
}

struct WriteError {
    message: String,
    /// Whether the other writes would fail too.
    affects_cluster: bool,
}

impl WriteError {
    fn new(name: &str, error: &Error) -> Self {
        let refused =
            matches!(error, Error::Refused { status, .. } if (400..500).contains(&status.code));
        Self { message: format!("peer {name}: {}", sentence(error)), affects_cluster: !refused }
    }
}
