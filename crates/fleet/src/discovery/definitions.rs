//! Watches a cluster's custom resource definitions, and resets its discovery when one is created,
//! changed or deleted, so that a kind that is installed later is found at once.
//!
//! Where definitions cannot be watched, a "no" still ends by its age.

use std::time::Duration;

use futures::StreamExt;
use stallproof::backoff::Curve;
use stallproof::tasks::TaskHandle;
use stallproof::{Backoff, Deadline, Tasks};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::debug;

use crate::connection::Connection;
use crate::error::Error;
use crate::resources::{Change, ListQuery, watch_metadata};

const OPEN: Duration = Duration::from_secs(30);
/// The right to list definitions may be granted later.
const RETRY: Curve = Curve { first: Duration::from_secs(2), most: Duration::from_secs(5 * 60) };
/// A server reports a definition as established a moment before it serves it.
const SETTLED: Duration = Duration::from_secs(2);

/// Watches until `tasks` stops. `connect` returns the cluster's current connection.
pub fn watch_definitions(
    connect: impl Fn() -> Result<Connection, Error> + Clone + Send + Sync + 'static,
    tasks: &Tasks,
) -> TaskHandle<()> {
    let stop = tasks.stopping();
    tasks.spawn("watch definitions", async move {
        let _ = stop.bound(watch_forever(connect)).await;
    })
}

async fn watch_forever(connect: impl Fn() -> Result<Connection, Error> + Clone + Send + 'static) {
    let mut backoff = Backoff::new(RETRY);
    loop {
        let query = ListQuery::of("customresourcedefinitions.apiextensions.k8s.io");
        match watch_metadata(connect.clone(), query, Deadline::after(OPEN)).await {
            Ok(changes) => follow(&connect, changes).await,
            Err(error) => {
                debug!(error = &error as &dyn std::error::Error, "cannot watch definitions");
            }
        }
        sleep(backoff.failed().wait).await;
    }
}

async fn follow<L, T>(
    connect: &impl Fn() -> Result<Connection, Error>,
    changes: impl futures::Stream<Item = Change<L, T>>,
) {
    let mut changes = std::pin::pin!(changes);
    let mut settled = None;
    loop {
        tokio::select! {
            change = changes.next() => match change {
                None => return,
                Some(Change::Interrupted { why }) => debug!(why, "watch of definitions interrupted"),
                Some(Change::Resumed) => {}
                Some(Change::Listed(_) | Change::Applied(_) | Change::Deleted(_)) => {
                    reset(connect);
                    settled = Some(Instant::now() + SETTLED);
                }
            },
            () = sleep_until(settled.unwrap_or_else(Instant::now)), if settled.is_some() => {
                reset(connect);
                settled = None;
            }
        }
    }
}

fn reset(connect: &impl Fn() -> Result<Connection, Error>) {
    // A cluster that is gone has no cache to reset.
    if let Ok(connection) = connect() {
        connection.discovery().reset_all();
    }
}
