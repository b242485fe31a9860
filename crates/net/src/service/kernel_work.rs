//! Kernel work on a thread that may never come back.

use std::sync::Arc;

use stallproof::tasks::BLOCKING;
use tracing::warn;

use super::{Call, CniService, Inner, RequestError, StepTracker, UnderWay};
use crate::AttachmentKey;
use crate::datapath::Datapath;
use crate::metrics::Metrics;
use crate::wiring::WiringError;

impl<D: Datapath> CniService<D> {
    /// Runs `work`, on the attachment whose interface has this name, on a thread until the deadline or until one step takes too long; then gives up on
    /// it, and lets the thread `undo` what it did when it comes back.
    pub(super) async fn work<T: Send + 'static>(
        &self,
        name: &'static str,
        call: &Call,
        host_interface: &str,
        work: impl FnOnce(&D, &StepTracker) -> Result<T, WiringError> + Send + 'static,
        undo: impl FnOnce(&D, &StepTracker) + Send + 'static,
    ) -> Result<T, RequestError> {
        let inner = &self.0;
        let no_thread = || RequestError::NoThread { stuck: inner.metrics.hanging.get() };
        if inner.metrics.hanging.get() >= BLOCKING as i64 {
            return Err(no_thread());
        }
        call.op.step("thread");
        let steps = Arc::new(StepTracker::begin(Arc::clone(&call.op), inner.metrics.steps.clone()));
        let under_way =
            UnderWay { steps: Arc::clone(&steps), host_interface: host_interface.to_owned() };
        let working = Working::new(Arc::clone(inner), call.key.clone(), under_way);
        let datapath = Arc::clone(&inner.datapath);
        let thread = move || {
            let steps = &working.steps;
            let done = work(&datapath, steps);
            if steps.end().is_err() {
                let _ = steps.step("undo");
                undo(&datapath, steps);
            }
            done
        };
        let started = inner.threads.spawn_blocking(name, call.deadline, thread).await;
        let mut running = started.map_err(|_| no_thread())?;
        let waiter = Waiter { steps: &steps, metrics: &inner.metrics, key: &call.key };
        let done = tokio::select! {
            biased;
            done = &mut running => {
                std::mem::forget(waiter);
                done
            }
            () = steps.late(call.deadline, inner.limits.step) => {
                let abandoned = waiter.abandon();
                std::mem::forget(waiter);
                if let Some(step) = abandoned {
                    return Err(RequestError::Stuck { key: call.key.clone(), step });
                }
                // It ended in the same instant; its result is on the way.
                running.await
            }
        };
        Ok(done.map_err(RequestError::Thread)??)
    }
}

/// Held by the thread: its key is busy until it drops this.
struct Working<D> {
    inner: Arc<Inner<D>>,
    key: AttachmentKey,
    steps: Arc<StepTracker>,
}

impl<D> Working<D> {
    fn new(inner: Arc<Inner<D>>, key: AttachmentKey, work: UnderWay) -> Self {
        let steps = Arc::clone(&work.steps);
        inner.working.lock().insert(key.clone(), work);
        Self { inner, key, steps }
    }
}

impl<D> Drop for Working<D> {
    fn drop(&mut self) {
        self.inner.working.lock().remove(&self.key);
        if self.steps.is_abandoned() {
            self.inner.metrics.hanging.dec();
            let (step, container) = (self.steps.now().0, &self.key.container);
            warn!(%container, step, "kernel work that was given up on has come back");
        }
    }
}

/// Held by the request: gives up on the work when it is dropped, as a future may be at any await.
struct Waiter<'a> {
    steps: &'a StepTracker,
    metrics: &'a Metrics,
    key: &'a AttachmentKey,
}

impl Waiter<'_> {
    /// Returns the step in which the work is, unless it has ended just now.
    fn abandon(&self) -> Option<&'static str> {
        // Counted first: the thread may come back and uncount it at once.
        self.metrics.hanging.inc();
        let step = self.steps.abandon();
        match step {
            Some(step) => {
                warn!(container = %self.key.container, step, "gave up on kernel work that hangs");
            }
            None => {
                self.metrics.hanging.dec();
            }
        }
        step
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.abandon();
    }
}
