//! A program as nf_tables has it: names, sets, chains and rules. Pure.
//!
//! ```text
//! forward ─► a reply? ─► revoked: ended, else it passes
//!         ─► IPv6? ─► forward6, which is the same with out6 and in6
//!         ─► out4: source      ─► jump ─► egress chain  ─┬─ a denial
//!                                                        └─ return
//!         ─► in4:  destination ─► goto ─► ingress chain  ─┬─ a denial
//!                                                         └─ accept
//! input   the same without in4: what a pod sends to its node
//! denial  exempt? ─► log, at a bounded rate ─► counter ─► deny-drop or deny-reject
//! ```
//!
//! What the node itself sends comes to neither: a node always reaches its pods. A chain of a program is
//! one chain for each address family here, so that no rule asks for the family, and one more behind each
//! tier that may pass a packet on. Only a denial asks whether the packet is one that no policy judges
//! (ICMP errors, neighbour discovery, what a pod sends to itself by way of a Service), so that no packet
//! that passes pays for it.
//!
//! Only while a rule by domain name selects a pod of the node there are two more hooked chains, `dns` and
//! `dns-out`: see [`dns`](super::dns).

mod chain;
mod fixed;

use std::hash::{Hash, Hasher};
use std::net::IpAddr;

use kernel::nftables::expression::{Comparison, Header, Meta, Register, Tracked};
use kernel::nftables::{Chain, Element, Expression, Field, Rule, Set, Verdict};
use policy::program::{self, ChainId, Direction, Protocol, SetId, SetKind};

pub(super) use chain::chains;
pub(super) use fixed::{fixed_chains, fixed_sets};

/// The table that holds all of it; nobody else has one of this name.
pub(crate) const TABLE: &str = "fairlead-guard";
/// The bit of a connection's mark that says that it began when it was allowed, and no longer is.
pub(crate) const REVOKED: u32 = 1 << 24;
/// The bit of a connection's mark that says that the agent asks a DNS server on a pod's behalf, and the
/// bit of a packet's mark by which it is routed to the agent.
pub(crate) const DNS_MARK: u32 = 1 << 25;
/// The bit of a packet's mark that says that the agent answers a pod: the pod may have asked from the port
/// that the agent asks from.
pub(crate) const ANSWER_MARK: u32 = 1 << 26;
/// The group of the kernel's packet log to which denials and violations are sent.
pub(crate) const LOG_GROUP: u16 = 7681;
/// Where the agent listens for the DNS of pods, on loopback.
pub(crate) const DNS_PORT: u16 = 7685;
/// How many packets of one rule are told of in a second, and at once.
const LOGGED: (u64, u32) = (10, 20);
/// What is told of a packet: its headers.
const LOGGED_BYTES: u32 = 96;

pub(super) const PENDING: &str = "pending";
const DROP: &str = "deny-drop";
const REJECT: &str = "deny-reject";
const EXEMPT: &str = "exempt";

const TCP: u8 = 6;
const UDP: u8 = 17;
const R: Register = Register::FIRST;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) const BOTH: [Self; 2] = [Self::V4, Self::V6];

    pub(super) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    fn digit(self) -> char {
        match self {
            Self::V4 => '4',
            Self::V6 => '6',
        }
    }

    fn field(self) -> Field {
        match self {
            Self::V4 => Field::Ipv4,
            Self::V6 => Field::Ipv6,
        }
    }

    /// How many registers an address takes.
    fn registers(self) -> u8 {
        match self {
            Self::V4 => 1,
            Self::V6 => 4,
        }
    }

    fn is(self) -> [Expression; 2] {
        let number = match self {
            Self::V4 => 2,
            Self::V6 => 10,
        };
        [Expression::Meta { fact: Meta::Family, into: R }, equal(vec![number])]
    }

    fn source(self, into: Register) -> Expression {
        let (offset, length) = match self {
            Self::V4 => (12, 4),
            Self::V6 => (8, 16),
        };
        Expression::Payload { header: Header::Network, offset, length, into }
    }

    fn destination(self, into: Register) -> Expression {
        let (offset, length) = match self {
            Self::V4 => (16, 4),
            Self::V6 => (24, 16),
        };
        Expression::Payload { header: Header::Network, offset, length, into }
    }

    fn peer(self, direction: Direction, into: Register) -> Expression {
        match direction {
            Direction::Egress => self.destination(into),
            Direction::Ingress => self.source(into),
        }
    }

    /// The map from the addresses of the node's pods to what decides about what they send.
    pub(super) fn out(self) -> Set {
        Set { verdicts: true, ..Set::hash(format!("out{}", self.digit()), &[self.field()]) }
    }

    /// The map to what decides about what is sent to them.
    pub(super) fn into(self) -> Set {
        Set { verdicts: true, ..Set::hash(format!("in{}", self.digit()), &[self.field()]) }
    }

    /// Each address of the node's pods, twice: what a pod sends to itself.
    pub(super) fn itself(self) -> Set {
        Set::hash(format!("self{}", self.digit()), &[self.field(), self.field()])
    }

    /// The addresses of the node's pods that a rule by domain name selects.
    pub(super) fn asking(self) -> Set {
        Set::hash(format!("dns{}", self.digit()), &[self.field()])
    }
}

