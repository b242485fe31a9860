//! The naive evaluator: what the API's documents say, in their order, over objects as they are.
//!
//! It is small and slow on purpose. The compiled program is tested against it, and `policy test` and
//! `policy explain` answer by it, because it knows which rule of which policy decided.

use std::net::IpAddr;
use std::sync::Arc;

use objects::kinds::{GroupMode, Protocol};

use crate::cluster::{AddressKind, Cluster, Pod};
use crate::program::{Direction, PolicyKind, Source, TierKind, Verdict};
use crate::spec::{
    Action, GuardGroup, GuardRule, Peer, Policies, PortMatch, domain_matches, within,
};

/// One side of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// The pod whose address it is; none for what no policy selects (nodes, pods in a node's network,
    /// addresses outside).
    pub pod: Option<Arc<Pod>>,
    /// None for a pod that has no address yet: networks do not hold it.
    pub address: Option<IpAddr>,
    /// The node whose own address it is.
    pub node: Option<Arc<str>>,
    /// The domain name that resolved to the address; lowercase, without a dot at the end.
    pub name: Option<Arc<str>>,
}

/// A connection that may be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    pub from: End,
    pub to: End,
    pub protocol: Protocol,
    /// The destination's; 0 where the protocol has none.
    pub port: u16,
}

/// What becomes of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub egress: DirectionDecision,
    pub ingress: DirectionDecision,
}

/// What becomes of it in one direction, and how that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectionDecision {
    pub allowed: bool,
    pub by: DecidedBy,
    /// The tiers that were asked, in their order.
    pub tiers: Vec<TierTrace>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecidedBy {
    /// It is no pod that policies select.
    NotSelectable,
    /// A pod always reaches itself.
    Itself,
    /// A node always reaches its own pods, whatever policies say, and no NetworkPolicy keeps them from
    /// their node.
    OwnNode,
    /// No tier decided: Kubernetes' default is to allow.
    Default,
    /// The rule of a policy.
    Rule { tier: TierKind, source: Source },
    /// NetworkPolicies select the pod, and none of their rules accepts it.
    Isolation { policies: Vec<Source> },
}

/// What one tier said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierTrace {
    pub tier: TierKind,
    /// How many policies of the tier speak of the pod in this direction.
    pub policies: usize,
    /// None: no rule matched.
    pub decided: Option<(Verdict, Source)>,
}

impl Decision {
    pub fn allowed(&self) -> bool {
        self.egress.allowed && self.ingress.allowed
    }
}

impl End {
    /// What has this address: a pod, a node or somebody outside.
    pub fn of_address(cluster: &Cluster, address: IpAddr) -> Self {
        let address = address.to_canonical();
        let pod = cluster.owner(address).cloned();
        let node = if pod.is_none() { cluster.node_of(address).cloned() } else { None };
        Self { pod, address: Some(address), node, name: None }
    }

    /// A pod, by one of its addresses. A pod in its node's network is its node.
    pub fn of_pod(pod: &Arc<Pod>, address: Option<IpAddr>) -> Self {
        if pod.host_network {
            let node = Some(Arc::clone(&pod.node)).filter(|node| !node.is_empty());
            return Self { pod: None, address, node, name: None };
        }
        Self { pod: Some(Arc::clone(pod)), address, node: None, name: None }
    }
}

/// Decides about a connection.
pub fn decide(cluster: &Cluster, policies: &Policies, connection: &Connection) -> Decision {
    let evaluator = Evaluator { cluster, policies, connection };
    Decision {
        egress: evaluator.direction(Direction::Egress),
        ingress: evaluator.direction(Direction::Ingress),
    }
}

struct Evaluator<'a> {
    cluster: &'a Cluster,
    policies: &'a Policies,
    connection: &'a Connection,
}

