//! Admission as this process runs it: rules are followed always, the webhook is served when it is
//! asked for, and the leader keeps it registered.

use std::net::TcpListener;
use std::time::Duration;

use edge::webhook::{self, Webhook};
use fleet::{Connection, Fleet, InCluster};
use admission::{self, Admission, WebhookUpkeep, LOCAL_CLUSTER, Reach, Registration, Settings};
use pki::{Certificates, Lifetimes};
use objects::{Leader, Objects};
use prometheus_client::registry::Registry;
use stallproof::{Backoff, Deadline, Map, Snapshot, Tasks};
use tracing::{info, warn};

use crate::config::{self, Config, ListenAddress, Store};
use crate::daemon::api_tls;
use crate::daemon::controller::MANAGER;
use crate::daemon::process::{self, Process};
use crate::output::Failure;

/// For one request to a cluster.
const REQUEST: Duration = Duration::from_secs(10);
const RETRY: stallproof::backoff::Curve =
    stallproof::backoff::Curve { first: Duration::from_secs(1), most: Duration::from_secs(60) };

/// What the webhook must have before anything runs.
#[derive(Debug)]
pub(crate) struct Listeners {
    listener: TcpListener,
    address: ListenAddress,
}

impl Listeners {
    /// None where it is not served.
    pub(crate) fn take(config: &Config) -> Result<Option<Self>, Failure> {
        if !is_served(config) {
            return Ok(None);
        }
        let (listener, address) = process::listen(config.admission.listen, "--admission-listen")?;
        Ok(Some(Self { listener, address }))
    }
}

fn is_served(config: &Config) -> bool {
    let config::Admission { webhook, service, url, .. } = &config.admission;
    match webhook {
        config::Webhook::On => true,
        config::Webhook::Off => false,
        config::Webhook::Auto => {
            let in_cluster = config.store == Store::Kubernetes && InCluster::detect().is_some();
            service.is_some() || url.is_some() || in_cluster
        }
    }
}

/// What the leader does about it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeaderWork {
    keep: Option<(Box<WebhookUpkeep>, Keep)>,
    /// Turned off: nobody serves what may still be registered.
    take_back: bool,
}

#[derive(Clone, Copy, Debug)]
enum Keep {
    /// The webhook: certificates, registrations, what became of rules.
    Webhook,
    /// The API's certificates alone.
    Certificates,
}

/// What was begun.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) admission: Admission,
    pub(crate) duty: LeaderWork,
    /// Where the webhook is served.
    pub(crate) place: Option<String>,
}

pub(crate) fn begin(
    config: &Config,
    claims: Option<Listeners>,
    certificates: Option<Certificates>,
    objects: &Objects,
    fleet: &Fleet,
    process: &Process,
    registry: &mut Registry,
) -> Result<Begun, Failure> {
    let Process { ledger, readiness, tasks, memory, .. } = process;
    let config::Admission { protect, failure_policy, timeout, clusters, .. } = &config.admission;
    let exempt = exempt(&config.admission);
    let settings = Settings {
        controllers: config.admission.controllers.clone().into(),
        exempt_sidecars: config.admission.exempt_sidecars,
        ..Settings::new(*protect)
    };
    let admission = Admission::start(objects, settings, exempt.clone(), readiness, tasks);
    admission.register(registry);
    let asking = Snapshot::new(Map::new());
    let charge = certificates.map(|certificates| WebhookUpkeep {
        admission: admission.clone(),
        certificates,
        names: api_tls::names(config),
        lifetimes: Lifetimes::default(),
        registration: None,
        clusters: asking.clone(),
    });
    let (Some(Listeners { listener, address }), Some(mut charge)) = (claims, charge.clone()) else {
        let off = config.admission.webhook == config::Webhook::Off;
        let duty = LeaderWork {
            keep: charge.map(|charge| (Box::new(charge), Keep::Certificates)),
            take_back: off && config.store == Store::Kubernetes,
        };
        return Ok(Begun { admission, duty, place: None });
    };

    if config.store == Store::Kubernetes {
        admission.follow_cluster(LOCAL_CLUSTER, objects, tasks);
        asking.update(|asking| asking.insert(LOCAL_CLUSTER.to_owned(), objects.clone()).is_none());
    }
    for name in clusters {
        let follower = Follower {
            cluster: name.clone(),
            fleet: fleet.clone(),
            admission: admission.clone(),
            asking: asking.clone(),
        };
        tasks.spawn(format!("admission follows {name}"), follower.follow(tasks.clone()));
    }

    let reach = reach(&config.admission);
    let mut names = reach.as_ref().map_or_else(|| vec![address.local_host()], Reach::names);
    charge.names.retain(|name| !names.contains(name));
    names.append(&mut charge.names);
    charge.names = names;
    charge.registration = reach.map(|reach| Registration {
        reach,
        failure_policy: *failure_policy,
        timeout: *timeout,
        exempt,
    });
    let webhook = Webhook::new(admission.clone(), ledger.clone());
    let webhook = webhook.with_leaving(process.leading.stopping());
    webhook.register(registry);
    webhook.heed(memory);
    webhook::start(webhook, listener, charge.certificates.clone(), tasks)
        .map_err(|e| Failure(format!("the admission webhook cannot be served: {e}")))?;
    Ok(Begun {
        admission,
        duty: LeaderWork { keep: Some((Box::new(charge), Keep::Webhook)), take_back: false },
        place: Some(format!("https://{address}/admit")),
    })
}

