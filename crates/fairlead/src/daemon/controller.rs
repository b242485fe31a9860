//! The controller: the store, who may do what, the fleet, and the API in front of them.
//!
//! Everything is begun and nothing is waited for: what is not there yet is said by `/readyz` and in
//! the answers, and comes by itself.

use std::io::IsTerminal;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;

use ::programs::ActivePrograms;
use access::audit::recording::{RecordingLimits, Recordings};
use access::audit::{Audit, Size};
use access::{Access, LocalToken};
use edge::api::{self, Api, Gates, LeaderReach, LeaderRoute, Replicas, Serving};
use edge::outbound::Outbound;
use edge::tls::CertificateFiles;
use fleet::{Fleet, FleetConfig, InCluster, Secrets};
use mesh::Meshes;
use net::egress::EgressControllerConfig;
use net::pool_controller::Reclaim;
use objects::{Election, Id, Leader, Leadership, Objects, Timing};
use pki::Certificates;
use pki::agents::Authority;
use prometheus_client::registry::Registry;
use stallproof::readiness::Component;
use stallproof::{Ledger, Snapshot, Tasks};

use crate::config::{Config, ListenAddress, Store};
use crate::daemon::admission::{self, Begun, LeaderWork};
use crate::daemon::leading::Leading;
use crate::daemon::process::{self, Process, Told};
use crate::daemon::store::{self, lazy_client};
use crate::daemon::{agents, api_tls, notify, observe, programs, traffic as counting};
use crate::output::Failure;

/// Held by the replica that does what only one may do.
const LEASE: &str = "fairlead-controller";

/// What the controller must have before anything runs.
#[derive(Debug)]
pub(crate) struct Listeners {
    listener: TcpListener,
    address: ListenAddress,
    certificate: Option<Arc<CertificateFiles>>,
    webhook: Option<admission::Listeners>,
    agents: agents::Listeners,
    token: LocalToken,
}

impl Listeners {
    /// After the process's own: the token is in the data directory, which must be ours.
    pub(crate) fn take(config: &Config) -> Result<Self, Failure> {
        let (listener, address) = process::listen(config.api.listen, "--api-listen")?;
        let certificate = process::certificate(&config.api.tls_cert, &config.api.tls_key)?;
        let webhook = admission::Listeners::take(config)?;
        let agents = agents::Listeners::take(config)?;
        let token = LocalToken::open(&config.data).map_err(|e| process::explain(&e))?;
        Ok(Self { listener, address, certificate, webhook, agents, token })
    }
}

