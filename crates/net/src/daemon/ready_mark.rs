//! Keeps the readiness mark, by which the plugin knows that this agent was healthy a moment ago
//! ([`cni::ready`]).

use std::path::PathBuf;
use std::time::Duration;

use stallproof::{Deadline, Snapshot, Tasks, sentence};
use tracing::warn;

use crate::node::kernel_call;
use crate::service::Health;

/// How many times the mark is renewed within its grace: a killed agent's mark lasts that much less.
const RENEWALS: u32 = 12;
/// How long the file system of the socket may take.
const WITHIN: Duration = Duration::from_secs(5);

/// Keeps the mark until `tasks` stops. While the agent reconciles, the mark of the last agent stays; an
/// agent with limited connectivity has no mark, so that its node does not count as ready.
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
            let deadline = Deadline::after(WITHIN);
            let failed = match kernel_call(&tasks, "cni-ready", deadline, write).await {
                Ok(written) => written.err().map(|error| error.to_string()),
                Err(error) => Some(sentence(&error)),
            };
            // ReportedDoubts once, and again when it had succeeded in between.
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
        // The mark is written once more at the end: the grace begins when the agent leaves.
        stop.bound(woken).await;
    }
}

#[cfg(test)]
mod tests;
