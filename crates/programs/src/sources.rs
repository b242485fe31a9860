//! `Sources`: what programs are made of, as an API server tells it, in the compiler's words.
//!
//! Contract:
//! - A policy that the server took and that cannot be read here is of a later version. A NetworkPolicy then
//!   isolates whom it selects and accepts nothing; others decide nothing. Each is told as a problem.
//! - A kind that the server does not serve has no objects. If it was served before, what was known of it
//!   holds until it has been missing for a minute: a server that starts may not know it yet.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use objects::kinds::{
    AddressPool, AdminNetworkPolicy, BaselineAdminNetworkPolicy, ClusterNetworkPolicy, Group,
    NetworkPolicy, NetworkRule,
};
use objects::{Event, Id, KeyChanges, Kind, Objects, Watched, Within};
use policy::Change;
use policy::cluster::{Key, Labels, Node, Pod, Service};
use policy::manifest::{self, Document, bare_namespace};
use policy::program::PolicyKind;
use serde_json::Value;
use stallproof::{Deadline, Snapshot, Stop, Tasks, sentence};
use tokio::time::Instant;
use tracing::{debug, info};

use crate::compiler::PolicyName;

/// For one list of a kind that may not be served.
const LIST: Duration = Duration::from_secs(30);
/// How often a kind that is not served is looked for, and one that is served is listed again.
const LOOK: Duration = Duration::from_secs(15);
const LOOK_AGAIN: Duration = Duration::from_secs(120);
/// How long a kind must be missing before what was known of it is forgotten.
const MISSING: Duration = Duration::from_secs(60);

/// A change, and of which policy, if it is one's.
#[derive(Debug)]
pub(crate) struct SourceChange {
    pub(crate) change: Change,
    pub(crate) policy: Option<PolicyName>,
    /// What is wrong with the policy.
    pub(crate) problem: Option<String>,
    /// The policy as it is written; none if it is gone.
    pub(crate) written: Option<Arc<Value>>,
}

impl SourceChange {
    /// A change that is no policy's.
    pub(crate) fn plain(change: Change) -> Self {
        Self { change, policy: None, problem: None, written: None }
    }
}

type Keyed<V> = KeyChanges<Id, V>;

pub(crate) struct Sources {
    namespaces: Keyed<Arc<Labels>>,
    pods: Keyed<Arc<Pod>>,
    nodes: Keyed<Arc<Node>>,
    services: Keyed<Arc<Service>>,
    pools: Keyed<Arc<AddressPool>>,
    network_policies: Keyed<Arc<NetworkPolicy>>,
    cluster_policies: Keyed<Arc<ClusterNetworkPolicy>>,
    admin_policies: Keyed<Arc<AdminNetworkPolicy>>,
    baseline_policies: Keyed<Arc<BaselineAdminNetworkPolicy>>,
    groups: Keyed<Arc<Group>>,
    rules: Keyed<Arc<NetworkRule>>,
}

impl Sources {
    /// Watches the cluster's own objects, and what users write to the store.
    pub(crate) fn open(cluster: &Objects, store: &Objects, tasks: &Tasks) -> Self {
        let all = Within::default;
        Self {
            namespaces: KeyChanges::of(&cluster.watched_as(all(), tasks, |it: core::Namespace| {
                let name = it.metadata.name.unwrap_or_default();
                let mut labels = it.metadata.labels.unwrap_or_default();
                labels.extend(bare_namespace(&name));
                Some(Arc::new(labels))
            })),
            pods: KeyChanges::of(
                &cluster.watched_as(all(), tasks, |it: core::Pod| Some(Arc::new(Pod::from(&it)))),
            ),
            nodes: KeyChanges::of(
                &cluster.watched_as(all(), tasks, |it: core::Node| Some(Arc::new(Node::from(&it)))),
            ),
            services: KeyChanges::of(
                &cluster.watched_as(all(), tasks, |it: core::Service| {
                    Some(Arc::new(Service::from(&it)))
                }),
            ),
            pools: KeyChanges::of(&store.watched_as(all(), tasks, |mut it: AddressPool| {
                it.status = None;
                Some(Arc::new(named(it)))
            })),
            network_policies: KeyChanges::of(&cluster.watched_as(
                all(),
                tasks,
                |it: NetworkPolicy| Some(Arc::new(named(it))),
            )),
            cluster_policies: KeyChanges::of(&if_served(cluster, tasks)),
            admin_policies: KeyChanges::of(&if_served(cluster, tasks)),
            baseline_policies: KeyChanges::of(&if_served(cluster, tasks)),
            groups: KeyChanges::of(&store.watched_as(all(), tasks, |mut it: Group| {
                it.status = None;
                Some(Arc::new(named(it)))
            })),
            rules: KeyChanges::of(
                &store.watched_as(all(), tasks, |it: NetworkRule| Some(Arc::new(named(it)))),
            ),
        }
    }