pub(crate) fn begin(
    config: &Config,
    listeners: Listeners,
    process: &Process,
    registry: &mut Registry,
) -> Result<Told, Failure> {
    let Process { ledger, readiness, tasks, memory, .. } = process;
    let objects = store::open(config, tasks, registry)?;
    store::announce(&objects, readiness, tasks);

    let audit = Audit::start(&config.data, Size::default(), tasks);
    audit.register(registry);
    let recordings = recordings(config, &audit, tasks)?;
    if let Some(recordings) = &recordings {
        recordings.register(registry);
    }
    let access = Access::start(objects.clone(), tasks, readiness, Some(&listeners.token));
    access.register(registry);
    let outbound = Outbound::new(tasks).map_err(|e| process::explain(&e))?;
    access.federate(Arc::new(outbound), &config.fleet.namespace, ledger, tasks);
    let fleet = Fleet::start(fleet_config(config)?, objects.clone(), ledger.clone(), tasks);
    fleet.register(registry);
    let webhook = listeners.webhook;
    let certificates = (webhook.is_some() || api_tls::is_auto(config))
        .then(|| Certificates::follow(&objects, &config.fleet.namespace, tasks));
    let keys = certificates.clone();
    let Begun { admission, leader_work, place: webhook } =
        admission::begin(config, webhook, keys, &objects, &fleet, process, registry)?;
    admission.keep_audit(audit.dir(), tasks);
    let (guard, counting) = counting::begin(config, &objects, &fleet, ledger, registry);
    let programs = programs::LeaderWork {
        active: ActivePrograms::default(),
        facts: counting.facts().clone(),
        ingest: guard.active.clone(),
        settings: policy::spec::Settings { mode: config.guard.mode, ..Default::default() },
        watchdog: Arc::clone(&process.watchdog),
    };
    programs.active.register(registry);
    let (active, made) = (&guard.active, &programs.active);
    let agents =
        agents::begin(config, listeners.agents, &objects, active, made, process, registry)?;
    let authority = agents.api.authority.clone();
    let rooms = notify::Rooms {
        admission: admission.clone(),
        active: guard.active.clone(),
        agents: agents.api.agents.clone(),
        audit: audit.clone(),
        fleet: fleet.clone(),
    };
    let notifier = notify::begin(config, rooms, &objects, process, registry)?;
    let meshes = Meshes::new(objects.clone());
    // Only a Kubernetes API server can say that a node is gone.
    let reclaim = match config.store {
        Store::Embedded => Reclaim::Never,
        Store::Kubernetes => Reclaim::WithoutNode(net::pool_controller::GRACE),
    };
    let image = config.net.egress_image.clone().filter(|_| config.store == Store::Kubernetes);
    let port = config.net.egress_port;
    let egress = image.map(|image| EgressControllerConfig { image, port });
    let compiled = programs.compiles().then(|| programs.active.clone());
    let leading = Leading::default();
    leading.register(registry);
    let work = LeaderWorks {
        leading,
        admission: leader_work,
        agents: agents.leader_work,
        guard: counting,
        programs,
        fleet: fleet.clone(),
        meshes: meshes.clone(),
        ledger: ledger.clone(),
        reclaim,
        egress,
    };
    let store = objects.clone();
    let leadership = stand(config, objects, work, &process.leading);
    let synced = readiness.announce("fleet");
    tasks.spawn("fleet-readiness", say_whether_synced(fleet.clone(), synced, tasks.clone()));

    let gates = Gates::default();
    gates.register(registry);
    gates.heed(memory);
    // Whatever is no terminal may be a log, which others read.
    let code = std::io::stdout().is_terminal().then(|| access.local_login_code()).flatten();
    let reach = leader_reach(config, certificates.as_ref(), authority, listeners.address);
    let api = Api {
        fleet,
        access,
        audit,
        recordings,
        ledger: ledger.clone(),
        gates,
        meshes,
        admission: Some(admission),
        agents: Some(agents.api),
        traffic: Some(guard),
        notifier: Some(notifier),
        programs: compiled,
        leader: Some(LeaderRoute { leadership, reach }),
        replicas: replicas(config, tasks),
        objects: store,
        watchdog: Some(Arc::clone(&process.watchdog)),
        tasks: tasks.clone(),
        no_clusters: no_clusters(config).into(),
        leaving: Some(process.leading.stopping()),
        own_certificate: api_tls::own_certificate(config, certificates.as_ref()),
        serving: Serving::default(),
    };
    let served = readiness.announce("api");
    let security =
        api_tls::begin(config, listeners.certificate, certificates.as_ref(), served, tasks);
    let place = format!("{}://{}/", security.scheme(), listeners.address);
    api::start(api, listeners.listener, security, tasks)
        .map_err(|e| Failure(format!("the API cannot be served: {e}")))?;

    let mut told = vec![("api", place.clone())];
    told.push(match code {
        Some(code) => ("login", format!("{place}login?code={}", code.expose())),
        None => ("login", "`fairlead login-link` makes a link for a browser".to_owned()),
    });
    told.extend(webhook.map(|place| ("hook", place)));
    told.push(("agents", agents.place));
    if observe::begin_own(config, agents.address, process, registry) {
        told.push(("sees", "this machine's own connections (TCP)".to_owned()));
    }
    told.push(("token", listeners.token.path().display().to_string()));
    Ok(told)
}

/// Where shells are recorded, if they are.
fn recordings(
    config: &Config,
    audit: &Audit,
    tasks: &Tasks,
) -> Result<Option<Recordings>, Failure> {
    if !config.audit.record_shells {
        return Ok(None);
    }
    let all = config.audit.recordings_size;
    let limits = RecordingLimits { all, ..RecordingLimits::default() };
    let started = Recordings::start(audit.dir(), limits, tasks);
    started.map(Some).map_err(|e| Failure(format!("shells cannot be recorded: {e}")))
}

/// What the work of a leader stands on.
#[derive(Debug)]
struct LeaderWorks {
    leading: Leading,
    admission: LeaderWork,
    agents: agents::LeaderWork,
    guard: counting::LeaderWork,
    programs: programs::LeaderWork,
    fleet: Fleet,
    meshes: Meshes,
    ledger: Ledger,
    reclaim: Reclaim,
    /// None where no image is known that egress pods could run, or no cluster that could run them.
    egress: Option<EgressControllerConfig>,
}

