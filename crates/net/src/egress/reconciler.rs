//! `EgressReconciler`: keeps the node's kernel in line with egresses, the pods that chose them, and the
//! replicas that answer.
//!
//! Contract:
//! - Nothing here is in the way of an ADD: which pods of this node chose what is watched, and a pod's
//!   address is acted on as soon as it is known ([`NodePods`]). Until then the pod is kept from leaving.
//! - Until the store has told egresses and pods once, nothing is changed: what an earlier agent made holds.
//! - The numbers of classes are on disk before the kernel knows them: connections outlive the agent.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use objects::kinds::Egress;
use objects::{Attempt, Id, Next, Objects, Pace, Reconciler, Watched, Within};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use stallproof::backoff::Curve;
use stallproof::readiness::Component;
use stallproof::snapshot::Changes;
use stallproof::{Snapshot, Tasks};
use tracing::{info, warn};

use super::foreign::Bypass;
use super::kernel_state::{self, EgressDevice, EgressError};
use super::plan::{ClassNumbers, EgressInputs, EgressView, ReplicaView, plan_on};
use super::pods::{NodePods, PodChanges};
use super::table::EgressTable;
use super::{LABEL, health};
use crate::claims::NodeIdentity;
use crate::node::{Node, kernel_call};
use crate::overlay::DeviceSettings;

pub(crate) const PACE: Pace = Pace {
    attempt: Duration::from_secs(10),
    resync: Duration::from_secs(10),
    settle: Duration::from_millis(10),
    retry: Curve { first: Duration::from_millis(200), most: Duration::from_secs(10) },
};
/// How many troubles are logged at once.
const LOGGED: usize = 5;

type Egresses = Watched<Id, EgressView>;

#[derive(Clone, Debug, Default)]
pub(crate) struct EgressMetrics {
    clients: Gauge,
    classes: Gauge,
    silent: Gauge,
    held: Gauge,
}

impl EgressMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let Self { clients, classes, silent, held } = self;
        let help = "Addresses of this node's pods whose connections go by an egress";
        registry.register("net_egress_clients", help, clients.clone());
        let help = "Combinations of replicas that connections of this node go by";
        registry.register("net_egress_classes", help, classes.clone());
        let help = "Replicas of egresses that answered this node and no longer do";
        registry.register("net_egress_silent_replicas", help, silent.clone());
        let help = "New pods that are kept from egresses' destinations until their choice is known";
        registry.register("net_egress_held_pods", help, held.clone());
    }
}

#[derive(Debug)]
pub(crate) struct EgressReconciler {
    node: Node,
    identity: NodeIdentity,
    settings: DeviceSettings,
    pods: NodePods,
    egresses: Snapshot<Egresses>,
    replicas: Snapshot<BTreeSet<IpAddr>>,
    silent: Snapshot<BTreeSet<IpAddr>>,
    tasks: Tasks,
    metrics: EgressMetrics,
    numbers: Option<ClassNumbers>,
    file: PathBuf,
    /// None before the first attempt, and while a thread has it.
    table: Option<EgressTable>,
    troubles: Vec<String>,
    bypasses: Snapshot<Vec<Bypass>>,
    /// None where the agent is ready whatever becomes of egresses.
    ready: Option<Component>,
    changes: EgressChanges,
}

/// What this node knows of egresses.
#[derive(Clone, Debug)]
pub(crate) struct EgressSeen {
    pub(super) pods: NodePods,
    pub(super) egresses: Snapshot<Egresses>,
    pub(super) silent: Snapshot<BTreeSet<IpAddr>>,
    pub(super) bypasses: Snapshot<Vec<Bypass>>,
}

#[derive(Debug)]
struct EgressChanges {
    egresses: Changes<Egresses>,
    pods: PodChanges,
    silent: Changes<BTreeSet<IpAddr>>,
}

impl EgressReconciler {
    /// What `fairlead net egress list` shows of this node.
    pub(crate) fn seen(&self) -> EgressSeen {
        EgressSeen {
            pods: self.pods.clone(),
            egresses: self.egresses.clone(),
            silent: self.silent.clone(),
            bypasses: self.bypasses.clone(),
        }
    }

    /// Says on this component whether egresses can be used.
    pub(crate) fn with_readiness(mut self, ready: Component) -> Self {
        ready.not_ready("egresses and this node's pods are not read yet");
        self.ready = Some(ready);
        self
    }

    #[expect(clippy::too_many_arguments, reason = "one caller, which has each of them")]
    pub(crate) fn new(
        node: Node,
        identity: NodeIdentity,
        settings: DeviceSettings,
        objects: &Objects,
        pods: NodePods,
        data: &Path,
        metrics: EgressMetrics,
        tasks: Tasks,
    ) -> Self {
        let egresses = objects.watched_as(Within::default(), &tasks, |it: Egress| Some(view(&it)));
        let (replicas, silent) = (Snapshot::default(), Snapshot::default());
        let asking = health::follow(replicas.clone(), silent.clone(), tasks.stopping());
        tasks.spawn("net-egress-health", asking);
        let changes = EgressChanges {
            egresses: egresses.subscribe(),
            pods: pods.subscribe(),
            silent: silent.subscribe(),
        };
        Self {
            node,
            identity,
            settings,
            pods,
            egresses,
            replicas,
            silent,
            tasks,
            metrics,
            numbers: None,
            file: data.join("egress.json"),
            table: None,
            troubles: Vec::new(),
            bypasses: Snapshot::default(),
            ready: None,
            changes,
        }
    }