    /// The kinds that have not been told whole yet.
    pub(crate) fn waiting(&self) -> Vec<&'static str> {
        let kinds = [
            ("Namespaces", self.namespaces.is_synced()),
            ("Pods", self.pods.is_synced()),
            ("Nodes", self.nodes.is_synced()),
            ("Services", self.services.is_synced()),
            ("AddressPools", self.pools.is_synced()),
            ("NetworkPolicies", self.network_policies.is_synced()),
            ("ClusterNetworkPolicies", self.cluster_policies.is_synced()),
            ("AdminNetworkPolicies", self.admin_policies.is_synced()),
            ("BaselineAdminNetworkPolicies", self.baseline_policies.is_synced()),
            ("Groups", self.groups.is_synced()),
            ("NetworkRules", self.rules.is_synced()),
        ];
        kinds.into_iter().filter(|(_, synced)| !synced).map(|(kind, _)| kind).collect()
    }

    /// Waits for changes; none if all that has changed is what is still waited for. Dropping the wait loses
    /// nothing.
    pub(crate) async fn changed(&mut self) -> Vec<SourceChange> {
        tokio::select! {
            changed = self.namespaces.changed() => plain(changed, |id, labels| {
                Change::Namespace(id.name.as_str().into(), labels.map(|it| (*it).clone()))
            }),
            changed = self.pods.changed() => plain(changed, |id, pod| Change::Pod(key(id), pod)),
            changed = self.nodes.changed() => plain(changed, |id, node| {
                Change::Node(id.name.as_str().into(), node.map(|it| (*it).clone()))
            }),
            changed = self.services.changed() => plain(changed, |id, service| {
                Change::Service(key(id), service.map(|it| (*it).clone()))
            }),
            changed = self.pools.changed() => plain(changed, |id, pool| {
                let name: Arc<str> = id.name.as_str().into();
                let read = pool.and_then(|pool| document(&*pool)).and_then(|it| manifest::read(&it).ok());
                match read {
                    Some(Document::Cluster(change)) => change,
                    _ => Change::Pool(name, None),
                }
            }),
            changed = self.network_policies.changed() => policies(changed, |id, policy| {
                let kind = PolicyKind::NetworkPolicy;
                let gone = Change::NetworkPolicy(key(id), None);
                read(kind, id, policy.map(|it| it.manifest()), gone, isolate)
            }),
            changed = self.cluster_policies.changed() => policies(changed, |id, policy| {
                of_cluster(PolicyKind::ClusterNetworkPolicy, id, policy.map(|it| it.manifest()))
            }),
            changed = self.admin_policies.changed() => policies(changed, |id, policy| {
                of_cluster(PolicyKind::AdminNetworkPolicy, id, policy.map(|it| it.manifest()))
            }),
            changed = self.baseline_policies.changed() => policies(changed, |id, policy| {
                of_cluster(PolicyKind::BaselineAdminNetworkPolicy, id, policy.map(|it| it.manifest()))
            }),
            changed = self.groups.changed() => policies(changed, |id, group| {
                let gone = Change::Group(id.name.as_str().into(), None);
                let written = group.and_then(|it| document(&*it));
                read(PolicyKind::Group, id, written, gone, |_, _| None)
            }),
            changed = self.rules.changed() => policies(changed, |id, rule| {
                let gone = Change::Rule((false, id.name.as_str().into()), None);
                let written = rule.and_then(|it| document(&*it));
                read(PolicyKind::NetworkRule, id, written, gone, |_, _| None)
            }),
        }
    }
}

/// Without what a server keeps about an object: a change of that is no change here.
fn named<K: Resource>(mut object: K) -> K {
    let meta = object.meta_mut();
    let (name, namespace) = (meta.name.take(), meta.namespace.take());
    *meta = ObjectMeta { name, namespace, ..ObjectMeta::default() };
    object
}

fn key(id: &Id) -> Key {
    Key::new(id.namespace.as_deref().unwrap_or_default(), &id.name)
}

fn document(object: &impl serde::Serialize) -> Option<Value> {
    serde_json::to_value(object).ok()
}

fn plain<V>(
    changed: Vec<(Id, Option<V>)>,
    change: impl Fn(&Id, Option<V>) -> Change,
) -> Vec<SourceChange> {
    let changes = changed.into_iter().map(|(id, value)| change(&id, value));
    changes.map(SourceChange::plain).collect()
}

