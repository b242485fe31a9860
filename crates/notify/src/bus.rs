//! `EventBus`: where events enter.
//!
//! Contract: [`EventBus::emit`] never waits. While the router is busy at most [`BOUND`] events wait for it; one
//! more is dropped, counted by its kind, and named in the log once a minute at most. Handles are cheap to clone.

use std::fmt;
use std::sync::Arc;

use objects::kinds::EventKind;
use stallproof::Rates;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tracing::warn;

use crate::event::Event;
use crate::metrics::Metrics;

/// About 4 MiB of events. The router decides some 100,000 a second; what waits here waits for the disk.
pub(crate) const BOUND: usize = 4096;

/// A handle for producers.
#[derive(Clone)]
pub struct EventBus {
    events: mpsc::Sender<Event>,
    metrics: Metrics,
    said: Arc<Rates<EventKind>>,
}

/// What became of an event that was emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emitted {
    Taken,
    /// The bus was full, or has ended.
    Dropped,
}

impl EventBus {
    pub(crate) fn new(metrics: Metrics) -> (Self, mpsc::Receiver<Event>) {
        let (events, waiting) = mpsc::channel(BOUND);
        let said = Arc::new(Rates::new(1, Duration::from_secs(60), 16));
        (Self { events, metrics, said }, waiting)
    }

    /// Hands an event over, or drops it.
    pub fn emit(&self, mut event: Event) -> Emitted {
        event.fit();
        let kind = event.kind;
        self.metrics.event(kind);
        if self.events.try_send(event).is_ok() {
            return Emitted::Taken;
        }
        self.metrics.dropped_on_bus(kind);
        if self.said.take(&kind, Instant::now()).is_ok() {
            warn!(%kind, "events come faster than response rules are decided; some are dropped");
        }
        Emitted::Dropped
    }
}

impl fmt::Debug for EventBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventBus({} free places)", self.events.capacity())
    }
}
