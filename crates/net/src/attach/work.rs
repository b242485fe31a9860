//! Work in the kernel, on a thread that may never come back.

use std::sync::Arc;

use cni::spec::{Code, Error};
use stallproof::tasks::BLOCKING;
use stallproof::{Deadline, Op};
use tracing::warn;

use super::{Attach, Failed, Inner, Kernel, LOOK, Steps};
use crate::Key;
use crate::metrics::Metrics;

impl<K: Kernel> Attach<K> {
    /// Runs `work` on a thread until the deadline or until one step takes too long; then gives up on
    /// it, and lets the thread `undo` what it did when it comes back.
    pub(super) async fn work<T: Send + 'static>(
        &self,
        name: &'static str,
        key: &Key,
        op: &Arc<Op>,
        deadline: Deadline,
        work: impl FnOnce(&K, &Steps) -> Result<T, Failed> + Send + 'static,
        undo: impl FnOnce(&K, &Steps) + Send + 'static,
    ) -> Result<Result<T, Failed>, Error> {
        let inner = &self.0;
        let hanging = inner.metrics.hanging.get();
        if hanging >= BLOCKING as i64 {
            let msg = format!("{hanging} set-ups hang in the kernel, and no thread is left");
            return Err(Error::new(Code::TryAgainLater, msg).details(LOOK));
        }
        op.step("thread");
        let steps = Arc::new(Steps::begin(Arc::clone(op), inner.metrics.steps.clone()));
        let working = Working::new(Arc::clone(inner), key.clone(), Arc::clone(&steps));
        let kernel = Arc::clone(&inner.kernel);
        let thread = move || {
            let steps = &working.steps;
            let done = work(&kernel, steps);
            if steps.end().is_err() {
                let _ = steps.step("undo");
                undo(&kernel, steps);
            }
            done
        };
        let started = inner.threads.spawn_blocking(name, deadline, thread).await;
        let Ok(mut running) = started else {
            let msg = format!("no thread was free in time; {hanging} hang in the kernel");
            return Err(Error::new(Code::TryAgainLater, msg).details(LOOK));
        };
        let given_up = Abandon { steps: &steps, metrics: &inner.metrics, key };
        tokio::select! {
            biased;
            done = &mut running => {
                given_up.not();
                return ended(done);
            }
            () = steps.late(deadline, inner.limits.step) => {}
        }
        match given_up.now() {
            Some(step) => Err(hangs(key, step)),
            // It ended in the same instant; its answer is on the way.
            None => ended(running.await),
        }
    }
}

/// Held by the thread: its key is busy until it drops this.
struct Working<K> {
    inner: Arc<Inner<K>>,
    key: Key,
    steps: Arc<Steps>,
}

impl<K> Working<K> {
    fn new(inner: Arc<Inner<K>>, key: Key, steps: Arc<Steps>) -> Self {
        inner.working.lock().insert(key.clone(), Arc::clone(&steps));
        Self { inner, key, steps }
    }
}

impl<K> Drop for Working<K> {
    fn drop(&mut self) {
        self.inner.working.lock().remove(&self.key);
        if self.steps.is_abandoned() {
            self.inner.metrics.hanging.dec();
            let (step, container) = (self.steps.now().0, &self.key.container);
            warn!(%container, step, "kernel work that was given up on has come back");
        }
    }
}

/// Held by who waits: gives up on the work when it is dropped, as a future may be at any await.
struct Abandon<'a> {
    steps: &'a Steps,
    metrics: &'a Metrics,
    key: &'a Key,
}

impl Abandon<'_> {
    fn not(self) {
        std::mem::forget(self);
    }

    fn now(self) -> Option<&'static str> {
        let step = self.give_up();
        std::mem::forget(self);
        step
    }

    fn give_up(&self) -> Option<&'static str> {
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

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        self.give_up();
    }
}

fn ended<T>(
    done: Result<Result<T, Failed>, stallproof::tasks::TaskError>,
) -> Result<Result<T, Failed>, Error> {
    done.map_err(|error| Error::new(Code::Wiring, error.to_string()).details("see the agent's log"))
}

pub(super) fn hangs(key: &Key, step: &str) -> Error {
    let Key { container, ifname } = key;
    let msg = format!("{ifname} of container {container} hangs in the kernel, in step {step}");
    Error::new(Code::TryAgainLater, msg).details(
        "it was given up on, and is undone when the kernel lets go of it; until then it is refused",
    )
}
