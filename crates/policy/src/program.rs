//! `Program`: what one node enforces. It is the contract between the compiler of policies, the message
//! that carries it to an agent, and whoever makes a kernel decide by it.
//!
//! # How a packet is judged
//!
//! ```text
//! packet ──► a reply? ─────────────────────────────────────────────────────► passes
//!        ──► from the node itself (its output hook) to a pod of the node? ──► passes
//!        ──► pods[source]      ──► class ──► egress chain  ─┬─ Deny ──► dropped
//!                                                           └─ else ──► goes on
//!        ──► pods[destination] ──► class ──► ingress chain ─┬─ Deny ──► dropped
//!                                                           └─ else ──► passes
//! ```
//!
//! Addresses are those after destination NAT: a pod's, never a Service's. An address that is not in
//! [`Program::pods`] has no chain in this program: it is no pod of this node, or a pod in the node's
//! own network, which no policy selects. What a pod sends to its own node is judged by its egress chain. ICMPv6 neighbour discovery passes and is no matter of a program.
//!
//! A [`Chain`] is a list of tiers, a [`Tier`] a list of rules. The first [`Rule`] of a tier that matches
//! decides what its [`Verdict`] says:
//!
//! | verdict | this chain | the packet |
//! |---|---|---|
//! | `Accept` | ends | goes on (egress: to the destination's ingress chain) |
//! | `Deny` | ends | is dropped or rejected |
//! | `Pass` | goes on with the next tier | |
//! | `Report` | goes on with the next tier | is told of as a violation |
//!
//! A tier without a matching rule is as `Pass`; a chain that comes to its end is as `Accept`. What
//! "deny by default" means is an ordinary last rule that matches everything.
//!
//! A rule matches if its ports, its `within` and all of its `without` do; the *peer* is the
//! destination in an egress chain, the source in an ingress chain:
//!
//! - [`Rule::ports`]: protocol and destination port. Empty: every protocol, also those without ports.
//!   An entry that [is all of a protocol](Ports::is_all) holds for the protocol without a look at ports
//!   (ICMP has none to look at).
//! - [`Rule::within`]: the peer is in this set; without one, every peer is. A set of
//!   [`SetKind::AddressPorts`] holds the peer in an ingress chain too, with the *destination's* port.
//! - [`Rule::without`]: the peer is in none of these sets.
//!
//! # What is shared, and what changes
//!
//! Sets, chains and classes are named by a hash of what they mean ([`SetId`], [`ChainId`], [`ClassId`]),
//! so those that mean the same are one, on every node, after every restart. A chain and a class never
//! change: another meaning is another id, and the pods' entries move to it. Of a set the meaning stays
//! (`pods of namespace shop`) and elements come and go; a set of [`SetKind::Networks`] never changes.
//! Pods that no policy tells apart are of one class.
//!
//! A chain has few rules however many policies there are: what is unordered is merged by ports into one
//! union set, what is ordered by runs of one verdict. [`Rule::sources`] lists the rules of policies that a
//! merged rule stands for. [`Chain::lookups`] is at most [`MOST_LOOKUPS`]; where merging would take more
//! elements than allowed or order forbids it, rules stay single and a [`Note`] says so.
//!
//! # Deltas
//!
//! A [`Delta`] leads from one generation to a later one. One from generation 0 is the whole program. Made
//! in this order every step has what it refers to: new sets with elements, added elements, new chains,
//! new classes, pods that come, change and go, then classes, chains, elements and sets that go. It is
//! meant to be one atomic batch.
//!
//! # Example
//!
//! NetworkPolicy `shop/db` admits pods with `app: web` to pods with `app: db` on TCP 5432; on this node
//! 10.0.1.5 is such a `db`, and 10.0.2.7 is a `web` somewhere:
//!
//! ```text
//! pods     10.0.1.5 ──► shop/db-0, class C
//! classes  C ──► egress none, ingress I
//! chains   I ──► [NetworkPolicy: accept tcp/5432 within S   (shop/db ingress[0])
//!                                deny   everything          (shop/db isolation)]
//! sets     S (Addresses) ──► 10.0.2.7
//! ```
//!
//! ```
//! use policy::program::{Packet, Program, Direction};
//! # use policy::program::*;
//! # use std::sync::Arc;
//! # let web = SetId::of("pods of shop with app=web");
//! # let source = |rule: &str| Source {
//! #     kind: PolicyKind::NetworkPolicy, policy: "shop/db".into(), rule: rule.into() };
//! # let accept = Rule::new(Verdict::Accept, vec!["tcp/5432".parse().unwrap()], Some(web),
//! #     vec![source("ingress[0]")]);
//! # let deny = Rule::new(Verdict::DROP, vec![], None, vec![source("isolation")]);
//! # let chain = Chain { direction: Direction::Ingress,
//! #     tiers: vec![Tier { kind: TierKind::NetworkPolicy, rules: vec![accept, deny] }] };
//! # let class = Class { egress: None, ingress: Some(chain.id()) };
//! # let mut program = Program::default();
//! # let address = "10.0.1.5".parse().unwrap();
//! # program.apply(&Delta {
//! #     to: 1,
//! #     sets: vec![SetChange { id: web, change: SetEdit::New { kind: SetKind::Addresses,
//! #         elements: vec![Element::Address("10.0.2.7".parse().unwrap())] } }],
//! #     chains: vec![(chain.id(), Arc::new(chain.clone()))],
//! #     classes: vec![(class.id(), class)],
//! #     pods: vec![(address, Some(LocalPod { pod: "shop/db-0".into(), class: class.id() }))],
//! #     ..Delta::default()
//! # }).unwrap();
//! let web: Packet = Packet::tcp("10.0.2.7".parse()?, "10.0.1.5".parse()?, 5432);
//! assert!(program.judge(&web).passes());
//! let other = Packet::tcp("10.0.9.9".parse()?, "10.0.1.5".parse()?, 5432);
//! let judged = program.judge(&other);
//! assert!(!judged.passes());
//! let by = judged.ingress.by.unwrap();
//! assert_eq!((&*by.sources[0].policy, &*by.sources[0].rule), ("shop/db", "isolation"));
//! # Ok::<(), std::net::AddrParseError>(())
//! ```

