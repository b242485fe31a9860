//! `EgressReconciler`: keeps the node's kernel in line with egresses, the pods that chose them, and the
//! replicas that answer.
//!
//! Contract:
//! - Nothing here is in the way of an ADD: which pods of this node chose what is watched, and a pod's
//!   address is acted on as soon as the journal has it, before its runtime starts its containers.
//! - Until the store has told egresses and pods once, nothing is changed: what an earlier agent made holds.
//! - The numbers of classes are on disk before the kernel knows them: connections outlive the agent.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Pod;
use objects::kinds::{Egress, Networks};
use objects::{Attempt, Id, Next, Objects, Pace, Reconciler, Watched, Within};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use stallproof::backoff::Curve;
use stallproof::snapshot::Changes;
use stallproof::{Snapshot, Tasks};
use tracing::{info, warn};

use super::kernel_state::{self, EgressDevice, EgressError};
use super::plan::{ClassNumbers, Client, EgressInputs, EgressView, ReplicaView, plan};
use super::table::EgressTable;
use super::{LABEL, health};
use crate::Addresses;
use crate::address_table::AddressTable;
use crate::claims::NodeIdentity;
use crate::node::{Node, kernel_call};
use crate::overlay::DeviceSettings;
use crate::pool::Pools;

pub(crate) const PACE: Pace = Pace {
    attempt: Duration::from_secs(10),
    resync: Duration::from_secs(10),
    settle: Duration::from_millis(10),
    retry: Curve { first: Duration::from_millis(200), most: Duration::from_secs(10) },
};
/// How many troubles are logged at once.
const LOGGED: usize = 5;

type Egresses = Watched<Id, EgressView>;
/// The pods of this node that chose egresses.
type Choices = Watched<Id, Vec<String>>;

#[derive(Clone, Debug, Default)]
pub(crate) struct EgressMetrics {
    clients: Gauge,
    classes: Gauge,
    silent: Gauge,
}

impl EgressMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let Self { clients, classes, silent } = self;
        let help = "Addresses of this node's pods whose connections go by an egress";
        registry.register("net_egress_clients", help, clients.clone());
        let help = "Combinations of replicas that connections of this node go by";
        registry.register("net_egress_classes", help, classes.clone());
        let help = "Replicas of egresses that answered this node and no longer do";
        registry.register("net_egress_silent_replicas", help, silent.clone());
    }
}

#[derive(Debug)]
pub(crate) struct EgressReconciler {
    node: Node,
    identity: NodeIdentity,
    settings: DeviceSettings,
    addresses: Addresses,
    pools: Snapshot<Pools>,
    egresses: Snapshot<Egresses>,
    choices: Snapshot<Choices>,
    replicas: Snapshot<BTreeSet<IpAddr>>,
    silent: Snapshot<BTreeSet<IpAddr>>,
    tasks: Tasks,
    metrics: EgressMetrics,
    numbers: Option<ClassNumbers>,
    file: PathBuf,
    /// None before the first attempt, and while a thread has it.
    table: Option<EgressTable>,
    troubles: Vec<String>,
    changes: EgressChanges,
}

#[derive(Debug)]
struct EgressChanges {
    egresses: Changes<Egresses>,
    choices: Changes<Choices>,
    pools: Changes<Pools>,
    silent: Changes<BTreeSet<IpAddr>>,
    addresses: Changes<AddressTable>,
}

impl EgressReconciler {
    #[expect(clippy::too_many_arguments, reason = "one caller, which has each of them")]
    pub(crate) fn new(
        node: Node,
        identity: NodeIdentity,
        settings: DeviceSettings,
        objects: &Objects,
        addresses: Addresses,
        pools: Snapshot<Pools>,
        data: &Path,
        metrics: EgressMetrics,
        tasks: Tasks,
    ) -> Self {
        let egresses = objects.watched_as(Within::default(), &tasks, |it: Egress| Some(view(&it)));
        let here = Within { node: Some(identity.name.clone()), ..Within::default() };
        let choices = objects.watched_as(here, &tasks, |pod: Pod| chosen(&pod));
        let (replicas, silent) = (Snapshot::default(), Snapshot::default());
        let asking = health::follow(replicas.clone(), silent.clone(), tasks.stopping());
        tasks.spawn("net-egress-health", asking);
        let changes = EgressChanges {
            egresses: egresses.subscribe(),
            choices: choices.subscribe(),
            pools: pools.subscribe(),
            silent: silent.subscribe(),
            addresses: addresses.changes(),
        };
        Self {
            node,
            identity,
            settings,
            addresses,
            pools,
            egresses,
            choices,
            replicas,
            silent,
            tasks,
            metrics,
            numbers: None,
            file: data.join("egress.json"),
            table: None,
            troubles: Vec::new(),
            changes,
        }
    }

