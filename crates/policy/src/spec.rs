//! Policies as plain values, whatever kind they were written in.
//!
//! AdminNetworkPolicy and BaselineAdminNetworkPolicy are ClusterNetworkPolicies here.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use objects::Selector;
use objects::kinds::{
    GroupCriteria, GroupKey, GroupMode, GroupSpec, NetworkRule, Ports, Protocol, RuleAction,
    network,
};

use crate::cluster::{Cluster, Key, Labels, Pod};
use crate::program::{Denial, Direction, PolicyKind, TierKind};
use crate::ranges::Ranges;

/// A pod or a namespace with this label is put apart, unless its value is `false`.
pub const QUARANTINE: &str = "fairlead.dev/quarantine";

/// All policies, and what is set about them.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    pub network: BTreeMap<Key, Arc<NetworkPolicy>>,
    pub cluster: BTreeMap<(PolicyKind, Arc<str>), Arc<ClusterPolicy>>,
    pub groups: BTreeMap<Arc<str>, Arc<Group>>,
    /// By whether they were learned, and name.
    pub rules: BTreeMap<(bool, Arc<str>), Arc<GuardRule>>,
    pub settings: Settings,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The mode of workloads in no group that has one.
    pub mode: GroupMode,
    /// How NetworkPolicies deny.
    pub network_policy: Denial,
    /// How ClusterNetworkPolicies deny.
    pub cluster_policy: Denial,
    /// How guard denies.
    pub guard: Denial,
}

impl Default for Settings {
    fn default() -> Self {
        let (drop, mode) = (Denial::Drop, GroupMode::Discover);
        Self { mode, network_policy: drop, cluster_policy: drop, guard: drop }
    }
}

/// Kubernetes' NetworkPolicy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkPolicy {
    pub key: Key,
    pub pods: Selector,
    /// None: it says nothing about ingress. No rule: it admits nothing.
    pub ingress: Option<Vec<AcceptRule>>,
    pub egress: Option<Vec<AcceptRule>>,
}

/// What a NetworkPolicy accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptRule {
    pub peers: Vec<Peer>,
    /// Empty: every protocol and port.
    pub ports: Vec<PortMatch>,
}

/// A policy of the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterPolicy {
    pub kind: PolicyKind,
    pub name: Arc<str>,
    /// Admin or Baseline.
    pub tier: TierKind,
    pub priority: i32,
    pub subject: PodSelection,
    pub ingress: Vec<ActionRule>,
    pub egress: Vec<ActionRule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionRule {
    pub name: Option<Arc<str>>,
    pub action: Action,
    pub peers: Vec<Peer>,
    /// Empty: every protocol and port.
    pub ports: Vec<PortMatch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Accept,
    Deny,
    Pass,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    Everyone,
    Pods(PodSelection),
    /// Addresses in `networks` and not in `except`, whoever has them.
    Networks {
        networks: Vec<IpNet>,
        except: Vec<IpNet>,
    },
    /// The addresses of nodes.
    Nodes(Selector),
    /// Lowercase, without a dot at the end.
    Domains(Vec<Arc<str>>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSelection {
    pub namespaces: NamespaceSelection,
    pub pods: Selector,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceSelection {
    Named(Arc<str>),
    Labelled(Selector),
}

/// A port of the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortMatch {
    Numbers(Ports),
    /// A container port of the destination, if it is a pod; without a protocol, of any.
    Named {
        protocol: Option<Protocol>,
        name: Arc<str>,
    },
}

/// A group of guard.
#[derive(Debug)]
pub struct Group {
    pub name: Arc<str>,
    pub mode: Option<GroupMode>,
    /// Its workloads are put apart.
    pub quarantine: bool,
    pub criteria: GroupCriteria,
    /// The addresses that are in it though they are no workload's; none if it speaks of anything but
    /// addresses.
    pub networks: Option<Ranges>,
    /// The domain names whose addresses are in it, if it names some; it then names nothing else.
    pub domains: Vec<Arc<str>>,
}

/// A rule of guard, written or learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardRule {
    pub name: Arc<str>,
    /// Learned rules come after all written ones.
    pub learned: bool,
    pub priority: i32,
    pub from: GuardGroup,
    pub to: GuardGroup,
    /// Empty: every protocol and port.
    pub ports: Vec<Ports>,
    /// What no packet tells: a rule that asks for it decides about no packet.
    pub applications: Vec<String>,
    pub allows: bool,
}

/// Whom a rule of guard names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GuardGroup {
    Any,
    Workloads,
    Hosts,
    Services,
    Ingress,
    External,
    Unmanaged,
    /// The workloads of one owner.
    Learned {
        namespace: Arc<str>,
        owner: Arc<str>,
    },
    Made(Arc<str>),
}