impl Evaluator<'_> {
    fn direction(&self, direction: Direction) -> DirectionDecision {
        let always = |by| DirectionDecision { allowed: true, by, tiers: Vec::new() };
        let Connection { from, to, .. } = self.connection;
        let (subject, peer) = match direction {
            Direction::Egress => (from, to),
            Direction::Ingress => (to, from),
        };
        let Some(pod) = subject.pod.as_ref().filter(|pod| pod.is_selectable()) else {
            return always(DecidedBy::NotSelectable);
        };
        if peer.pod.as_ref().is_some_and(|other| other.key == pod.key) {
            return always(DecidedBy::Itself);
        }
        let own_node = peer.node.as_ref().is_some_and(|node| *node == pod.node);
        if direction == Direction::Ingress && own_node {
            return always(DecidedBy::OwnNode);
        }
        let mut tiers = Vec::new();
        for tier in TIERS {
            let (trace, isolation) = self.tier(tier, pod, peer, direction);
            let decided = trace.decided.clone();
            if trace.policies > 0 {
                tiers.push(trace);
            }
            let (allowed, source) = match decided {
                Some((Verdict::Accept, source)) => (true, source),
                Some((Verdict::Deny(_), source)) => (false, source),
                Some((Verdict::Pass | Verdict::Report, _)) | None => continue,
            };
            let by = match isolation.is_empty() {
                true if *source.rule == *OWN_NODE => DecidedBy::OwnNode,
                true => DecidedBy::Rule { tier, source },
                false => DecidedBy::Isolation { policies: isolation },
            };
            return DirectionDecision { allowed, by, tiers };
        }
        DirectionDecision { allowed: true, by: DecidedBy::Default, tiers }
    }

    /// What a tier says, and which policies isolate the pod if that was what decided.
    fn tier(
        &self,
        tier: TierKind,
        pod: &Pod,
        peer: &End,
        direction: Direction,
    ) -> (TierTrace, Vec<Source>) {
        let trace = |policies, decided| TierTrace { tier, policies, decided };
        let alone = |policies, decided| (trace(policies, decided), Vec::new());
        match tier {
            TierKind::Quarantine => {
                let labels = self.cluster.namespaces.get(&pod.key.namespace);
                let groups = self.policies.groups_of(self.cluster, pod);
                let groups: Vec<_> = groups.iter().map(|it| Arc::clone(&it.name)).collect();
                let Some(by) = self.policies.put_apart(pod, labels, &groups) else {
                    return alone(0, None);
                };
                let deny = Verdict::Deny(self.policies.settings.guard);
                alone(1, Some((deny, quarantine(&by))))
            }
            TierKind::Admin | TierKind::Baseline => {
                let (policies, decided) = self.cluster_policies(tier, pod, peer, direction);
                alone(policies, decided)
            }
            TierKind::NetworkPolicy => self.network_policies(pod, peer, direction),
            TierKind::Guard => {
                let (policies, decided) = self.guard(pod, peer, direction);
                alone(policies, decided)
            }
        }
    }

    /// Policies by priority, their rules in order: the first that matches decides.
    fn cluster_policies(
        &self,
        tier: TierKind,
        pod: &Pod,
        peer: &End,
        direction: Direction,
    ) -> (usize, Option<(Verdict, Source)>) {
        let labels = self.cluster.namespaces.get(&pod.key.namespace);
        let mut speaking = 0;
        let mut decided = None;
        for policy in self.policies.in_order(tier) {
            let rules = policy.rules(direction);
            if rules.is_empty() || !policy.subject.selects(pod, labels) {
                continue;
            }
            speaking += 1;
            if decided.is_some() {
                continue;
            }
            let matching = rules.iter().enumerate().find(|(_, rule)| {
                self.ports(&rule.ports) && rule.peers.iter().any(|it| self.peer(it, peer))
            });
            decided = matching.map(|(i, rule)| {
                let verdict = match rule.action {
                    Action::Accept => Verdict::Accept,
                    Action::Deny => Verdict::Deny(self.policies.settings.cluster_policy),
                    Action::Pass => Verdict::Pass,
                };
                let source =
                    cluster_source(policy.kind, &policy.name, direction, i, rule.name.as_deref());
                (verdict, source)
            });
        }
        (speaking, decided)
    }

    /// What any rule of any policy accepts is accepted; the rest is denied if any policy selects the pod.
    fn network_policies(
        &self,
        pod: &Pod,
        peer: &End,
        direction: Direction,
    ) -> (TierTrace, Vec<Source>) {
        let tier = TierKind::NetworkPolicy;
        let policies = self.policies.network.values();
        let isolating: Vec<_> = policies
            .filter(|policy| policy.selects(pod))
            .filter_map(|policy| Some((policy, policy.rules(direction)?)))
            .collect();
        let policies = isolating.len();
        for (policy, rules) in &isolating {
            for (i, rule) in rules.iter().enumerate() {
                if self.ports(&rule.ports) && rule.peers.iter().any(|it| self.peer(it, peer)) {
                    let source = network_source(&policy.key.to_string(), direction, i);
                    let decided = Some((Verdict::Accept, source));
                    return (TierTrace { tier, policies, decided }, Vec::new());
                }
            }
        }
        // Kubernetes' documents: traffic to and from the node where a pod runs is always allowed.
        let to_own_node =
            direction == Direction::Egress && peer.node.as_ref().is_some_and(|it| *it == pod.node);
        if let Some((first, _)) = isolating.first().filter(|_| to_own_node) {
            let decided = Some((Verdict::Accept, own_node(&first.key.to_string())));
            return (TierTrace { tier, policies, decided }, Vec::new());
        }
        let isolation: Vec<_> =
            isolating.iter().map(|(policy, _)| isolation(&policy.key.to_string())).collect();
        let deny = Verdict::Deny(self.policies.settings.network_policy);
        let decided = isolation.first().map(|source| (deny, source.clone()));
        (TierTrace { tier, policies, decided }, isolation)
    }

    /// Guard looks at both ends. The first rule that speaks of them decides, written ones first; what no
    /// rule allows is denied if the laxer end is in protect, reported if it is in monitor.
    fn guard(
        &self,
        pod: &Pod,
        peer: &End,
        direction: Direction,
    ) -> (usize, Option<(Verdict, Source)>) {
        let own = self.mode(pod);
        if own == GroupMode::Discover {
            return (0, None);
        }
        let peers_mode = peer.pod.as_ref().map(|peer| self.mode(peer));
        let laxer = peers_mode.map_or(own, |mode| mode.min(own));
        let speaks = |rule: &GuardRule| {
            let (subject_group, peer_group) = match direction {
                Direction::Egress => (&rule.from, &rule.to),
                Direction::Ingress => (&rule.to, &rule.from),
            };
            let Connection { protocol, port, .. } = self.connection;
            (rule.ports.is_empty() || rule.ports.iter().any(|it| it.contains(*protocol, *port)))
                && self.pod_in_group(pod, subject_group)
                && self.end_in_group(peer, peer_group)
        };
        let rules = self.policies.guard_rules();
        let rule = rules.iter().find(|rule| speaks(rule));
        let deny = Verdict::Deny(self.policies.settings.guard);
        let verdict = match (rule.map(|rule| rule.allows), laxer) {
            (Some(true), _) => Verdict::Accept,
            (None, GroupMode::Discover) => return (1, None),
            (Some(false), GroupMode::Discover) | (_, GroupMode::Monitor) => Verdict::Report,
            (_, GroupMode::Protect) => deny,
        };
        let source = rule.map_or_else(|| mode_source(own), |rule| guard_source(&rule.name));
        (1, Some((verdict, source)))
    }

    fn mode(&self, pod: &Pod) -> GroupMode {
        self.policies.mode_of(&self.policies.groups_of(self.cluster, pod))
    }

    fn pod_in_group(&self, pod: &Pod, group: &GuardGroup) -> bool {
        match group {
            GuardGroup::Any | GuardGroup::Workloads => true,
            GuardGroup::Learned { namespace, owner } => {
                pod.key.namespace == *namespace && pod.owner == *owner
            }
            GuardGroup::Made(name) => {
                self.policies.groups_of(self.cluster, pod).iter().any(|it| it.name == *name)
            }
            _ => false,
        }
    }

    fn end_in_group(&self, end: &End, group: &GuardGroup) -> bool {
        if let (GuardGroup::Made(group), Some(name)) = (group, &end.name)
            && let Some(group) = self.policies.groups.get(group)
            && group.domains.iter().any(|pattern| domain_matches(pattern, name))
        {
            return true;
        }
        if let Some(pod) = &end.pod {
            return self.pod_in_group(pod, group);
        }
        let kind = match (&end.node, end.address) {
            (Some(_), _) => AddressKind::Host,
            (None, Some(address)) => self.cluster.kind_of(address),
            (None, None) => return *group == GuardGroup::Any,
        };
        match group {
            GuardGroup::Any => true,
            GuardGroup::Workloads | GuardGroup::Learned { .. } => false,
            GuardGroup::Hosts => kind == AddressKind::Host,
            GuardGroup::Services => kind == AddressKind::Service,
            GuardGroup::Ingress => kind == AddressKind::Ingress,
            GuardGroup::External => kind == AddressKind::External,
            GuardGroup::Unmanaged => kind == AddressKind::Unmanaged,
            GuardGroup::Made(name) => {
                let group = self.policies.groups.get(name);
                let fits = |address| group.is_some_and(|it| it.criteria.fits_address(address));
                end.address.is_some_and(fits)
            }
        }
    }

    fn peer(&self, peer: &Peer, end: &End) -> bool {
        match peer {
            Peer::Everyone => true,
            Peer::Pods(selection) => end.pod.as_ref().is_some_and(|pod| {
                selection.selects(pod, self.cluster.namespaces.get(&pod.key.namespace))
            }),
            Peer::Networks { networks, except } => {
                end.address.is_some_and(|address| within(networks, except, address))
            }
            Peer::Nodes(selector) => self.nodes_of(end).any(|name| {
                let node = self.cluster.nodes.get(name);
                node.is_some_and(|node| selector.matches(Some(&node.labels)))
            }),
            // Which addresses a name has is known to agents alone, or told by who asks.
            Peer::Domains(names) => end
                .name
                .as_ref()
                .is_some_and(|name| names.iter().any(|pattern| domain_matches(pattern, name))),
        }
    }

    /// The nodes whose address an end has: it is one's, unless two nodes say the same.
    fn nodes_of<'a>(&'a self, end: &'a End) -> impl Iterator<Item = &'a Arc<str>> {
        let by_address = self.cluster.nodes.iter().filter(|(name, node)| {
            let named = end.node.as_ref() == Some(*name);
            named || end.address.is_some_and(|address| node.addresses.contains(&address))
        });
        by_address.filter(|_| end.pod.is_none()).map(|(name, _)| name)
    }

    fn ports(&self, ports: &[PortMatch]) -> bool {
        let Connection { to, protocol, port, .. } = self.connection;
        ports.is_empty()
            || ports.iter().any(|it| match it {
                PortMatch::Numbers(numbers) => numbers.contains(*protocol, *port),
                PortMatch::Named { protocol: wanted, name } => to.pod.as_ref().is_some_and(|pod| {
                    let ports = pod.ports.iter();
                    let mut named = ports.filter(|it| {
                        it.name == *name && wanted.is_none_or(|wanted| it.protocol == wanted)
                    });
                    named.any(|it| it.protocol == *protocol && it.port == *port)
                }),
            })
    }
}

