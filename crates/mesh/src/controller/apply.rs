//! Writes one target's plan, or a batch of it.
//!
//! Contract:
//! - Deletes, then updates that give routes up, then the other updates, then creates. What lets go of
//!   an address must have done so before another takes it: after one of the first two that did not
//!   succeed nothing further is written. One of the others that is refused holds up nothing.
//! - Each write looks at the fence, has a deadline that ends with it, and is made over the version
//!   that was planned for. So the write of a leader that is one no more is either not made, or refused
//!   as a conflict; a peer that it still creates is seen by its successor like any other.
//! - What came of a write is told to the world before this ends.

use std::time::Duration;

use fleet::{Connection, Error};
use futures::{StreamExt, stream};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use objects::Fence;
use objects::kinds::MeshClusterRef;
use serde_json::json;
use stallproof::{Deadline, Snapshot, sentence};

use super::observe::bare;
use super::world::World;
use crate::peer::Peer;
use crate::plan::{Seen, TargetPlan, Update};

/// Writes under way in one target: an API server takes these without noticing, and they share the
/// cluster's places with whoever browses it.
const AT_ONCE: usize = 8;
/// Writes in one batch; then it is planned again.
pub(super) const BATCH: usize = 256;
const WRITE: Duration = Duration::from_secs(10);

pub(super) struct Batch {
    pub(super) cluster: MeshClusterRef,
    pub(super) connection: Connection,
    pub(super) fence: Fence,
    pub(super) world: Snapshot<World>,
    pub(super) plan: TargetPlan,
}

/// How it went; `Err` says why it is to be tried again later.
pub(super) struct Outcome {
    pub(super) written: usize,
    pub(super) result: Result<(), String>,
}

#[derive(Clone, Debug)]
enum Task {
    Delete(String),
    Update(Update),
    Create(Box<Peer>),
}

impl Batch {
    pub(super) async fn write(mut self) -> Outcome {
        let TargetPlan { deletes, updates, creates, .. } = std::mem::take(&mut self.plan);
        let (yielding, taking): (Vec<_>, Vec<_>) =
            updates.into_iter().partition(|update| update.yields);
        let stages: [(Vec<Task>, bool); 4] = [
            (deletes.into_iter().map(Task::Delete).collect(), true),
            (yielding.into_iter().map(Task::Update).collect(), true),
            (taking.into_iter().map(Task::Update).collect(), false),
            (creates.into_iter().map(Box::new).map(Task::Create).collect(), false),
        ];
        let (mut left, mut written) = (BATCH, 0);
        let mut failed: Option<String> = None;
        for (mut tasks, must_succeed) in stages {
            tasks.truncate(left);
            left -= tasks.len();
            let writes = tasks.into_iter().map(|task| self.one(task));
            let mut writes = stream::iter(writes).buffer_unordered(AT_ONCE);
            while let Some(result) = writes.next().await {
                match result {
                    Ok(()) => written += 1,
                    Err(Failed { why, is_of_the_cluster }) => {
                        failed.get_or_insert(why);
                        if must_succeed || is_of_the_cluster {
                            // What is under way is dropped, not waited for.
                            return Outcome { written, result: failed.map_or(Ok(()), Err) };
                        }
                    }
                }
            }
        }
        Outcome { written, result: failed.map_or(Ok(()), Err) }
    }

    async fn one(&self, task: Task) -> Result<(), Failed> {
        let remaining = self.fence.remaining();
        if remaining.is_zero() {
            let why = "leadership was lost".to_owned();
            return Err(Failed { why, is_of_the_cluster: true });
        }
        let deadline = Deadline::after(WRITE.min(remaining));
        let name = match &task {
            Task::Delete(name) => name.clone(),
            Task::Update(update) => update.name.clone(),
            Task::Create(peer) => peer.name_any(),
        };
        let result = match task {
            Task::Delete(name) => self.delete(&name, deadline).await,
            Task::Update(update) => self.update(update, deadline).await,
            Task::Create(peer) => self.create(*peer, deadline).await,
        };
        match result {
            Ok(()) => Ok(()),
            // It is not what was planned for; what it is now, the next plan is made of.
            Err(Error::Refused { status, .. }) if matches!(status.code, 404 | 409) => {
                self.look(&name, deadline).await.map_err(|error| Failed::of(&name, &error))
            }
            Err(error) => Err(Failed::of(&name, &error)),
        }
    }

    async fn create(&self, peer: Peer, deadline: Deadline) -> Result<(), Error> {
        let made = self.connection.call("creating a peer", deadline, |client| async move {
            Api::<Peer>::all(client).create(&PostParams::default(), &peer).await
        });
        self.put(made.await?);
        Ok(())
    }

    async fn update(&self, update: Update, deadline: Deadline) -> Result<(), Error> {
        let Update { name, version, mut patch, .. } = update;
        patch["metadata"]["resourceVersion"] = json!(version);
        let made = self.connection.call("updating a peer", deadline, |client| async move {
            let patch = Patch::Merge(patch);
            Api::<Peer>::all(client).patch(&name, &PatchParams::default(), &patch).await
        });
        self.put(made.await?);
        Ok(())
    }

    async fn delete(&self, name: &str, deadline: Deadline) -> Result<(), Error> {
        let Some(version) = self.version(name) else { return Ok(()) };
        let resource_version = Some(version.clone());
        let params = DeleteParams::default()
            .preconditions(Preconditions { resource_version, ..Preconditions::default() });
        let deleted = self.connection.call("deleting a peer", deadline, |client| async move {
            Api::<Peer>::all(client).delete(name, &params).await
        });
        // With finalizers it stays for a while, and is still there to be seen.
        if deleted.await?.is_right() {
            self.tell(|world| world.edit(&self.cluster, |seen| seen.remove(name, Some(&version))));
        }
        Ok(())
    }

    /// Reads a peer that was not as it was thought to be.
    async fn look(&self, name: &str, deadline: Deadline) -> Result<(), Error> {
        let found = self.connection.call("reading a peer", deadline, |client| async move {
            Api::<Peer>::all(client).get_opt(name).await
        });
        match found.await? {
            Some(peer) => self.put(peer),
            None => {
                // Either it is gone, or all of its kind are; who watches is told to ask.
                self.connection.discovery().reset_all();
                self.tell(|world| world.edit(&self.cluster, |seen| seen.remove(name, None)));
            }
        }
        Ok(())
    }

    fn version(&self, name: &str) -> Option<String> {
        let world = self.world.load();
        match &world.clusters.get(&self.cluster)?.sight.peers {
            Seen::Known(peers) => peers.get(name)?.resource_version(),
            Seen::Waiting(_) | Seen::Away(_) => None,
        }
    }

    fn put(&self, peer: Peer) {
        self.tell(|world| world.edit(&self.cluster, |seen| seen.put(bare(peer))));
    }

    fn tell(&self, edit: impl FnOnce(&mut World) -> bool) {
        self.world.update(edit);
    }
}

struct Failed {
    why: String,
    /// The others would fail as well.
    is_of_the_cluster: bool,
}

impl Failed {
    fn of(name: &str, error: &Error) -> Self {
        let refused =
            matches!(error, Error::Refused { status, .. } if (400..500).contains(&status.code));
        Self { why: format!("peer {name}: {}", sentence(error)), is_of_the_cluster: !refused }
    }
}