/// Those configured, and our own: a webhook that must answer before its own pods may start never
/// would.
fn exempt(config: &config::Admission) -> Vec<String> {
    let mut exempt = config.exempt.clone();
    if let Some(service) = &config.service
        && !exempt.contains(&service.namespace)
    {
        exempt.push(service.namespace.clone());
    }
    exempt
}

fn reach(config: &config::Admission) -> Option<Reach> {
    let service = config
        .service
        .clone()
        .map(|config::Service { namespace, name, port }| Reach::Service { namespace, name, port });
    let url = config.url.clone();
    service.or_else(|| url.map(|url| Reach::Url { base: url.base, host: url.host }))
}

impl LeaderWork {
    /// Begins a term.
    pub(crate) fn lead(&self, leader: &Leader) {
        match &self.keep {
            None => {}
            Some((charge, Keep::Webhook)) => admission::lead(leader, charge),
            Some((charge, Keep::Certificates)) => admission::lead_certificates(leader, charge),
        }
        if self.take_back {
            leader.tasks.spawn("admission-off", take_back(leader.clone()));
        }
    }
}

async fn take_back(leader: Leader) {
    let stop = leader.tasks.stopping();
    let mut backoff = Backoff::new(RETRY);
    loop {
        match admission::unregister(&leader.objects, Deadline::after(REQUEST)).await {
            Ok(true) => return info!("the admission webhook is off: its registration was removed"),
            Ok(false) => return,
            Err(error) => {
                let retry = backoff.failed();
                if retry.attempt == 1 {
                    let error = stallproof::sentence(&error);
                    warn!(error, "cannot take back the webhook's registration, trying on");
                }
                if stop.bound(tokio::time::sleep(retry.wait)).await.is_none() {
                    return;
                }
            }
        }
    }
}

/// Follows one cluster of the fleet, through whatever connection is its current one.
struct Follower {
    cluster: String,
    fleet: Fleet,
    admission: Admission,
    asking: Snapshot<Map<String, Objects>>,
}

impl Follower {
    async fn follow(self, tasks: Tasks) {
        let stop = tasks.stopping();
        let mut changes = self.fleet.changes();
        let mut current: Option<(Connection, Tasks)> = None;
        loop {
            if let Ok(connection) = self.fleet.connection(&self.cluster)
                && current.as_ref().is_none_or(|(before, _)| !before.is_same_client(&connection))
                && let Some(objects) = store(&connection, "following it for admission").await
            {
                let group = tasks.child(self.cluster.clone());
                self.admission.follow_cluster(&self.cluster, &objects, &group);
                self.asking.update(|asking| {
                    asking.insert(self.cluster.clone(), objects);
                    true
                });
                // Held as long as what was opened on it.
                if let Some((_, before)) = current.replace((connection, group)) {
                    before.stop("the cluster has another connection");
                }
            }
            if stop.bound(changes.changed()).await.is_none() {
                return;
            }
        }
    }
}

/// The cluster's own store. Watches and the keeper of a registration pace themselves; they need no
/// place in the cluster's line.
pub(crate) async fn store(connection: &Connection, doing: &'static str) -> Option<Objects> {
    let client = |client| async { Ok(client) };
    let client = connection.call(doing, Deadline::after(REQUEST), client);
    client.await.ok().map(|client| Objects::kubernetes(client, MANAGER))
}