const TIERS: [TierKind; 5] = [
    TierKind::Quarantine,
    TierKind::Admin,
    TierKind::NetworkPolicy,
    TierKind::Guard,
    TierKind::Baseline,
];

pub(crate) fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Egress => "egress",
        Direction::Ingress => "ingress",
    }
}

pub(crate) fn network_source(policy: &str, direction: Direction, place: usize) -> Source {
    let rule = format!("{}[{place}]", direction_name(direction)).into();
    Source { kind: PolicyKind::NetworkPolicy, policy: policy.into(), rule }
}

/// What a NetworkPolicy calls the rule that nobody writes: a pod reaches the node it runs on.
const OWN_NODE: &str = "own-node";

pub(crate) fn own_node(policy: &str) -> Source {
    Source { kind: PolicyKind::NetworkPolicy, policy: policy.into(), rule: OWN_NODE.into() }
}

pub(crate) fn isolation(policy: &str) -> Source {
    Source { kind: PolicyKind::NetworkPolicy, policy: policy.into(), rule: "isolation".into() }
}

pub(crate) fn cluster_source(
    kind: PolicyKind,
    policy: &str,
    direction: Direction,
    place: usize,
    name: Option<&str>,
) -> Source {
    let at = format!("{}[{place}]", direction_name(direction));
    let rule = name.map_or_else(|| at.clone(), |name| format!("{at} {name}"));
    Source { kind, policy: policy.into(), rule: rule.into() }
}

pub(crate) fn guard_source(rule: &str) -> Source {
    Source { kind: PolicyKind::NetworkRule, policy: rule.into(), rule: "rule".into() }
}

/// No rule allows it, in a workload of this mode.
pub(crate) fn mode_source(mode: GroupMode) -> Source {
    Source { kind: PolicyKind::Group, policy: mode.to_string().into(), rule: "no rule".into() }
}

/// `by` is the label, or a group.
pub(crate) fn quarantine(by: &Arc<str>) -> Source {
    let rule = if **by == *crate::spec::QUARANTINE { "label" } else { "group" };
    Source { kind: PolicyKind::Quarantine, policy: Arc::clone(by), rule: rule.into() }
}

#[cfg(test)]
mod tests;
