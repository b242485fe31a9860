//! Keeps the mark by which the plugin knows that this agent was well a moment ago ([`cni::ready`]).

use std::path::PathBuf;
use std::time::Duration;

use stallproof::{Deadline, Snapshot, Tasks};
use tracing::warn;

use crate::attach::Health;

/// How many times the mark is renewed within its grace: one that was killed has that much less.
const RENEWALS: u32 = 12;
/// How long the file system of the socket may take.
const WITHIN: Duration = Duration::from_secs(5);

/// Runs until `tasks` stops. While the agent reconciles, the mark of the last one is left as it is;
/// one that is limited has none, since its node is to be seen as it is.
pub(super) async fn keep(socket: PathBuf, grace: Duration, health: Snapshot<Health>, tasks: Tasks) {
    let stop = tasks.stopping();
    let mut changes = health.subscribe();
    let every = (grace / RENEWALS).max(Duration::from_millis(50));
    let mut failing = false;
    loop {
        let stopping = stop.is_stopped();
        let marked = match &*health.load() {
            Health::Well if !grace.is_zero() => Some(true),
            Health::Reconciling(_) if !grace.is_zero() => None,
            _ => Some(false),
        };
        if let Some(well) = marked {
            let socket = socket.clone();
            let write = move || match well {
                true => cni::ready::mark(&socket, grace),
                false => cni::ready::unmark(&socket),
            };
            let failed = match run(&tasks, write).await {
                Some(Ok(())) => None,
                Some(Err(error)) => Some(error.to_string()),
                None => Some(format!("not done within {} s", WITHIN.as_secs())),
            };
            // Said once, and again when it had succeeded in between.
            if let Some(error) = failed.as_ref().filter(|_| !failing) {
                warn!(
                    error,
                    "the mark beside the socket cannot be kept: while this agent is replaced its node will not be ready"
                );
            }
            failing = failed.is_some();
        }
        if stopping {
            return;
        }
        let woken = async {
            tokio::select! {
                () = tokio::time::sleep(every) => {}
                _ = changes.changed() => {}
            }
        };
        // Once more at the end, whatever was done last: the grace begins when the agent leaves.
        stop.bound(woken).await;
    }
}

async fn run<T: Send + 'static>(
    tasks: &Tasks,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let deadline = Deadline::after(WITHIN);
    let running = tasks.spawn_blocking("cni-ready", deadline, work).await.ok()?;
    deadline.bound(running).await.ok()?.ok()
}

#[cfg(test)]
mod tests;
