//! DEL: the record, at once; the interfaces behind it, group by group; then the address.
//!
//! The kernel waits some twenty milliseconds for each link that it deletes, and as long for a group of
//! them. So a DEL is answered when the journal says that the attachment is no more. Its addresses stay
//! its own until its interface is gone, whatever happens to the agent meanwhile.
//!
//! To delete links takes the processors' time and the lock that every ADD needs. So links wait a moment for
//! others to go with them ([`Gathering`]): in a burst of DELs they go when it is over.

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

/// How long links wait for others: until none has come for so long,
const PAUSE: Duration = Duration::from_millis(20);
/// and no longer than this after the first.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// How many interfaces are removed together: a drained node's. The kernel is locked for others meanwhile, some
/// microseconds for each and the wait that they share.
const TOGETHER: usize = 128;
/// How many groups are removed at the same time: one that hangs leaves three.
const AT_ONCE: usize = 4;
/// How long a group waits for a thread.
const THREAD: Duration = Duration::from_secs(20);
/// When to try again what failed.
const AGAIN: Duration = Duration::from_secs(1);

/// Links that wait for others to go with them.
#[derive(Clone, Copy, Debug, Default)]
struct Gathering {
    links: usize,
    /// When the first and the last of them came.
    between: Option<(Instant, Instant)>,
    /// Somebody waits for one of them to be gone.
    hurried: bool,
}

impl Gathering {
    fn hurry(&mut self) {
        self.hurried = true;
    }

    /// Says when `links` are to go, of which some may have come just now; none if there are none.
    fn due(&mut self, links: usize, now: Instant) -> Option<Instant> {
        if links == 0 {
            *self = Self::default();
            return None;
        }
        let (first, last) = self.between.unwrap_or((now, now));
        let last = if links == self.links { last } else { now };
        (self.links, self.between) = (links, Some((first, last)));
        match self.hurried || links >= TOGETHER {
            true => Some(now),
            false => Some((last + PAUSE).min(first + LONGEST_PAUSE)),
        }
    }
}

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
        let mut gathering = Gathering::default();
        loop {
            let view = self.0.addresses.view();
            let waiting = view.leaving().filter(|it| !at_work.contains(&it.key));
            let group: Vec<_> = waiting.take(TOGETHER).cloned().collect();
            drop(view);
            let now = Instant::now();
            let due = gathering.due(group.len(), now).filter(|_| groups.len() < AT_ONCE);
            if due.is_some_and(|due| due <= now) {
                gathering = Gathering::default();
                at_work.extend(group.iter().map(|it| it.key.clone()));
                groups.push(self.remove_group(group));
                continue;
            }
            let pause = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            let next = async {
                tokio::select! {
                    Some(done) = groups.next() => Some(done),
                    _ = changes.changed() => None,
                    () = pause => None,
                    () = self.0.hurry.notified() => {
                        gathering.hurry();
                        None
                    }
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
        let interface = &record.host_interface;
        self.work("tear_down", call, interface, tear_down, |_, _| ()).await?;
        call.op.step("release");
        self.0.addresses.release(&record.key, call.deadline).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
