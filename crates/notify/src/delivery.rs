//! The delivery of one receiver: a task that sends what waits, in order.
//!
//! Contract: an event is tried until it is taken. Between attempts the wait doubles up to [`AGAIN`]'s end, and a
//! change of the receiver or of its Secret ends the wait. An event that the receiver refuses by itself, three
//! times, is dropped and counted, so that it does not hold up those behind it. When events were not accepted while
//! the queue was full, the receiver is told how many as soon as it takes events again.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use objects::kinds::{EventKind, EventLevel};
use parking_lot::Mutex;
use stallproof::backoff::Curve;
use stallproof::ledger::Outcome;
use stallproof::{Backoff, Deadline, Ledger, Snapshot, Stop};
use tracing::{info, warn};

use crate::event::Event;
use crate::metrics::Metrics;
use crate::outbox::{Outbox, OutboxError};
use crate::send::{ATTEMPT, DeliveryError, EventSender};
use crate::target::Target;

const AGAIN: Curve = Curve { first: Duration::from_secs(1), most: Duration::from_secs(60) };
/// Events that are read at once: some dozens of kilobytes.
const BATCH: usize = 64;
/// How often an event may be refused by itself.
const REFUSALS: u32 = 3;
/// For a read of the outbox.
const READ: Duration = Duration::from_secs(10);

/// The receiver as it can be sent to, or why it cannot.
pub(crate) type Prepared = Result<Arc<Target>, String>;

/// How a receiver fares. Its delivery writes it, everybody reads it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Condition {
    pub(crate) delivered: u64,
    pub(crate) last_delivery: Option<Timestamp>,
    /// The last failure; none while events are taken.
    pub(crate) failing: Option<Failing>,
}

#[derive(Clone, Debug)]
pub(crate) struct Failing {
    pub(crate) why: String,
    pub(crate) since: Timestamp,
    pub(crate) attempts: u32,
}

pub(crate) struct Delivery {
    pub(crate) name: Arc<str>,
    /// What its queue is called: another receiver of the same name has another.
    pub(crate) queue: Arc<str>,
    pub(crate) outbox: Outbox,
    pub(crate) target: Snapshot<Prepared>,
    pub(crate) condition: Arc<Mutex<Condition>>,
    pub(crate) ledger: Ledger,
    pub(crate) metrics: Metrics,
}

/// What became of one event.
enum Step {
    Done,
    Stopped,
}

impl Delivery {
    pub(crate) async fn run(self, stop: Stop) {
        let queue = self.outbox.queue(&self.queue);
        // Everything up to this number was taken in this life.
        let mut through = 0;
        let mut sending = Sending { sender: None, backoff: Backoff::new(AGAIN) };
        loop {
            let read = self.outbox.read(&self.queue, through, BATCH, Deadline::after(READ)).await;
            let batch = match read {
                Ok(batch) => batch,
                Err(OutboxError::Closed) => return,
                Err(error) => {
                    warn!(receiver = %self.name, %error, "the outbox cannot be read");
                    if stop.bound(tokio::time::sleep(AGAIN.first)).await.is_none() {
                        return;
                    }
                    continue;
                }
            };
            if batch.is_empty() {
                if stop.bound(queue.wake.notified()).await.is_none() {
                    return;
                }
                continue;
            }
            let before = through;
            for (number, event) in batch {
                if let Step::Stopped = self.deliver(&event, &mut sending, &stop).await {
                    if through > before {
                        self.outbox.took(&self.queue, through).await;
                    }
                    return;
                }
                through = number;
            }
            self.outbox.took(&self.queue, through).await;
            self.tell_missed(&queue).await;
        }
    }

