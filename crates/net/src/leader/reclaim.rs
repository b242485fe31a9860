//! Takes back the blocks of nodes that are gone.
//!
//! Since when a node is missing is noted on its blocks: a leader that follows another goes on counting
//! where that one was. The note goes when the node is back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use objects::kinds::AddressBlock;
use objects::{Error, Event, Expected, Id, Objects, Version, Within};
use stallproof::{Deadline, Snapshot, Stop, sentence};
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use crate::claims::{Blocks, name_of};

/// For one call of the store.
const CALL: Duration = Duration::from_secs(5);
/// How often it is looked at who is gone: the grace is minutes.
const LOOK: Duration = Duration::from_secs(10);

/// On a block: since when the server has had no `Node` for it.
const MISSING_SINCE: &str = "fairlead.dev/node-missing-since";

/// Nodes with blocks that have no `Node`.
#[derive(Debug, Default)]
struct Absent {
    nodes: BTreeMap<String, Since>,
    /// Nodes that were seen while a note still said that they were missing: a note from before that
    /// time is not believed.
    returned: BTreeMap<String, Timestamp>,
}

/// Since when a node is missing. What passes is counted by a clock that cannot be set; only what
/// passed under an earlier leader is told by the time of day.
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

/// What is to be done about blocks.
#[derive(Debug, Default)]
struct Look {
    note: Vec<(Arc<AddressBlock>, Timestamp)>,
    forget: Vec<Arc<AddressBlock>>,
    take_back: Vec<Arc<AddressBlock>>,
}

pub(super) async fn run(objects: Objects, blocks: Snapshot<Blocks>, grace: Duration, stop: Stop) {
    let mut events = objects.watch::<Node>(Within::default());
    // None: the server has not told yet.
    let mut nodes = None::<BTreeSet<String>>;
    let mut absent = Absent::default();
    // It is logged once that notes cannot be written.
    let mut unnoted = false;
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
        let found = absent.look(nodes, &blocks.load(), grace, Instant::now(), Timestamp::now());
        let done = carry_out(&objects, found, &mut unnoted);
        if stop.bound(done).await.is_none() {
            return;
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

/// The time that a block's note says.
fn note_of(block: &AddressBlock) -> Option<&str> {
    block.metadata.annotations.as_ref()?.get(MISSING_SINCE).map(String::as_str)
}

impl Absent {
    fn look(
        &mut self,
        nodes: &BTreeSet<String>,
        blocks: &Blocks,
        grace: Duration,
        now: Instant,
        time: Timestamp,
    ) -> Look {
        let mut look = Look::default();
        if !blocks.synced {
            self.nodes.clear();
            return look;
        }
        // A server that has forgotten every node is not to be believed: nobody is missing.
        let is_missing = |node: &String| !nodes.is_empty() && !nodes.contains(node);
        let (missing, there): (Vec<_>, Vec<_>) =
            blocks.by_name.values().partition(|block| is_missing(&block.spec.node));
        for block in there.iter().filter(|block| note_of(block).is_some()) {
            self.returned.insert(block.spec.node.clone(), time);
            look.forget.push(Arc::clone(block));
        }
        self.nodes.retain(|node, _| missing.iter().any(|block| block.spec.node == *node));
        let holds = |node: &String| blocks.by_name.values().any(|block| block.spec.node == *node);
        self.returned.retain(|node, _| holds(node));

        // When an earlier leader saw that they were missing, as far as that is still true.
        let mut noted = BTreeMap::<&String, Timestamp>::new();
        for block in &missing {
            let node = &block.spec.node;
            let note = note_of(block).and_then(|note| note.parse::<Timestamp>().ok());
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
                look.take_back.push(Arc::clone(block));
            } else if note_of(block) != Some(&since.noted.to_string()) {
                look.note.push((Arc::clone(block), since.noted));
            }
        }
        look
    }
}

async fn carry_out(objects: &Objects, look: Look, unnoted: &mut bool) {
    let notes = look.note.into_iter().map(|(block, since)| (block, Some(since.to_string())));
    let forgotten = look.forget.into_iter().map(|block| (block, None));
    for (block, note) in notes.chain(forgotten) {
        let deadline = Deadline::after(CALL);
        match objects.annotate(&*block, MISSING_SINCE, note, deadline).await {
            Ok(_) => *unnoted = false,
            // It has changed: it is looked at again.
            Err(Error::NotFound { .. } | Error::Conflict { .. }) => {}
            Err(error) => {
                let (block, error) = (name_of(&*block), sentence(&error));
                let again = "cannot note on a block since when its node is missing; another leader \
                             would count anew";
                if *unnoted {
                    debug!(block, error, "{again}");
                } else {
                    warn!(block, error, "{again}");
                }
                *unnoted = true;
                // What cannot be noted on one cannot be noted on the others.
                break;
            }
        }
    }
    for block in look.take_back {
        take_back(objects, &block).await;
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
