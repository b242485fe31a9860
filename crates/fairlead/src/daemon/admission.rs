//! Admission as this process runs it: rules are followed always, the webhook is served when it is
//! asked for, and the leader keeps it registered.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;

use admission::{
    Admission, ImageLimits, LOCAL_CLUSTER, Reach, Registration, Settings, WebhookUpkeep,
};
use edge::tls::ClientAuthorities;
use edge::webhook::{self, Webhook};
use fleet::{Fleet, InCluster};
use objects::{Attempt, Leader, Next, Objects, Pace, Reconciler};
use pki::{Certificates, Lifetimes};
use prometheus_client::registry::Registry;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use stallproof::{Map, Snapshot, Tasks};
use tracing::info;

use crate::config::{self, Config, ListenAddress, Store};
use crate::daemon::api_tls;
use crate::daemon::process::{self, Process};
use crate::daemon::signatures::{self, Registries};
use crate::output::Failure;

/// What the webhook must have before anything runs.
#[derive(Debug)]
pub(crate) struct Listeners {
    listener: TcpListener,
    address: ListenAddress,
    clients: Option<Arc<ClientAuthorities>>,
}

impl Listeners {
    /// None where it is not served.
    pub(crate) fn take(config: &Config) -> Result<Option<Self>, Failure> {
        if !is_served(config) {
            return Ok(None);
        }
        let (listener, address) = process::listen(config.admission.listen, "--admission-listen")?;
        let clients = config.admission.client_ca.clone().map(ClientAuthorities::load).transpose();
        let clients = clients.map_err(|error| {
            Failure(format!("admission.client-ca: {}", stallproof::sentence(&error)))
        })?;
        Ok(Some(Self { listener, address, clients }))
    }
}

fn is_served(config: &Config) -> bool {
    let config::Admission { webhook, service, url, .. } = &config.admission;
    match webhook {
        config::Switch::On => true,
        config::Switch::Off => false,
        config::Switch::Auto => {
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
    registries: Registries,
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
    pub(crate) leader_work: LeaderWork,
    /// Where the webhook is served.
    pub(crate) place: Option<String>,
}

pub(crate) fn begin(
    config: &Config,
    listeners: Option<Listeners>,
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
        images: ImageLimits {
            scan_age: config.admission.scan_age.and_then(|age| i64::try_from(age.as_secs()).ok()),
            ..ImageLimits::default()
        },
        ..Settings::new(*protect)
    };
    let admission = Admission::start(objects, settings, exempt.clone(), readiness, tasks);
    admission.register(registry);
    let upkeep = certificates.map(|certificates| WebhookUpkeep {
        admission: admission.clone(),
        certificates,
        names: api_tls::names(config),
        lifetimes: Lifetimes::default(),
        registration: None,
        clusters: Snapshot::new(Map::new()),
    });
    let (Some(Listeners { listener, address, clients }), Some(mut upkeep)) =
        (listeners, upkeep.clone())
    else {
        let off = config.admission.webhook == config::Switch::Off;
        let leader_work = LeaderWork {
            keep: upkeep.map(|upkeep| (Box::new(upkeep), Keep::Certificates)),
            take_back: off && config.store == Store::Kubernetes,
            registries: Registries::default(),
        };
        return Ok(Begun { admission, leader_work, place: None });
    };

    let follow = {
        let admission = admission.clone();
        move |cluster: &str, objects: &Objects, tasks: &Tasks| {
            admission.follow_cluster(cluster, objects, tasks);
        }
    };
    upkeep.clusters = fleet.follow(clusters.iter().cloned(), tasks, follow);
    if config.store == Store::Kubernetes {
        admission.follow_cluster(LOCAL_CLUSTER, objects, tasks);
        let local = (LOCAL_CLUSTER.to_owned(), objects.clone());
        upkeep.clusters.update(|clusters| clusters.insert(local.0, local.1).is_none());
    }

    let registries = registries(&config.admission)?;
    let reach = reach(&config.admission);
    let mut names = reach.as_ref().map_or_else(|| vec![address.local_host()], Reach::names);
    upkeep.names.retain(|name| !names.contains(name));
    names.append(&mut upkeep.names);
    upkeep.names = names;
    upkeep.registration = reach.map(|reach| Registration {
        reach,
        failure_policy: *failure_policy,
        timeout: *timeout,
        exempt,
    });
    let webhook = Webhook::new(admission.clone(), ledger.clone());
    let webhook = webhook.with_leaving(process.leading.stopping());
    let webhook = match clients {
        None => webhook,
        Some(clients) => webhook.with_clients(clients),
    };
    webhook.register(registry);
    webhook.heed(memory);
    webhook::start(webhook, listener, upkeep.certificates.clone(), tasks)
        .map_err(|e| Failure(format!("the admission webhook cannot be served: {e}")))?;
    Ok(Begun {
        admission,
        leader_work: LeaderWork {
            keep: Some((Box::new(upkeep), Keep::Webhook)),
            take_back: false,
            registries,
        },
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

/// The registries that are read, with what it takes to be let in.
fn registries(config: &config::Admission) -> Result<Registries, Failure> {
    let read = |setting: &str, file: &PathBuf| {
        let text = std::fs::read_to_string(file);
        text.map_err(|error| Failure(format!("{setting}: {}: {error}", file.display())))
    };
    let mut registries =
        Registries { hosts: Registries::hosts(&config.registries), ..Registries::default() };
    if let Some(file) = &config.registry_ca {
        let pem = read("admission.registry-ca", file)?;
        let all = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
        let all = all.ok().filter(|all| !all.is_empty());
        let wrong = || Failure("admission.registry-ca holds no PEM certificate".to_owned());
        registries.authorities = all.ok_or_else(wrong)?;
    }
    if let Some(file) = &config.registry_credentials {
        let text = read("admission.registry-credentials", file)?;
        let read = Registries::credentials(&text);
        registries.credentials =
            read.map_err(|why| Failure(format!("admission.registry-credentials: {why}")))?;
    }
    Ok(registries)
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
            Some((upkeep, Keep::Webhook)) => {
                admission::lead(leader, upkeep);
                admission::lead_running(leader, &upkeep.admission, &upkeep.clusters);
                signatures::lead(leader, &self.registries, &upkeep.clusters);
            }
            Some((upkeep, Keep::Certificates)) => admission::lead_certificates(leader, upkeep),
        }
        if self.take_back {
            let unregister = Unregister(leader.objects.clone());
            leader.reconcile("unregister-webhook", "", Pace::default(), unregister);
        }
    }
}

/// Removes what is registered, once.
struct Unregister(Objects);

impl Reconciler for Unregister {
    type Error = objects::Error;

    async fn reconcile(&mut self, attempt: &Attempt) -> Result<Next, objects::Error> {
        if admission::unregister(&self.0, attempt.deadline).await? {
            info!("the admission webhook is off: its registration was removed");
        }
        Ok(Next::Finished)
    }
}