fn policies<V>(
    changed: Vec<(Id, Option<V>)>,
    change: impl Fn(&Id, Option<V>) -> SourceChange,
) -> Vec<SourceChange> {
    changed.into_iter().map(|(id, value)| change(&id, value)).collect()
}

fn of_cluster(kind: PolicyKind, id: &Id, written: Option<Value>) -> SourceChange {
    let gone = Change::ClusterPolicy((kind, id.name.as_str().into()), None);
    read(kind, id, written, gone, |_, _| None)
}

/// Reads a policy. `gone` is said of one that is not there, `unreadable` makes something of one that cannot
/// be read.
fn read(
    kind: PolicyKind,
    id: &Id,
    written: Option<Value>,
    gone: Change,
    unreadable: impl FnOnce(&Id, &Value) -> Option<Change>,
) -> SourceChange {
    let policy = Some(PolicyName { kind, name: id.to_string().into() });
    let Some(written) = written else {
        return SourceChange { policy, ..SourceChange::plain(gone) };
    };
    let (change, problem) = match manifest::read(&written) {
        Ok(Document::Policy(change, warnings)) => {
            (change, (!warnings.is_empty()).then(|| warnings.join("; ")))
        }
        Ok(_) => (gone, Some("is no policy".to_owned())),
        Err(wrong) => {
            let instead = unreadable(id, &written);
            let holds = match &instead {
                Some(_) => "until it is mended it accepts nothing",
                None => "until it is mended it decides nothing",
            };
            let problem = format!("cannot be read, {holds}: {wrong}");
            (instead.unwrap_or(gone), Some(problem))
        }
    };
    SourceChange { change, policy, problem, written: Some(Arc::new(written)) }
}

/// A NetworkPolicy of which only the selector can be read isolates whom it selects; without that, everybody
/// of its namespace.
fn isolate(_: &Id, written: &Value) -> Option<Change> {
    let spec = &written["spec"];
    let mut bare = written.clone();
    bare["spec"] = serde_json::json!({
        "podSelector": spec.get("podSelector").cloned().unwrap_or_default(),
        "policyTypes": spec.get("policyTypes").cloned().unwrap_or_default(),
    });
    let mut everybody = bare.clone();
    everybody["spec"] =
        serde_json::json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]});
    let read = |document: &Value| match manifest::read(document) {
        Ok(Document::Policy(change, _)) => Some(change),
        _ => None,
    };
    read(&bare).or_else(|| read(&everybody))
}

/// Publishes the objects of a kind that the server may not serve, or not yet, or no longer.
fn if_served<K: Kind>(objects: &Objects, tasks: &Tasks) -> Snapshot<Watched<Id, Arc<K>>> {
    let published = Snapshot::<Watched<Id, Arc<K>>>::default();
    let (objects, shown, stop) = (objects.clone(), published.clone(), tasks.stopping());
    tasks.spawn(format!("watch {} if it is served", K::NAME), async move {
        stop.bound(follow_if_served(objects, shown, stop.clone())).await;
    });
    published
}

async fn follow_if_served<K: Kind>(
    objects: Objects,
    shown: Snapshot<Watched<Id, Arc<K>>>,
    stop: Stop,
) {
    let mut missing: Option<Instant> = None;
    let tell = |event: Event<K>| {
        shown.update(|watched| watched.take(event, |object| Some(Arc::new(named(object)))));
    };
    while !stop.is_stopped() {
        match objects.list::<K>(&Within::default(), Deadline::after(LIST)).await {
            Ok(listing) => {
                if missing.take().is_some() {
                    info!(kind = K::NAME, "the kind is served now");
                }
                let version = listing.version.clone();
                tell(Event::Restarted(listing.items));
                let mut watch = objects.watch_after::<K>(Within::default(), version);
                let again = Deadline::after(LOOK_AGAIN);
                while let Ok(Some(event)) = again.bound(watch.next()).await {
                    tell(event);
                }
            }
            Err(error) if error.is_not_served() => {
                let since = *missing.get_or_insert_with(Instant::now);
                let known = shown.read(|watched| watched.synced && !watched.is_empty());
                if !known || since.elapsed() >= MISSING {
                    tell(Event::Restarted(Vec::new()));
                }
                tokio::time::sleep(LOOK).await;
            }
            Err(error) => {
                debug!(kind = K::NAME, error = sentence(&error), "the kind cannot be listed");
                tokio::time::sleep(LOOK / 5).await;
            }
        }
    }
}

#[cfg(test)]
mod tests;