/// One term: what only one replica does is begun here. It runs in the leader's tasks, ends with them,
/// and writes through the leader's objects or looks at its fence before each write.
fn lead(leader: &Leader, work: &LeaderWorks) {
    work.leading.lead(leader);
    work.admission.lead(leader);
    work.agents.lead(leader);
    work.guard.lead(leader);
    work.programs.lead(leader);
    mesh::controller::start_for(leader, &work.fleet, &work.ledger, &work.meshes);
    net::pool_controller::start(leader, work.reclaim);
    if let Some(egress) = &work.egress {
        net::egress::start_controller(leader, egress.clone());
    }
}

/// Stands for the one election that this process takes part in.
fn stand(
    config: &Config,
    objects: Objects,
    work: LeaderWorks,
    tasks: &Tasks,
) -> Snapshot<Leadership> {
    let lease = Id::namespaced(&config.fleet.namespace, LEASE);
    let election = Election::new(objects, lease, &identity(), Timing::default());
    let election = election.on_ledger(&work.ledger);
    let (all, leadership) = (tasks.clone(), election.leadership());
    tasks.spawn("election", async move {
        election.run(&all, |leader| lead(&leader, &work)).await;
    });
    leadership
}

/// How this replica asks the one that leads: where both have certificates of our own making.
fn leader_reach(
    config: &Config,
    certificates: Option<&Certificates>,
    authority: Option<Authority>,
    address: ListenAddress,
) -> Option<LeaderReach> {
    let is_auto = config.store == Store::Kubernetes && api_tls::is_auto(config);
    let name = api_tls::names(config).into_iter().next().filter(|_| is_auto)?;
    let certificates = certificates?.clone();
    Some(LeaderReach { port: address.port(), name, certificates, authority: authority? })
}

/// Where the other replicas are found: in a pod, beside it.
fn replicas(config: &Config, tasks: &Tasks) -> Option<Replicas> {
    let here = pod_address().filter(|_| config.store == Store::Kubernetes)?;
    let namespace = config.fleet.namespace.clone();
    Some(Replicas { client: lazy_client(tasks), namespace, here })
}

/// The address of the pod that this runs in, if it was told.
fn pod_address() -> Option<IpAddr> {
    std::env::var("POD_IP").ok().and_then(|text| text.parse().ok())
}

/// What the other replicas are told about this one when it leads: `NAME`, or `NAME@ADDRESS` in a pod that
/// was told its address.
fn identity() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    pod_address().map_or_else(|| name.clone(), |address| format!("{name}@{address}"))
}

fn fleet_config(config: &Config) -> Result<FleetConfig, Failure> {
    let secrets = config.fleet.secrets.as_ref().map(|text| {
        let selector = text.parse().map_err(|e| Failure(format!("fleet.secrets: {text}: {e}")))?;
        let namespace = config.fleet.secrets_namespace.clone();
        Ok::<_, Failure>(Secrets { selector, namespace, ..Secrets::default() })
    });
    Ok(FleetConfig {
        kubeconfigs: config.fleet.kubeconfig.clone(),
        in_cluster: InCluster::detect(),
        secrets: secrets.transpose()?,
        namespace: config.fleet.namespace.clone(),
        local_imports: config.fleet.local_imports.unwrap_or(config.api.listen.is_loopback()),
        impersonate: config.fleet.impersonate.clone(),
        prometheus: config.fleet.prometheus.clone(),
        ..FleetConfig::default()
    })
}

/// What to tell who sees no cluster at all.
fn no_clusters(config: &Config) -> String {
    let places: Vec<_> =
        config.fleet.kubeconfig.iter().map(|path| path.display().to_string()).collect();
    let looked = if places.is_empty() {
        "no kubeconfig file is read".to_owned()
    } else {
        format!("no context was found in {}", places.join(", "))
    };
    format!(
        "no clusters yet: {looked}; add one with `fairlead clusters add NAME --kubeconfig FILE`, \
         or name other files with --fleet-kubeconfig"
    )
}

/// Ready once every source has told what it has; that a cluster is not well is its own affair.
async fn say_whether_synced(fleet: Fleet, synced: Component, tasks: Tasks) {
    let stop = tasks.stopping();
    let mut changes = fleet.changes();
    synced.not_ready("clusters are being read from their sources");
    while !fleet.view().synced {
        if stop.bound(changes.changed()).await.is_none() {
            return;
        }
    }
    synced.ready();
    // Dropped, it would leave the list.
    stop.stopped().await;
}