impl Policies {
    /// The policies of a tier in the order in which they decide: by priority, then by kind and name.
    pub fn in_order(&self, tier: TierKind) -> Vec<&Arc<ClusterPolicy>> {
        let mut all: Vec<_> = self.cluster.values().filter(|it| it.tier == tier).collect();
        all.sort_by_key(|it| (it.priority, it.kind, Arc::clone(&it.name)));
        all
    }

    /// The rules of guard that packets can be judged by, in the order in which they decide.
    pub fn guard_rules(&self) -> Vec<&Arc<GuardRule>> {
        let rules = self.rules.values().filter(|rule| rule.applications.is_empty());
        let mut rules: Vec<_> = rules.collect();
        rules.sort_by_key(|rule| (rule.learned, rule.priority, Arc::clone(&rule.name)));
        rules
    }
}

impl NetworkPolicy {
    pub fn rules(&self, direction: Direction) -> Option<&[AcceptRule]> {
        match direction {
            Direction::Egress => self.egress.as_deref(),
            Direction::Ingress => self.ingress.as_deref(),
        }
    }

    pub fn selects(&self, pod: &Pod) -> bool {
        pod.is_selectable()
            && pod.key.namespace == self.key.namespace
            && self.pods.matches(Some(&pod.labels))
    }
}

impl ClusterPolicy {
    pub fn rules(&self, direction: Direction) -> &[ActionRule] {
        match direction {
            Direction::Egress => &self.egress,
            Direction::Ingress => &self.ingress,
        }
    }
}

impl PodSelection {
    /// Whether it selects the pod; `namespace` are the labels of its namespace.
    pub fn selects(&self, pod: &Pod, namespace: Option<&Labels>) -> bool {
        pod.is_selectable()
            && self.namespaces.selects(&pod.key.namespace, namespace)
            && self.pods.matches(Some(&pod.labels))
    }
}

impl NamespaceSelection {
    /// A namespace that is not known has no labels, and is selected by name alone.
    pub fn selects(&self, name: &str, labels: Option<&Labels>) -> bool {
        match self {
            Self::Named(namespace) => **namespace == *name,
            Self::Labelled(selector) => labels.is_some() && selector.matches(labels),
        }
    }
}

impl Group {
    pub fn new(name: &str, spec: &GroupSpec) -> Result<Self, objects::Invalid> {
        let criteria = GroupCriteria::compile(&spec.criteria)?;
        let domains = spec.criteria.iter().filter(|it| it.key == GroupKey::Domain);
        let domains = domains.filter_map(|it| objects::kinds::domain(&it.value).ok());
        let domains = domains.map(Arc::from).collect();
        let (mode, quarantine, networks) = (spec.mode, spec.quarantine, networks(spec));
        Ok(Self { name: name.into(), mode, quarantine, criteria, networks, domains })
    }
}

/// What a group says of addresses, if it speaks of nothing else.
fn networks(spec: &GroupSpec) -> Option<Ranges> {
    if spec.criteria.is_empty() || spec.criteria.iter().any(|it| it.key != GroupKey::Address) {
        return None;
    }
    let part = |negative: bool| -> Vec<IpNet> {
        let part = spec.criteria.iter().filter(|it| it.op.is_negative() == negative);
        part.filter_map(|criterion| network(&criterion.value)).collect()
    };
    let (within, without) = (part(false), part(true));
    let within = if within.is_empty() { Ranges::everything() } else { Ranges::of(&within) };
    Some(within.minus(&Ranges::of(&without)))
}

impl From<&NetworkRule> for GuardRule {
    fn from(rule: &NetworkRule) -> Self {
        let spec = &rule.spec;
        Self {
            name: rule.metadata.name.as_deref().unwrap_or_default().into(),
            learned: false,
            priority: spec.priority,
            from: GuardGroup::parse(&spec.from),
            to: GuardGroup::parse(&spec.to),
            ports: spec.ports.iter().filter_map(|text| text.parse().ok()).collect(),
            applications: spec.applications.clone(),
            allows: spec.action == RuleAction::Allow,
        }
    }
}