mod delta;
mod id;
mod judge;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use imbl::OrdSet;
pub use objects::kinds::{Ports, Protocol};

pub use delta::{Delta, Gap, SetChange, SetEdit};
pub use id::{ChainId, ClassId, CounterId, Fingerprint, SetId};
pub use judge::{By, Direction, Judged, JudgedChain, Packet};

/// The most set lookups of one chain's worst path, if nothing is noted about it.
pub const MOST_LOOKUPS: usize = 8;

/// What one node enforces, at one generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Counts up; 0 is the empty program that nobody sent.
    pub generation: u64,
    pub sets: BTreeMap<SetId, Set>,
    pub chains: BTreeMap<ChainId, Arc<Chain>>,
    pub classes: BTreeMap<ClassId, Class>,
    /// Every address of every pod of the node that has addresses of its own, also of those that no
    /// policy selects: a pod whose address is here has been considered.
    pub pods: BTreeMap<IpAddr, LocalPod>,
    /// Whom a policy may isolate before it has been considered. Programs of one cluster share it.
    pub unsettled: Arc<Unsettled>,
    pub notes: BTreeSet<Note>,
}

/// A pod of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalPod {
    /// Namespace and name, as `shop/web-0`.
    pub pod: Arc<str>,
    pub class: ClassId,
}

/// What is decided about pods that no policy tells apart; without a chain nothing is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Class {
    pub egress: Option<ChainId>,
    pub ingress: Option<ChainId>,
}

/// The rules for one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    pub direction: Direction,
    /// In the order of [`TierKind`]; none is empty.
    pub tiers: Vec<Tier>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    pub kind: TierKind,
    pub rules: Vec<Rule>,
}

/// The tiers, in the order in which they decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TierKind {
    /// Workloads that somebody put apart by a label.
    Quarantine,
    /// ClusterNetworkPolicy of tier Admin; AdminNetworkPolicy.
    Admin,
    NetworkPolicy,
    /// Groups and network rules of guard.
    Guard,
    /// ClusterNetworkPolicy of tier Baseline; BaselineAdminNetworkPolicy.
    Baseline,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub verdict: Verdict,
    /// Sorted, disjoint; empty is everything.
    pub ports: Vec<Ports>,
    pub within: Option<SetId>,
    pub without: Vec<SetId>,
    /// Whether packets that it matches are told of as violations, at a bounded rate.
    pub report: bool,
    /// The rules of policies that it stands for.
    pub sources: Vec<Source>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    Accept,
    Deny(Denial),
    Pass,
    Report,
}

/// How a packet is denied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Denial {
    #[default]
    Drop,
    /// TCP by a reset, everything else by "administratively prohibited".
    Reject,
}

/// A rule of a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source {
    pub kind: PolicyKind,
    /// The policy's name, with its namespace if it has one.
    pub policy: Arc<str>,
    /// As `ingress[0]`, with its name if it has one: `egress[2] dns`. `isolation`: it selects the pod,
    /// and no rule accepts the packet.
    pub rule: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyKind {
    NetworkPolicy,
    ClusterNetworkPolicy,
    AdminNetworkPolicy,
    BaselineAdminNetworkPolicy,
    /// A rule of guard, written or learned.
    NetworkRule,
    /// The mode of a group of guard, or of workloads in none.
    Group,
    /// The label on a pod or a namespace that puts it apart.
    Quarantine,
}