/// A set with its elements.
pub(super) type FilledSet = (Set, Vec<Element>);

pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

pub(super) fn chain_name(id: ChainId, family: Family) -> String {
    format!("c{}-{id}", family.digit())
}

/// The program's chain that a kernel's chain is a part of.
pub(super) fn program_chain(name: &str) -> Option<ChainId> {
    let hash = name.strip_prefix("c4-").or(name.strip_prefix("c6-"))?.get(..32)?;
    u128::from_str_radix(hash, 16).ok().map(ChainId)
}

fn equal(value: Vec<u8>) -> Expression {
    Expression::Compare { register: R, is: Comparison::Equal, value }
}

fn protocol() -> Expression {
    Expression::Meta { fact: Meta::Protocol, into: R }
}

fn bits(fact: Tracked, bits: u32) -> [Expression; 3] {
    let value = bits.to_ne_bytes().to_vec();
    [
        Expression::Tracked { fact, into: R },
        Expression::Bits { register: R, mask: value.clone(), xor: vec![0; 4] },
        equal(value),
    ]
}

fn verdict(verdict: Verdict) -> Expression {
    Expression::Verdict(verdict)
}

fn counter() -> Expression {
    Expression::Counter { packets: 0, bytes: 0 }
}

fn goto(chain: &str) -> Expression {
    verdict(Verdict::Goto(chain.to_owned()))
}

fn jump(chain: &str) -> Expression {
    verdict(Verdict::Jump(chain.to_owned()))
}

fn destination_port(into: Register) -> Expression {
    Expression::Payload { header: Header::Transport, offset: 2, length: 2, into }
}

/// Gives the rule the digest by which it is known again.
fn rule(expressions: Vec<Expression>, comment: String, tag: u128) -> Rule {
    let mut rule = Rule { expressions, comment, digest: 0, tag };
    let mut hasher = rustc_hash::FxHasher::default();
    rule.hash(&mut hasher);
    rule.digest = hasher.finish().max(1);
    rule
}

fn plain(expressions: impl IntoIterator<Item = Expression>) -> Rule {
    rule(expressions.into_iter().collect(), String::new(), 0)
}

fn named(name: impl Into<String>) -> Chain {
    Chain { name: name.into(), hook: None, drops: false }
}

/// The kernel's sets for one of a program: one for each address family. One of networks has none for a
/// family without networks, since it never changes; the node's own addresses need none.
pub(super) fn sets(id: SetId, set: &program::Set) -> Vec<FilledSet> {
    let families = Family::BOTH.into_iter().filter(|family| has_family(set, *family));
    families
        .filter_map(|family| {
            let elements = set.elements.iter().filter_map(|it| element(*it, family)).collect();
            Some((kernel_set(id, &set.kind, family)?, elements))
        })
        .collect()
}

/// The names of the kernel's sets for one of a program, without a look at their elements.
pub(super) fn set_names(id: SetId, set: &program::Set) -> impl Iterator<Item = String> {
    let families = Family::BOTH.into_iter().filter(|family| has_family(set, *family));
    families.filter_map(move |family| Some(kernel_set(id, &set.kind, family)?.name))
}

fn has_family(set: &program::Set, family: Family) -> bool {
    set.kind != SetKind::Networks || set.elements.iter().any(|it| element(*it, family).is_some())
}

/// The kernel's set of one family; the node's own addresses have none.
pub(super) fn kernel_set(id: SetId, kind: &SetKind, family: Family) -> Option<Set> {
    let name = format!("s{}-{id}", family.digit());
    let address = Set::hash(name.as_str(), &[family.field()]);
    match kind {
        SetKind::Addresses => Some(address),
        SetKind::AddressPorts => {
            Some(Set::hash(name, &[family.field(), Field::Protocol, Field::Port]))
        }
        SetKind::Networks => Some(Set { ranges: true, ..address }),
        SetKind::Domains(_) => Some(Set { timeouts: true, ..address }),
        SetKind::OwnNode => None,
    }
}

/// The element in the kernel's form, if it is of this family.
pub(super) fn element(element: program::Element, family: Family) -> Option<Element> {
    match element {
        program::Element::Address(address) => {
            (Family::of(address) == family).then(|| Element::new(octets(address)))
        }
        program::Element::AddressPort { address, protocol, port } => {
            let mut key = octets(address);
            key.extend(port_key(protocol, port));
            (Family::of(address) == family).then(|| Element::new(key))
        }
        program::Element::Range { first, last } => {
            (Family::of(first) == family).then(|| Element::range(octets(first), octets(last)))
        }
    }
}

/// Protocol and port, each filled up to four bytes.
fn port_key(protocol: Protocol, port: u16) -> [u8; 8] {
    let [high, low] = port.to_be_bytes();
    [protocol.0, 0, 0, 0, high, low, 0, 0]
}

#[cfg(test)]
mod tests;
