//! What the agent sees of its node's connections, and whom it tells.
//!
//! ```text
//! kernel ──► watcher (a thread; owns the Sensor) ══ reports, one at a time ══► link (a task) ──► controller
//!                                               ◄═ joined, counted, rules ════╝
//! ```
//!
//! The two wait for each other nowhere: a controller that does not answer leaves the watcher to add
//! up, and a kernel that does not answer leaves the link its connection.

mod link;
mod metrics;
mod place;
mod watcher;

use std::sync::Arc;

use guard::agents::PUBLISHED;
use guard::sensor::Rules;
use objects::{Id, Objects};
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;

use crate::config::{Config, Store};
use crate::daemon::controller::{MANAGER, lazy_client};
use crate::daemon::process::{Process, Told};
use crate::output::Failure;
use link::{Authorities, Link, PodIdentity};
use metrics::Metrics;
use watcher::Watcher;

/// What the link has heard.
enum Word {
    /// It is about to join; with which incarnation?
    Joining {
        answer: tokio::sync::oneshot::Sender<u64>,
    },
    /// The incarnation that it joined with is over; this one is known.
    Outdated {
        known: u64,
    },
    Joined {
        epoch: u64,
        interval: std::time::Duration,
    },
    /// The connection is over.
    Parted,
    Counted {
        sequence: u64,
        durable: u64,
        interval: std::time::Duration,
    },
    Rules(Arc<Rules>),
}

/// Begins to observe, if there is a controller to tell. `pods`: those of the node's network, where
/// this agent runs it.
pub(crate) fn begin(
    config: &Config,
    process: &Process,
    pods: Option<net::Addresses>,
    registry: &mut Registry,
) -> Result<Told, Failure> {
    let settings = &config.sense;
    if settings.controllers.is_empty() {
        return Ok(Told::new());
    }
    let metrics = Metrics::default();
    metrics.register(registry);
    // One report is under way at a time.
    let (reports, outbox) = mpsc::channel(1);
    // Words come one by one and are read several times a second; the link waits where there are more.
    let (words, heard) = mpsc::channel(16);
    let dir = config.data.join("guard");
    let watcher = Watcher::open(
        watcher::Settings {
            node: config.net.node.as_str().into(),
            file: dir.join("sensor"),
            track: settings.track,
            pods: pods.clone(),
        },
        metrics.clone(),
    )?;
    watcher.start(reports, heard, &process.watchdog, &process.tasks)?;
    let link = Link {
        node: config.net.node.clone(),
        addresses: config.net.addresses.clone(),
        controllers: settings.controllers.clone(),
        token_file: settings.token_file.clone(),
        pod: pod_identity(config, process),
        dir: dir.join("agent"),
        // Where Kubernetes keeps the objects, the controller knows pods from there.
        pods: pods.filter(|_| config.store == Store::Embedded),
        metrics,
        ledger: process.ledger.clone(),
        tasks: process.tasks.clone(),
    };
    process.tasks.spawn("sense-link", link.run(outbox, words));
    Ok(vec![("guard", settings.controllers.join(", "))])
}

/// How this agent enrols as a pod, if it is to.
fn pod_identity(config: &Config, process: &Process) -> Option<PodIdentity> {
    let token_file = config.sense.identity_token_file.clone()?;
    let authorities = config.sense.ca_file.clone().map_or_else(
        || {
            let objects = Objects::kubernetes(lazy_client(&process.tasks), MANAGER);
            Authorities::Store(objects, Id::namespaced(&config.fleet.namespace, PUBLISHED))
        },
        Authorities::File,
    );
    Some(PodIdentity { token_file, authorities })
}
