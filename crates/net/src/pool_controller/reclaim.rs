//! `BlockReclaimer`: takes back the blocks of nodes that are gone.
//!
//! An annotation on each block says since when its node is missing: a leader that follows another goes
//! on counting where that one was. The annotation goes when the node is back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use objects::kinds::AddressBlock;
use objects::{Attempt, Error, Expected, Id, Next, Objects, Pace, Reconciler, Version};
use stallproof::{Deadline, Snapshot};
use tokio::time::Instant;
use tracing::info;

use crate::claims::{Blocks, name_of};
use crate::trust::NodeAddresses;

/// How often nodes are looked for: the grace is minutes.
const LOOK: Duration = Duration::from_secs(10);

pub(super) fn pace(grace: Duration) -> Pace {
    let look = LOOK.min(grace / 2).max(Duration::from_millis(100));
    // An attempt may delete many blocks, each within the deadline of a call.
    Pace { attempt: Duration::from_secs(120), resync: look, settle: look, ..Pace::default() }
}

/// A block's annotation: since when the API server has had no `Node` for it.
const MISSING_SINCE: &str = "fairlead.dev/node-missing-since";

/// The nodes that have blocks and no `Node`.
#[derive(Debug, Default)]
struct MissingNodes {
    nodes: BTreeMap<String, Since>,
    /// Nodes that were seen while an annotation still said that they were missing: an annotation from
    /// before that time is not believed.
    returned: BTreeMap<String, Timestamp>,
}

/// Since when a node is missing. A clock that cannot be set counts the time; only what passed under an
/// earlier leader is known by the time of day.
#[derive(Clone, Copy, Debug)]
struct Since {
    noted: Timestamp,
    seen: Instant,
    before: Duration,
}

impl Since {
    fn elapsed(&self, now: Instant) -> Duration {
        now.duration_since(self.seen) + self.before
    }
}

/// What to do about blocks.
#[derive(Debug, Default)]
struct ReclaimPlan {
    /// Blocks to annotate, with the time; none takes the annotation away.
    annotate: Vec<(Arc<AddressBlock>, Option<Timestamp>)>,
    take_back: Vec<Arc<AddressBlock>>,
}

pub(super) struct BlockReclaimer {
    objects: Objects,
    blocks: Snapshot<Blocks>,
    nodes: Snapshot<NodeAddresses>,
    grace: Duration,
    missing: MissingNodes,
}

impl BlockReclaimer {
    pub(super) fn new(
        objects: Objects,
        blocks: Snapshot<Blocks>,
        nodes: Snapshot<NodeAddresses>,
        grace: Duration,
    ) -> Self {
        Self { objects, blocks, nodes, grace, missing: MissingNodes::default() }
    }
}

impl Reconciler for BlockReclaimer {
    type Error = Error;

    async fn reconcile(&mut self, attempt: &Attempt) -> Result<Next, Error> {
        let (nodes, blocks) = (self.nodes.load(), self.blocks.load());
        let plan = self.missing.look(&nodes, &blocks, self.grace, Instant::now(), Timestamp::now());
        let ReclaimPlan { annotate, take_back } = plan;
        let mut failed = None;
        for (block, since) in annotate {
            let since = since.map(|since| since.to_string());
            let noted =
                self.objects.annotate(&*block, MISSING_SINCE, since, attempt.deadline).await;
            if let Err(error) = unless_changed(noted.map(drop)) {
                // What cannot be noted on one block cannot be noted on the others.
                failed = Some(error);
                break;
            }
        }
        for block in take_back {
            if let Err(error) = self.take_back(&block, attempt.deadline).await {
                failed = Some(error);
            }
        }
        failed.map_or(Ok(Next::OnChange), Err)
    }
}

impl BlockReclaimer {
    async fn take_back(&self, block: &AddressBlock, deadline: Deadline) -> Result<(), Error> {
        let node = &block.spec.node;
        // A watch may be late: the API server has the last word.
        if self.objects.get::<Node>(&Id::cluster(node), deadline).await?.is_some() {
            return Ok(());
        }
        let version = Version(block.metadata.resource_version.clone().unwrap_or_default());
        let (id, expected) = (Id::of(block), Expected::Version(version));
        let deleted = self.objects.delete::<AddressBlock>(&id, expected, deadline).await;
        if deleted.is_ok() {
            info!(block = name_of(block), node, "took back a block: its node is gone");
        }
        unless_changed(deleted.map(drop))
    }
}

/// Ignores that a block has changed or is gone: the next attempt looks at it again.
fn unless_changed(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(Error::NotFound { .. } | Error::Conflict { .. }) => Ok(()),
        other => other,
    }
}

/// Returns the time that a block's annotation says.
fn noted_on(block: &AddressBlock) -> Option<&str> {
    block.metadata.annotations.as_ref()?.get(MISSING_SINCE).map(String::as_str)
}

impl MissingNodes {
    fn look(
        &mut self,
        nodes: &NodeAddresses,
        blocks: &Blocks,
        grace: Duration,
        now: Instant,
        time: Timestamp,
    ) -> ReclaimPlan {
        let mut plan = ReclaimPlan::default();
        if !nodes.synced {
            return plan;
        }
        if !blocks.synced {
            self.nodes.clear();
            return plan;
        }
        // A server that has forgotten every node is not to be believed: nobody is missing.
        let is_missing = |node: &String| !nodes.is_empty() && !nodes.contains_key(node);
        let (missing, there): (Vec<_>, Vec<_>) =
            blocks.values().partition(|block| is_missing(&block.spec.node));
        for block in there.iter().filter(|block| noted_on(block).is_some()) {
            self.returned.insert(block.spec.node.clone(), time);
            plan.annotate.push((Arc::clone(block), None));
        }
        self.nodes.retain(|node, _| missing.iter().any(|block| block.spec.node == *node));
        let holds = |node: &String| blocks.values().any(|block| block.spec.node == *node);
        self.returned.retain(|node, _| holds(node));

        // When an earlier leader saw that they were missing, as far as that is still true.
        let mut noted = BTreeMap::<&String, Timestamp>::new();
        for block in &missing {
            let node = &block.spec.node;
            let note = noted_on(block).and_then(|note| note.parse::<Timestamp>().ok());
            let note = note.filter(|note| self.returned.get(node).is_none_or(|last| note > last));
            if let Some(note) = note {
                noted.entry(node).and_modify(|first| *first = note.min(*first)).or_insert(note);
            }
        }
        for block in missing {
            let node = &block.spec.node;
            let since = *self.nodes.entry(node.clone()).or_insert_with(|| {
                // In whole seconds, as Kubernetes has its own times.
                let second = Timestamp::from_second(time.as_second()).unwrap_or(time);
                let noted = noted.get(node).map_or(second, |noted| *noted);
                // A note of the future is of another clock: nothing has passed.
                let before = Duration::try_from(time.duration_since(noted)).unwrap_or_default();
                Since { noted, seen: now, before }
            });
            if since.elapsed(now) >= grace {
                plan.take_back.push(Arc::clone(block));
            } else if noted_on(block) != Some(&since.noted.to_string()) {
                plan.annotate.push((Arc::clone(block), Some(since.noted)));
            }
        }
        plan
    }
}

#[cfg(test)]
mod tests;
