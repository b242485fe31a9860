//! `Atom`: a selection of peers that changes as a whole, and sets as unions of atoms.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use objects::Selector;
use objects::kinds::{GroupMode, Protocol};

use crate::cluster::{NamedPort, Pod};
use crate::program::{Element, SetId, SetKind};
use crate::ranges::Ranges;
use crate::spec::{GuardGroup, NamespaceSelection, PodSelection};

/// Peers that are selected together. Atoms are compared by what they mean, in words.
#[derive(Clone, Debug)]
pub(super) struct Atom(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    selects: Selects,
    meaning: String,
}

#[derive(Clone, Debug)]
pub(super) enum Selects {
    Pods(PodSelection),
    /// Pods with an address in these ranges.
    PodsWithin(Ranges),
    /// Workloads in a group of guard: learned or made.
    Group(GuardGroup),
    /// Pods of all namespaces, also of those that are not known.
    Workloads,
    /// Workloads in a mode of guard.
    Mode(GroupMode),
    /// Addresses of nodes that have such labels.
    Nodes(Selector),
    Hosts,
    Services,
    Ingress,
}

impl Atom {
    pub(super) fn new(selects: Selects) -> Self {
        let meaning = match &selects {
            Selects::Pods(PodSelection { namespaces, pods }) => match namespaces {
                NamespaceSelection::Named(name) => format!("pods {} of {name}", sorted(pods)),
                NamespaceSelection::Labelled(labels) => {
                    format!("pods {} of namespaces {}", sorted(pods), sorted(labels))
                }
            },
            Selects::PodsWithin(ranges) => format!("pods within {ranges}"),
            Selects::Group(group) => format!("group {group}"),
            Selects::Workloads => "workloads".to_owned(),
            Selects::Mode(mode) => format!("mode {mode}"),
            Selects::Nodes(labels) => format!("nodes {}", sorted(labels)),
            Selects::Hosts => "hosts".to_owned(),
            Selects::Services => "services".to_owned(),
            Selects::Ingress => "ingress".to_owned(),
        };
        Self(Arc::new(Inner { selects, meaning }))
    }

    pub(super) fn all_pods() -> Self {
        Self::new(Selects::Workloads)
    }

    /// The one namespace whose pods it can select.
    pub(super) fn namespace(&self) -> Option<&Arc<str>> {
        match &self.0.selects {
            Selects::Pods(PodSelection { namespaces: NamespaceSelection::Named(name), .. })
            | Selects::Group(GuardGroup::Learned { namespace: name, .. }) => Some(name),
            _ => None,
        }
    }

    /// Whether it selects addresses that are no pods'.
    pub(super) fn is_of_addresses(&self) -> bool {
        matches!(
            self.0.selects,
            Selects::Nodes(_) | Selects::Hosts | Selects::Services | Selects::Ingress
        )
    }

    pub(super) fn selects(&self) -> &Selects {
        &self.0.selects
    }

    /// Of a pod's addresses, those that it speaks of.
    fn covers(&self, address: IpAddr) -> bool {
        match &self.0.selects {
            Selects::PodsWithin(ranges) => ranges.contains(address),
            _ => true,
        }
    }
}

/// The requirements of a selector in a fixed order: who writes them otherwise means the same.
fn sorted(selector: &Selector) -> String {
    let text = selector.to_string();
    // Values are in parentheses: split at the commas between requirements alone.
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.sort_unstable();
    parts.dedup();
    format!("[{}]", parts.join(","))
}

impl PartialEq for Atom {
    fn eq(&self, other: &Self) -> bool {
        self.0.meaning == other.0.meaning
    }
}

impl Eq for Atom {}

impl PartialOrd for Atom {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Atom {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.meaning.cmp(&other.0.meaning)
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.meaning)
    }
}

/// A port of a peer that is a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum PeerPort {
    Number(Protocol, u16),
    Named(Option<Protocol>, Arc<str>),
}

/// What a set means.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Definition {
    Addresses(BTreeSet<Atom>),
    AddressPorts(BTreeSet<(Atom, PeerPort)>),
    Networks(Ranges),
    Domains(BTreeSet<Arc<str>>),
    /// The addresses of the node that enforces the program.
    OwnNode,
}