impl GuardGroup {
    /// Reads a name that was checked; what is no name is a group that nobody made.
    pub fn parse(text: &str) -> Self {
        use objects::kinds::GroupName;
        match GroupName::parse(text) {
            Ok(GroupName::Reserved("any")) => Self::Any,
            Ok(GroupName::Reserved("workloads")) => Self::Workloads,
            Ok(GroupName::Reserved("hosts")) => Self::Hosts,
            Ok(GroupName::Reserved("services")) => Self::Services,
            Ok(GroupName::Reserved("ingress")) => Self::Ingress,
            Ok(GroupName::Reserved("external")) => Self::External,
            Ok(GroupName::Reserved(_)) => Self::Unmanaged,
            Ok(GroupName::Learned { namespace, owner }) => {
                Self::Learned { namespace: namespace.into(), owner: owner.into() }
            }
            Ok(GroupName::Made(_)) | Err(_) => Self::Made(text.into()),
        }
    }
}

impl fmt::Display for GuardGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Workloads => f.write_str("workloads"),
            Self::Hosts => f.write_str("hosts"),
            Self::Services => f.write_str("services"),
            Self::Ingress => f.write_str("ingress"),
            Self::External => f.write_str("external"),
            Self::Unmanaged => f.write_str("unmanaged"),
            Self::Learned { namespace, owner } => write!(f, "{namespace}/{owner}"),
            Self::Made(name) => f.write_str(name),
        }
    }
}

impl Policies {
    /// The groups of guard that a workload is in, by name.
    pub fn groups_of(&self, cluster: &Cluster, pod: &Pod) -> Vec<&Arc<Group>> {
        if self.groups.is_empty() {
            return Vec::new();
        }
        let services = cluster.services_of(pod);
        let subject = objects::kinds::GroupSubject {
            namespace: &pod.key.namespace,
            name: &pod.key.name,
            owner: Some(&pod.owner),
            node: &pod.node,
            images: &pod.images,
            labels: &pod.labels,
            addresses: &pod.addresses,
            services: &services,
            namespace_labels: cluster.namespaces.get(&pod.key.namespace),
        };
        self.groups.values().filter(|group| group.criteria.fits(&subject)).collect()
    }

    /// How strictly a workload is watched: the strictest mode of its groups, or the default.
    pub fn mode_of(&self, groups: &[&Arc<Group>]) -> GroupMode {
        groups.iter().filter_map(|group| group.mode).max().unwrap_or(self.settings.mode)
    }
}

/// Whether these labels of a pod or a namespace put it apart.
pub fn is_set_apart(labels: &Labels) -> bool {
    labels.get(QUARANTINE).is_some_and(|value| value != "false")
}

/// Whether a label puts a pod apart, its own or its namespace's.
pub fn is_labelled_apart(pod: &Pod, namespace: Option<&Labels>) -> bool {
    is_set_apart(&pod.labels) || namespace.is_some_and(is_set_apart)
}

impl Policies {
    /// What puts a pod apart: the label, or the group that does; none if nothing does. `groups` are those
    /// that the pod is in, by name.
    pub fn put_apart(
        &self,
        pod: &Pod,
        namespace: Option<&Labels>,
        groups: &[Arc<str>],
    ) -> Option<Arc<str>> {
        if is_labelled_apart(pod, namespace) {
            return Some(QUARANTINE.into());
        }
        let group = |name: &&Arc<str>| self.groups.get(*name).is_some_and(|it| it.quarantine);
        groups.iter().find(group).cloned()
    }
}

/// Whether a name fits to one of a rule's domain names.
pub fn domain_matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix("*.") {
        Some(parent) => {
            let below = name.strip_suffix(parent).and_then(|rest| rest.strip_suffix('.'));
            below.is_some_and(|rest| !rest.is_empty())
        }
        None => pattern == name,
    }
}

/// Whether an address is in networks and in no exception.
pub fn within(networks: &[IpNet], except: &[IpNet], address: IpAddr) -> bool {
    networks.iter().any(|it| it.contains(&address))
        && !except.iter().any(|it| it.contains(&address))
}