    /// Sends one event until it is taken, refused for good, or the process stops.
    async fn deliver(&self, event: &Event, sending: &mut Sending, stop: &Stop) -> Step {
        let mut refusals = 0;
        let mut changes = self.target.subscribe();
        loop {
            let target = self.target.load();
            let wait = match &*target {
                Err(why) => {
                    sending.sender = None;
                    self.failed(why, sending.backoff.failures());
                    AGAIN.most
                }
                Ok(target) => {
                    let sent = self.attempt(event, target, sending, stop).await;
                    let Some(sent) = sent else { return Step::Stopped };
                    match sent {
                        Ok(()) => {
                            sending.backoff.succeeded();
                            self.took();
                            return Step::Done;
                        }
                        Err(DeliveryError::Refused(why)) => {
                            refusals += 1;
                            self.metrics.failed(&self.name);
                            if refusals >= REFUSALS {
                                self.metrics.dropped(&self.name, "refused", 1);
                                let id = &event.id;
                                warn!(receiver = %self.name, why, id, "an event was refused and is dropped");
                                return Step::Done;
                            }
                            AGAIN.first
                        }
                        Err(error) => {
                            let retry = sending.backoff.failed();
                            self.metrics.failed(&self.name);
                            self.failed(&error.to_string(), retry.attempt);
                            match error {
                                DeliveryError::Later { after, .. } => after.max(retry.wait),
                                _ => retry.wait,
                            }
                        }
                    }
                }
            };
            drop(target);
            tokio::select! {
                () = stop.stopped() => return Step::Stopped,
                _ = changes.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// None: the process stops.
    async fn attempt(
        &self,
        event: &Event,
        target: &Arc<Target>,
        sending: &mut Sending,
        stop: &Stop,
    ) -> Option<Result<(), DeliveryError>> {
        let op = self.ledger.begin("notify", self.name.to_string(), "");
        let sender = match &mut sending.sender {
            Some((known, sender)) if Arc::ptr_eq(known, target) => sender,
            other => {
                let sender = EventSender::new((**target).clone());
                &mut other.insert((Arc::clone(target), sender)).1
            }
        };
        let sent = stop.bound(op.in_span(sender.send(event, Deadline::after(ATTEMPT)))).await;
        match &sent {
            Some(Ok(())) => op.finish(Outcome::Done),
            Some(Err(_)) => op.finish(Outcome::Failed),
            None => op.finish(Outcome::Cancelled),
        }
        sent
    }

    fn took(&self) {
        self.metrics.delivered(&self.name, 1);
        let was = {
            let mut condition = self.condition.lock();
            condition.delivered += 1;
            condition.last_delivery = Some(Timestamp::now());
            condition.failing.take()
        };
        if let Some(Failing { since, attempts, .. }) = was {
            info!(receiver = %self.name, %since, attempts, "the receiver takes events again");
        }
    }

    fn failed(&self, why: &str, attempts: u32) {
        let is_new = {
            let mut condition = self.condition.lock();
            let before = condition.failing.take();
            let is_new = before.as_ref().is_none_or(|before| before.why != why);
            let since = before.map_or_else(Timestamp::now, |before| before.since);
            condition.failing = Some(Failing { why: why.to_owned(), since, attempts });
            is_new
        };
        if is_new {
            warn!(receiver = %self.name, why, "the receiver does not take events; they are kept and tried again");
        }
    }

    /// Tells a receiver that takes events again how many it was not told of.
    async fn tell_missed(&self, queue: &crate::outbox::Queue) {
        let missed = queue.take_missed();
        if missed == 0 {
            return;
        }
        let message =
            format!("{missed} notifications for {} were not kept: its queue was full", self.name);
        let mut event = Event::new(EventKind::Receiver, "dropped", EventLevel::Error, message)
            .with("subject", &*self.name);
        event.count = missed;
        let put =
            self.outbox.put(vec![Arc::clone(&self.queue)], &event, Deadline::after(READ)).await;
        if put.is_err() || put.is_ok_and(|accepted| !accepted.refused.is_empty()) {
            queue.missed_again(missed);
        }
    }
}

struct Sending {
    sender: Option<(Arc<Target>, EventSender)>,
    backoff: Backoff,
}