    fn inputs(&self) -> EgressInputs {
        let (choices, view) = (self.choices.load(), self.addresses.view());
        let clients = view.attachments().filter_map(|attachment| {
            let pod = attachment.pod.as_ref()?;
            let egresses = choices.get(&Id::namespaced(&pod.namespace, &pod.name))?;
            Some(Client {
                namespace: pod.namespace.clone(),
                pod: pod.name.clone(),
                addresses: attachment.addresses().collect(),
                egresses: egresses.clone(),
            })
        });
        let egresses = self.egresses.load();
        EgressInputs {
            egresses: egresses.iter().map(|(id, view)| (id.to_string(), view.clone())).collect(),
            clients: clients.collect(),
            silent: (*self.silent.load()).clone(),
            own: own(&self.pools.load()),
        }
    }
}

/// The networks of all pools.
fn own(pools: &Pools) -> Vec<IpNet> {
    let networks = pools.values().filter_map(|judged| judged.object.spec.networks().ok()).flatten();
    networks
        .flat_map(|Networks { ipv4, ipv6 }| {
            ipv4.map(IpNet::V4).into_iter().chain(ipv6.map(IpNet::V6))
        })
        .collect()
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
        let told = self.egresses.read(|it| it.synced) && self.choices.read(|it| it.synced);
        if !told || !self.pools.read(Pools::synced) {
            return Ok(Next::OnChange);
        }
        let inputs = self.inputs();
        let addresses = (*self.identity.addresses.load()).clone();
        let mac = super::mac_of(&self.identity.name, &addresses);
        let device = EgressDevice { mac, settings: self.settings };
        let (node, table, file) = (self.node.clone(), self.table.take(), self.file.clone());
        let known = self.numbers.take();
        let work = move || {
            let inside = || -> Result<_, EgressError> {
                let before = known.unwrap_or_else(|| read(&file));
                let mut numbers = before.clone();
                let index = match inputs.clients.is_empty() {
                    true => 0,
                    false => device.ensure(&node)?,
                };
                let program = plan(&inputs, &mut numbers, index);
                if numbers != before {
                    let path = file.display().to_string();
                    keep(&file, &numbers).map_err(|source| EgressError::Keep { path, source })?;
                }
                let mut table =
                    table.map_or_else(EgressTable::open, Ok).map_err(EgressError::Socket)?;
                let changed =
                    kernel_state::apply(&node, &program, &mut table, device.settings.port)?;
                Ok((table, numbers, program, changed))
            };
            node.namespace().run_in(inside).map_err(EgressError::Socket)?
        };
        let done = kernel_call(&self.tasks, "egress", attempt.deadline, work).await?;
        let (table, numbers, program, changed) = done?;
        self.table = Some(table);
        self.numbers = Some(numbers);
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.clients.set(gauge(program.clients()));
        self.metrics.classes.set(gauge(program.numbers.len()));
        self.metrics.silent.set(gauge(self.silent.read(BTreeSet::len)));
        if changed {
            info!(clients = program.clients(), classes = program.numbers.len(), "egress changed");
        }
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
        Ok(Next::OnChange)
    }

    async fn changed(&mut self) {
        let EgressChanges { egresses, choices, pools, silent, addresses } = &mut self.changes;
        tokio::select! {
            _ = egresses.changed() => {}
            _ = choices.changed() => {}
            _ = pools.changed() => {}
            _ = silent.changed() => {}
            _ = addresses.changed() => {}
        }
    }
}