    async fn bring_in_line(&mut self, attempt: &Attempt) -> Result<(), EgressError> {
        let told = self.egresses.read(|it| it.synced);
        let Some(seen) = self.pods.look().filter(|_| told) else { return Ok(()) };
        let egresses = self.egresses.load();
        let mut inputs = EgressInputs {
            egresses: egresses.iter().map(|(id, view)| (id.to_string(), view.clone())).collect(),
            clients: seen.clients(),
            silent: (*self.silent.load()).clone(),
            own: seen.own(),
            foreign: None,
        };
        let addresses = (*self.identity.addresses.load()).clone();
        let mac = super::mac_of(&self.identity.name, &addresses);
        let device = EgressDevice { mac, settings: self.settings };
        let (node, table, file) = (self.node.clone(), self.table.take(), self.file.clone());
        let known = self.numbers.take();
        let work = move || {
            let inside = || -> Result<_, EgressError> {
                let mut bypasses = Vec::new();
                seen.read_node(&node, &mut inputs, &mut bypasses)?;
                let device = device.fitted(&node, &inputs)?;
                let before = known.unwrap_or_else(|| read(&file));
                let mut numbers = before.clone();
                let program = plan_on(&inputs, &mut numbers, || device.ensure(&node))?;
                if numbers != before {
                    let path = file.display().to_string();
                    keep(&file, &numbers).map_err(|source| EgressError::Keep { path, source })?;
                }
                let mut table =
                    table.map_or_else(EgressTable::open, Ok).map_err(EgressError::Socket)?;
                let changed =
                    kernel_state::apply(&node, &program, &mut table, device.settings.port)?;
                let unheard = seen.settle(&program)?;
                Ok((table, numbers, program, changed, unheard, bypasses))
            };
            node.namespace().run_in(inside).map_err(EgressError::Socket)?
        };
        let done = kernel_call(&self.tasks, "egress", attempt.deadline, work).await?;
        let (table, numbers, mut program, changed, unheard, bypasses) = done?;
        for attachment in unheard {
            let pod = attachment.pod.as_ref().map(ToString::to_string).unwrap_or_default();
            warn!(
                pod,
                "the API server did not tell of a pod in time: it leaves as one without an egress"
            );
        }
        self.table = Some(table);
        self.numbers = Some(numbers);
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.clients.set(gauge(program.clients()));
        self.metrics.classes.set(gauge(program.numbers.len()));
        self.metrics.silent.set(gauge(self.silent.read(BTreeSet::len)));
        self.metrics.held.set(gauge(self.pods.held()));
        if changed {
            info!(clients = program.clients(), classes = program.numbers.len(), "egress changed");
        }
        program.troubles.extend(bypasses.iter().map(|bypass| bypass.why.clone()));
        self.bypasses.publish(bypasses);
        if program.troubles != self.troubles {
            for why in program.troubles.iter().take(LOGGED) {
                warn!(why, "a pod cannot use the egress that it chose");
            }
            self.troubles = program.troubles;
        }
        self.replicas.update(|replicas| {
            let changed = *replicas != program.replicas;
            *replicas = program.replicas;
            changed
        });
        if let Some(ready) = &self.ready {
            ready.ready();
        }
        Ok(())
    }
}

/// An egress as nodes see it: its replicas are those that its status has.
pub(super) fn view(egress: &Egress) -> EgressView {
    let replicas = egress.status.iter().flat_map(|status| &status.endpoints);
    EgressView {
        destinations: egress.spec.destinations.clone(),
        affinity: egress.spec.session_affinity,
        failure: egress.spec.failure,
        namespaces: egress.spec.client_namespaces.clone(),
        replicas: replicas
            .map(|replica| ReplicaView {
                pod: replica.pod.clone(),
                addresses: replica.addresses.clone(),
                draining: replica.draining,
            })
            .collect(),
    }
}

/// The egresses that a pod chose; an egress pod chooses none, nor does one with its node's network.
pub(super) fn chosen(pod: &Pod) -> Option<Vec<String>> {
    let labels = pod.metadata.labels.as_ref();
    let host_network = pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or(false);
    if host_network || labels.is_some_and(|labels| labels.contains_key(LABEL)) {
        return None;
    }
    let chosen = Egress::chosen(pod.metadata.annotations.as_ref()?);
    (!chosen.is_empty()).then_some(chosen)
}

fn read(file: &Path) -> ClassNumbers {
    match fs::read(file).map(|bytes| serde_json::from_slice(&bytes)) {
        Ok(Ok(numbers)) => numbers,
        Ok(Err(error)) => {
            warn!(%error, "the file of egress classes is damaged: connections may move");
            ClassNumbers::default()
        }
        Err(_) => ClassNumbers::default(),
    }
}

fn keep(file: &Path, numbers: &ClassNumbers) -> io::Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, serde_json::to_vec(numbers)?)?;
    fs::rename(new, file)
}

impl Reconciler for EgressReconciler {
    type Error = EgressError;

    async fn reconcile(&mut self, attempt: &Attempt) -> Result<Next, EgressError> {
        let done = self.bring_in_line(attempt).await;
        if let (Some(ready), Err(error)) = (&self.ready, &done) {
            ready.not_ready(stallproof::sentence(error));
        }
        done.map(|()| Next::OnChange)
    }

    async fn changed(&mut self) {
        let EgressChanges { egresses, pods, silent } = &mut self.changes;
        tokio::select! {
            _ = egresses.changed() => {}
            () = pods.changed() => {}
            _ = silent.changed() => {}
        }
    }
}