/// Peers, or peers with ports. An address family is no part of it: elements of both may be in one set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    pub kind: SetKind,
    pub elements: OrdSet<Element>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SetKind {
    /// Of [`Element::Address`]: a hash; pods and nodes come and go in it.
    Addresses,
    /// Of [`Element::AddressPort`]: a hash of peer, protocol and destination port. The rule's own
    /// `ports` are empty.
    AddressPorts,
    /// Of [`Element::Range`], disjoint and not adjacent: intervals. It never changes.
    Networks,
    /// Has no elements in a program: the agent fills it with the addresses to which these names resolve,
    /// for as long as the answers live. Names are lowercase, without a dot at the end;
    /// `*.example.com` is every name below `example.com`, and not that itself.
    Domains(Vec<Arc<str>>),
    /// Has no elements: the addresses of the node that enforces the program, all of them. The node itself
    /// knows them.
    OwnNode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Element {
    Address(IpAddr),
    AddressPort {
        address: IpAddr,
        protocol: Protocol,
        port: u16,
    },
    /// Both ends are of one family, and belong to it.
    Range {
        first: IpAddr,
        last: IpAddr,
    },
}

/// What a rule has counted on one node, in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleTotal {
    pub counter: CounterId,
    pub packets: u64,
    pub bytes: u64,
}

/// Whom a policy may isolate: pods that were not considered yet are known by their namespace alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unsettled {
    /// A policy of the whole cluster denies something to pods of any namespace.
    pub everywhere: bool,
    /// A policy denies something to pods of these.
    pub namespaces: BTreeSet<Arc<str>>,
}

/// What whoever runs the cluster should know of a program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Note {
    /// The chain's worst path has more than [`MOST_LOOKUPS`]: rules could not be merged.
    Long { chain: ChainId, lookups: usize, why: Arc<str> },
}

impl Unsettled {
    /// Whether a pod that was not considered yet may be isolated.
    pub fn may_isolate(&self, namespace: &str) -> bool {
        self.everywhere || self.namespaces.contains(namespace)
    }
}

impl Verdict {
    pub const DROP: Self = Self::Deny(Denial::Drop);

    pub fn is_deny(self) -> bool {
        matches!(self, Self::Deny(_))
    }
}

impl Rule {
    pub fn new(
        verdict: Verdict,
        ports: Vec<Ports>,
        within: Option<SetId>,
        sources: Vec<Source>,
    ) -> Self {
        Self { verdict, ports, within, without: Vec::new(), report: false, sources }
    }

    /// How many sets a packet that it does not match is looked up in, at most.
    pub fn lookups(&self) -> usize {
        usize::from(!self.ports.is_empty())
            + usize::from(self.within.is_some())
            + self.without.len()
    }

    pub fn sets(&self) -> impl Iterator<Item = SetId> + '_ {
        self.within.iter().chain(&self.without).copied()
    }
}

impl Chain {
    /// How many sets a packet is looked up in on the worst path through the chain.
    pub fn lookups(&self) -> usize {
        self.rules().map(|(_, rule)| rule.lookups()).sum()
    }

    pub fn rules(&self) -> impl Iterator<Item = (TierKind, &Rule)> {
        self.tiers.iter().flat_map(|tier| tier.rules.iter().map(move |rule| (tier.kind, rule)))
    }

    pub fn sets(&self) -> impl Iterator<Item = SetId> + '_ {
        self.rules().flat_map(|(_, rule)| rule.sets())
    }
}

impl Class {
    pub fn chain(&self, direction: Direction) -> Option<ChainId> {
        match direction {
            Direction::Egress => self.egress,
            Direction::Ingress => self.ingress,
        }
    }

    pub fn chains(&self) -> impl Iterator<Item = ChainId> {
        self.egress.into_iter().chain(self.ingress)
    }
}

impl Set {
    pub fn new(kind: SetKind) -> Self {
        Self { kind, elements: OrdSet::new() }
    }
}

impl fmt::Display for TierKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Quarantine => "Quarantine",
            Self::Admin => "Admin",
            Self::NetworkPolicy => "NetworkPolicy",
            Self::Guard => "Guard",
            Self::Baseline => "Baseline",
        })
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NetworkPolicy => "NetworkPolicy",
            Self::ClusterNetworkPolicy => "ClusterNetworkPolicy",
            Self::AdminNetworkPolicy => "AdminNetworkPolicy",
            Self::BaselineAdminNetworkPolicy => "BaselineAdminNetworkPolicy",
            Self::NetworkRule => "NetworkRule",
            Self::Group => "Group",
            Self::Quarantine => "Quarantine",
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accept => "accept",
            Self::Deny(Denial::Drop) => "drop",
            Self::Deny(Denial::Reject) => "reject",
            Self::Pass => "pass",
            Self::Report => "report",
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.kind, self.policy, self.rule)
    }
}

#[cfg(test)]
mod tests;
