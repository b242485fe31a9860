//! Takes back the blocks of nodes that are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use flow::{Deadline, Snapshot, Stop};
use k8s_openapi::api::core::v1::Node;
use objects::kinds::AddressBlock;
use objects::{Error, Event, Expected, Id, Objects, Version, Within};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::claims::{Blocks, name_of};

/// For one call of the store.
const CALL: Duration = Duration::from_secs(5);
/// How often it is looked at who is gone: the grace is minutes.
const LOOK: Duration = Duration::from_secs(10);

/// Since when nodes with blocks have no `Node`.
#[derive(Debug, Default)]
struct Absent(BTreeMap<String, Instant>);

pub(super) async fn run(objects: Objects, blocks: Snapshot<Blocks>, grace: Duration, stop: Stop) {
    let mut events = objects.watch::<Node>(Within::default());
    // None: the server has not told yet.
    let mut nodes = None::<BTreeSet<String>>;
    let mut absent = Absent::default();
    let look = LOOK.min(grace / 2).max(Duration::from_millis(100));
    loop {
        tokio::select! {
            () = stop.stopped() => return,
            event = events.next() => match event {
                Some(event) => keep(&mut nodes, event),
                None => return,
            },
            () = sleep(look) => {}
        }
        let Some(nodes) = &nodes else { continue };
        let gone = absent.look(nodes, &blocks.load(), grace, Instant::now());
        for block in gone {
            if stop.bound(take_back(&objects, &block)).await.is_none() {
                return;
            }
        }
    }
}

fn keep(nodes: &mut Option<BTreeSet<String>>, event: Event<Node>) {
    match event {
        Event::Restarted(all) => *nodes = Some(all.iter().map(name_of).collect()),
        Event::Applied(node) => {
            nodes.get_or_insert_default().insert(name_of(&node));
        }
        Event::Deleted(node) => {
            nodes.get_or_insert_default().remove(&name_of(&node));
        }
    }
}

impl Absent {
    /// The blocks of nodes that have been absent for the grace.
    fn look(
        &mut self,
        nodes: &BTreeSet<String>,
        blocks: &Blocks,
        grace: Duration,
        now: Instant,
    ) -> Vec<Arc<AddressBlock>> {
        let all = blocks.by_name.values();
        let without = |block: &&Arc<AddressBlock>| !nodes.contains(&block.spec.node);
        let orphans: Vec<_> = all.filter(without).cloned().collect();
        // A server that has forgotten every node is not to be believed.
        if !blocks.synced || nodes.is_empty() {
            self.0.clear();
            return Vec::new();
        }
        self.0.retain(|node, _| orphans.iter().any(|block| block.spec.node == *node));
        for block in &orphans {
            self.0.entry(block.spec.node.clone()).or_insert(now);
        }
        let gone = |block: &Arc<AddressBlock>| {
            self.0.get(&block.spec.node).is_some_and(|since| now.duration_since(*since) >= grace)
        };
        orphans.into_iter().filter(|block| gone(block)).collect()
    }
}

async fn take_back(objects: &Objects, block: &AddressBlock) {
    let deadline = Deadline::after(CALL);
    let (name, node) = (name_of(block), &block.spec.node);
    // A watch may be late: the server has the last word.
    match objects.get::<Node>(&Id::cluster(node), deadline).await {
        Ok(None) => {}
        Ok(Some(_)) => return,
        Err(error) => return warn!(node, %error, "cannot ask whether a node is gone"),
    }
    let version = Version(block.metadata.resource_version.clone().unwrap_or_default());
    let deleted =
        objects.delete::<AddressBlock>(&Id::of(block), Expected::Version(version), deadline).await;
    match deleted {
        Ok(_) => info!(block = name, node, "took back a block: its node is gone"),
        // Somebody was faster, or it has changed: it is looked at again.
        Err(Error::NotFound { .. } | Error::Conflict { .. }) => {}
        Err(error) => warn!(block = name, node, %error, "cannot take back a block"),
    }
}

#[cfg(test)]
mod tests;
