//! `Ruleset`: what is to be in the table, as a pure function of the pools.
//!
//! ```text
//! postrouting: ip saddr vmap @from4, ip6 saddr vmap @from6      a pool's network ─► goto pool-NAME
//! pool-NAME:   @pods4, @pods6, @never-NAME-4, @never-NAME-6 ─► accept
//!              tcp, udp ─► masquerade to :ports;  the rest ─► masquerade
//! ```
//!
//! One pool more is one element in a map, and one network more one element in a set: what a connection
//! costs does not depend on how many pools there are.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use kernel::nftables::expression::{Comparison, Expression, Header, Meta, Register};
use kernel::nftables::{Element, Field, Rule, Set, Verdict};

use super::{MasqueradedPool, MasqueradedPools};
use crate::overlay;

/// The name of the table, of both IP families.
pub const TABLE: &str = "fairlead-nat";
pub(super) const BASE: &str = "postrouting";
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Sets and chains by their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruleset {
    pub(super) sets: BTreeMap<String, (Set, Vec<Element>)>,
    /// Without the base chain.
    pub(super) chains: BTreeMap<String, Vec<Rule>>,
    pub(super) base: Vec<Rule>,
}

#[derive(Clone, Copy)]
enum Family {
    V4,
    V6,
}

impl Family {
    const BOTH: [Self; 2] = [Self::V4, Self::V6];

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

    fn has(self, net: &IpNet) -> bool {
        matches!((self, net), (Self::V4, IpNet::V4(_)) | (Self::V6, IpNet::V6(_)))
    }

    /// Loads an address of the packet, if it is of this family: from where it comes, or goes to.
    fn address(self, source: bool) -> Vec<Expression> {
        let (number, offset, length) = match (self, source) {
            (Self::V4, true) => (2, 12, 4),
            (Self::V4, false) => (2, 16, 4),
            (Self::V6, true) => (10, 8, 16),
            (Self::V6, false) => (10, 24, 16),
        };
        vec![
            Expression::Meta { fact: Meta::Family, into: Register::FIRST },
            equal(vec![number]),
            Expression::Payload { header: Header::Network, offset, length, into: Register::FIRST },
        ]
    }
}

impl Ruleset {
    /// Returns none where no pool is masqueraded.
    pub fn of(pools: &MasqueradedPools) -> Option<Self> {
        Self::beside(pools, None)
    }

    /// The same, where packets to pods and nodes go through that `tunnel`, too.
    pub fn beside(pools: &MasqueradedPools, tunnel: Option<&str>) -> Option<Self> {
        if pools.values().all(|pool| pool.rule.is_none()) {
            return None;
        }
        let mut ruleset = Self { sets: BTreeMap::new(), chains: BTreeMap::new(), base: Vec::new() };
        for device in [overlay::DEVICE].into_iter().chain(tunnel) {
            ruleset.base.push(digested(
                vec![
                    Expression::output_interface(Register::FIRST),
                    equal(Expression::interface_name(device)),
                    Expression::Verdict(Verdict::Accept),
                ],
                "to pods and nodes through the tunnel",
            ));
        }
        for family in Family::BOTH {
            let pods = pools.values().flat_map(|pool| &pool.networks).copied();
            ruleset.set(format!("pods{}", family.digit()), family, pods.chain(receivers()));
            let from = format!("from{}", family.digit());
            let set = Set { verdicts: true, ..ranges(from.clone(), family) };
            let masqueraded = pools.iter().filter(|(_, pool)| pool.rule.is_some());
            let elements = masqueraded.flat_map(|(name, pool)| {
                let goto = Verdict::Goto(chain_name(name));
                let own = of_family(&pool.networks, family);
                own.into_iter()
                    .map(move |element| Element { verdict: Some(goto.clone()), ..element })
            });
            let mut elements: Vec<_> = elements.collect();
            elements.sort_unstable();
            ruleset.sets.insert(from.clone(), (set, elements));
            let mut rule = family.address(true);
            rule.push(Expression::VerdictFrom { map: from, key: Register::FIRST });
            ruleset.base.push(digested(rule, "pods of a pool that is masqueraded"));
        }
        for (name, pool) in pools {
            ruleset.pool(name, pool);
        }
        Some(ruleset)
    }