impl Definition {
    pub(super) fn id(&self) -> SetId {
        let meaning = match self {
            Self::Addresses(atoms) => {
                let atoms: Vec<_> = atoms.iter().map(|it| it.0.meaning.as_str()).collect();
                format!("addresses of {}", atoms.join(" or "))
            }
            Self::AddressPorts(pairs) => {
                let pairs: Vec<_> =
                    pairs.iter().map(|(atom, port)| format!("{atom} {port:?}")).collect();
                format!("ports of {}", pairs.join(" or "))
            }
            Self::Networks(ranges) => format!("networks {ranges}"),
            Self::Domains(names) => format!("domains {names:?}"),
            Self::OwnNode => "own node".to_owned(),
        };
        SetId::of(&meaning)
    }

    pub(super) fn kind(&self) -> SetKind {
        match self {
            Self::Addresses(_) => SetKind::Addresses,
            Self::AddressPorts(_) => SetKind::AddressPorts,
            Self::Networks(_) => SetKind::Networks,
            Self::Domains(names) => SetKind::Domains(names.iter().cloned().collect()),
            Self::OwnNode => SetKind::OwnNode,
        }
    }

    pub(super) fn atoms(&self) -> BTreeSet<&Atom> {
        match self {
            Self::Addresses(atoms) => atoms.iter().collect(),
            Self::AddressPorts(pairs) => pairs.iter().map(|(atom, _)| atom).collect(),
            Self::Networks(_) | Self::Domains(_) | Self::OwnNode => BTreeSet::new(),
        }
    }

    /// What a pod brings into the set: `addresses` are those that are its own, `has` says which atoms
    /// select it.
    pub(super) fn of_pod(
        &self,
        pod: &Pod,
        addresses: &[IpAddr],
        has: impl Fn(&Atom) -> bool,
    ) -> BTreeSet<Element> {
        match self {
            Self::Addresses(atoms) if atoms.iter().any(&has) => {
                addresses.iter().copied().map(Element::Address).collect()
            }
            Self::AddressPorts(pairs) => {
                let mut elements = BTreeSet::new();
                for (atom, port) in pairs.iter().filter(|(atom, _)| has(atom)) {
                    let covered = addresses.iter().filter(|address| atom.covers(**address));
                    for (address, (protocol, port)) in
                        covered.flat_map(|it| port.of(pod).into_iter().map(move |port| (*it, port)))
                    {
                        elements.insert(Element::AddressPort { address, protocol, port });
                    }
                }
                elements
            }
            _ => BTreeSet::new(),
        }
    }

    /// What is in it whatever pods there are.
    pub(super) fn fixed(&self, of_addresses: impl Fn(&Atom) -> Vec<IpAddr>) -> BTreeSet<Element> {
        match self {
            Self::Addresses(atoms) => {
                let atoms = atoms.iter().filter(|atom| atom.is_of_addresses());
                atoms.flat_map(of_addresses).map(Element::Address).collect()
            }
            Self::AddressPorts(pairs) => {
                let numbered = pairs.iter().filter_map(|(atom, port)| match port {
                    PeerPort::Number(protocol, port) if atom.is_of_addresses() => {
                        Some((atom, *protocol, *port))
                    }
                    _ => None,
                });
                numbered
                    .flat_map(|(atom, protocol, port)| {
                        let element =
                            move |address| Element::AddressPort { address, protocol, port };
                        of_addresses(atom).into_iter().map(element)
                    })
                    .collect()
            }
            Self::Networks(ranges) => {
                ranges.iter().map(|(first, last)| Element::Range { first, last }).collect()
            }
            Self::Domains(_) | Self::OwnNode => BTreeSet::new(),
        }
    }
}

impl PeerPort {
    fn of(&self, pod: &Pod) -> Vec<(Protocol, u16)> {
        match self {
            Self::Number(protocol, port) => vec![(*protocol, *port)],
            Self::Named(protocol, name) => {
                let named = |it: &&NamedPort| {
                    it.name == *name && protocol.is_none_or(|protocol| it.protocol == protocol)
                };
                pod.ports.iter().filter(named).map(|it| (it.protocol, it.port)).collect()
            }
        }
    }
}
