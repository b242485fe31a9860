//! Who is told of what arises in this process. Events are read from what rooms publish: a violation, a decision,
//! an agent, a stall, a line of the audit. Nobody who makes one waits, and none of these rooms knows of receivers.

mod quarantine;
mod sources;

use std::sync::Arc;

use access::Audit;
use admission::Admission;
use fleet::Fleet;
use notify::{Notifier, NotifierSettings, OutboxLimits, Quarantine};
use objects::Objects;
use prometheus_client::registry::Registry;
use traffic::agents::Agents;
use traffic::ingest::ActiveIngest;

use crate::config::{Config, Store};
use crate::daemon::process::Process;
use crate::daemon::store::lazy_client;
use crate::output::Failure;
use quarantine::PodQuarantine;
use sources::Sources;

/// The rooms in which events arise.
#[derive(Clone, Debug)]
pub(crate) struct Rooms {
    pub(crate) admission: Admission,
    pub(crate) active: ActiveIngest,
    pub(crate) agents: Agents,
    pub(crate) audit: Audit,
    pub(crate) fleet: Fleet,
}

pub(crate) fn begin(
    config: &Config,
    rooms: Rooms,
    objects: &Objects,
    process: &Process,
    registry: &mut Registry,
) -> Result<Notifier, Failure> {
    let Process { ledger, tasks, watchdog, .. } = process;
    let settings = NotifierSettings {
        dir: config.data.join("notify"),
        namespace: config.fleet.namespace.clone(),
        limits: OutboxLimits { events: config.notify.queue, ..OutboxLimits::default() },
        cluster: (config.store == Store::Kubernetes && config.notify.cluster_events)
            .then(|| lazy_client(tasks)),
    };
    let quarantine = config.notify.quarantine.then(|| {
        let own = (config.store == Store::Kubernetes).then(|| lazy_client(tasks));
        let (fleet, audit) = (rooms.fleet.clone(), rooms.audit.clone());
        Arc::new(PodQuarantine { own, fleet, audit }) as Arc<dyn Quarantine>
    });
    let notifier = Notifier::start(settings, objects, quarantine, ledger, tasks, registry)
        .map_err(|e| Failure(format!("the queues of receivers cannot be opened: {e}")))?;
    let sources = Sources {
        bus: notifier.bus(),
        cluster: config.guard.cluster.clone().unwrap_or_else(|| "-".to_owned()),
        repeat: config.notify.repeat,
        rooms,
        watchdog: Arc::clone(watchdog),
    };
    sources.follow(tasks);
    Ok(notifier)
}