    fn pool(&mut self, name: &Arc<str>, pool: &MasqueradedPool) {
        let Some(rule) = &pool.rule else { return };
        let mut rules = Vec::new();
        for family in Family::BOTH {
            let never = format!("never-{name}-{}", family.digit());
            self.set(never.clone(), family, rule.never.iter().copied());
            let kept = [
                (format!("pods{}", family.digit()), "to pods"),
                (never, "never to these networks"),
            ];
            for (set, comment) in kept {
                let mut keep = family.address(false);
                keep.push(Expression::Lookup { set, key: Register::FIRST, absent: false });
                keep.push(Expression::Verdict(Verdict::Accept));
                rules.push(digested(keep, comment));
            }
        }
        if let Some((first, last)) = rule.ports {
            for protocol in [TCP, UDP] {
                rules.push(digested(
                    vec![
                        Expression::Meta { fact: Meta::Protocol, into: Register::FIRST },
                        equal(vec![protocol]),
                        counter(),
                        Expression::constant(Register(4), &first.to_be_bytes()),
                        Expression::constant(Register(8), &last.to_be_bytes()),
                        Expression::masquerade(Some((Register(4), Register(8)))),
                    ],
                    "",
                ));
            }
        }
        rules.push(digested(vec![counter(), Expression::masquerade(None)], ""));
        self.chains.insert(chain_name(name), rules);
    }

    fn set(&mut self, name: String, family: Family, nets: impl IntoIterator<Item = IpNet>) {
        let nets: Vec<_> = nets.into_iter().collect();
        self.sets.insert(name.clone(), (ranges(name, family), of_family(&nets, family)));
    }
}

/// Everybody's addresses of groups of receivers: a packet to them is nobody's connection.
fn receivers() -> [IpNet; 2] {
    [
        Ipv4Net::new_assert([224, 0, 0, 0].into(), 4).into(),
        Ipv6Net::new_assert([0xff00, 0, 0, 0, 0, 0, 0, 0].into(), 8).into(),
    ]
}

/// The networks of one family as elements, in order, none in another.
fn of_family(nets: &[IpNet], family: Family) -> Vec<Element> {
    let own: Vec<_> = nets.iter().filter(|net| family.has(net)).copied().collect();
    let mut elements: Vec<_> = IpNet::aggregate(&own).iter().map(element).collect();
    elements.sort_unstable();
    elements
}

/// The networks of one family as elements of a set with ranges.
pub(crate) fn networks_of(nets: &[IpNet], is_ipv4: bool) -> Vec<Element> {
    of_family(nets, if is_ipv4 { Family::V4 } else { Family::V6 })
}

fn element(net: &IpNet) -> Element {
    match net {
        IpNet::V4(net) => Element::range(net.network().octets(), net.broadcast().octets()),
        IpNet::V6(net) => Element::range(net.network().octets(), net.broadcast().octets()),
    }
}

fn ranges(name: String, family: Family) -> Set {
    Set { ranges: true, ..Set::hash(name, &[family.field()]) }
}

/// The chain of a pool.
pub(super) fn chain_name(pool: &str) -> String {
    format!("pool-{pool}")
}

/// The pool of a chain.
pub(super) fn pool_of(chain: &str) -> Option<&str> {
    chain.strip_prefix("pool-")
}

fn equal(value: Vec<u8>) -> Expression {
    Expression::Compare { register: Register::FIRST, is: Comparison::Equal, value }
}

fn counter() -> Expression {
    Expression::Counter { packets: 0, bytes: 0 }
}

/// Gives the rule the digest by which it is known again.
fn digested(expressions: Vec<Expression>, comment: &str) -> Rule {
    let mut rule = Rule { expressions, comment: comment.to_owned(), ..Rule::default() };
    let mut hasher = DefaultHasher::new();
    rule.hash(&mut hasher);
    rule.digest = hasher.finish().max(1);
    rule
}
