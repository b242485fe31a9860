//! DEL: the record, at once; the interfaces behind it, group by group; then the address.
//!
//! The kernel waits some twenty milliseconds for each link that it deletes, and as long for a group of
//! them. So a DEL is answered when the journal says that the attachment is no more. Its addresses stay
//! its own until its interface is gone, whatever happens to the agent meanwhile.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use stallproof::ledger::Outcome;
use stallproof::{Deadline, Stop, sentence};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{Call, CniService, RequestError, StepTracker};
use crate::datapath::Datapath;
use crate::wiring::step;
use crate::{Attachment, AttachmentKey};

/// How many interfaces are removed together. The kernel is locked for others meanwhile: a microsecond for
/// each, and the wait that they share.
const TOGETHER: usize = 64;
/// How many groups are removed at the same time: one that hangs leaves three.
const AT_ONCE: usize = 4;
/// How long a group waits for a thread.
const THREAD: Duration = Duration::from_secs(20);
/// When to try again what failed.
const AGAIN: Duration = Duration::from_secs(1);

impl<D: Datapath> CniService<D> {
    pub(super) async fn del(
        &self,
        key: AttachmentKey,
        deadline: Deadline,
    ) -> Result<(), RequestError> {
        let record = || self.0.addresses.view().attachment(&key).cloned();
        let pod = record().and_then(|record| record.pod.clone());
        let call = self.begin("cni_del", key.clone(), pod.as_ref(), deadline);
        let job = async {
            // Read again in the key's turn: an ADD before this DEL may have made the record.
            let Some(record) = record() else { return Ok(()) };
            call.op.step("detach");
            self.0.addresses.detach(&record.key, call.deadline).await?;
            info!(container = %key.container, "detached");
            Ok(())
        };
        let result = self.turn(&call, job).await;
        call.finish(&result);
        result
    }

    /// Removes the interfaces of attachments that were deleted, and releases their addresses, until `stop`.
    /// What is left then the next agent finds in the journal.
    pub async fn remove_links(self, stop: Stop) {
        let mut changes = self.0.addresses.changes();
        let mut at_work = HashSet::new();
        let mut groups = FuturesUnordered::new();
        loop {
            let view = self.0.addresses.view();
            let waiting = view.leaving().filter(|it| !at_work.contains(&it.key));
            let group: Vec<_> = waiting.take(TOGETHER).cloned().collect();
            drop(view);
            if !group.is_empty() && groups.len() < AT_ONCE {
                at_work.extend(group.iter().map(|it| it.key.clone()));
                groups.push(self.remove_group(group));
                continue;
            }
            let next = async {
                tokio::select! {
                    Some(done) = groups.next() => Some(done),
                    _ = changes.changed() => None,
                }
            };
            match stop.bound(next).await {
                None => return,
                Some(Some(done)) => {
                    for key in done {
                        at_work.remove(&key);
                    }
                }
                Some(None) => {}
            }
        }
    }

    /// Removes the interfaces of a group; returns its keys when it may be looked at again.
    async fn remove_group(&self, group: Vec<Arc<Attachment>>) -> Vec<AttachmentKey> {
        let keys: Vec<_> = group.iter().map(|it| it.key.clone()).collect();
        let shown = match &keys[..] {
            [key] => key.to_string(),
            keys => format!("{} interfaces, {} first", keys.len(), keys[0]),
        };
        let op = self.0.ledger.begin("cni_remove_links", shown, "");
        op.step(step::DELETE);
        let (datapath, began) = (Arc::clone(&self.0.datapath), Instant::now());
        let remove = move || datapath.tear_down_all(&group);
        let deadline = Deadline::after(THREAD);
        // The kernel cannot be told to stop: the wait for it ends when it does, and is named meanwhile.
        let left = match self.0.threads.spawn_blocking("remove_links", deadline, remove).await {
            Ok(running) => running.await.map_err(|error| error.to_string()),
            Err(_) => Err("there is no thread for it".to_owned()),
        };
        self.0.metrics.step(step::DELETE, began.elapsed());
        let left: HashSet<AttachmentKey> = match left {
            Ok(left) => left
                .into_iter()
                .map(|(attachment, error)| {
                    let (container, why) = (&attachment.key.container, sentence(&error));
                    warn!(%container, why, "an interface cannot be removed yet");
                    attachment.key.clone()
                })
                .collect(),
            Err(why) => {
                warn!(why, "interfaces cannot be removed yet");
                keys.iter().cloned().collect()
            }
        };
        let gone = keys.iter().filter(|key| !left.contains(*key));
        futures::future::join_all(gone.map(|key| self.0.give_back(key))).await;
        if !left.is_empty() {
            tokio::time::sleep(AGAIN).await;
        }
        op.finish(if left.is_empty() { Outcome::Done } else { Outcome::Failed });
        keys
    }

    /// Clears the kernel first: an address is free when nothing carries it any more.
    pub(super) async fn tear_down(
        &self,
        record: &Arc<Attachment>,
        call: &Call,
    ) -> Result<(), RequestError> {
        let tear_down = {
            let record = Arc::clone(record);
            move |datapath: &D, steps: &StepTracker| datapath.tear_down(&record, steps)
        };
        // The record stays, so the next DEL finds what is left.
        self.work("tear_down", call, tear_down, |_, _| ()).await?;
        call.op.step("release");
        self.0.addresses.release(&record.key, call.deadline).await?;
        Ok(())
    }
}
