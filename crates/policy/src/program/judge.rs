//! Judges a packet by a program, as a kernel must.

use std::net::IpAddr;
use std::sync::Arc;

use super::{
    Chain, Element, Program, Protocol, Rule, Set, SetId, SetKind, Source, TierKind, Verdict,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    Egress,
    Ingress,
}

/// The first packet of a connection, after destination NAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packet {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: Protocol,
    /// The destination's; 0 where the protocol has none.
    pub port: u16,
    /// Whether the node whose program it is sent it, from its own network.
    pub from_own_node: bool,
    /// Whether it is for the node whose program it is, for any of its own addresses.
    pub to_own_node: bool,
}

/// What becomes of a packet on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    pub egress: JudgedChain,
    /// Judged also if egress denies it, so that both can be explained.
    pub ingress: JudgedChain,
}

/// What one chain says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JudgedChain {
    pub denied: bool,
    /// The rule that ended it; none if there is no chain or it came to its end.
    pub by: Option<By>,
    /// Rules that reported the packet, in order.
    pub reported: Vec<By>,
}

/// A rule that decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    pub tier: TierKind,
    pub verdict: Verdict,
    pub sources: Arc<[Source]>,
}

impl Packet {
    pub fn tcp(source: IpAddr, destination: IpAddr, port: u16) -> Self {
        let (from_own_node, to_own_node) = (false, false);
        Self { source, destination, protocol: Protocol::TCP, port, from_own_node, to_own_node }
    }

    /// The peer of a pod in this direction.
    pub fn peer(&self, direction: Direction) -> IpAddr {
        match direction {
            Direction::Egress => self.destination,
            Direction::Ingress => self.source,
        }
    }

    /// The pod's own address in this direction.
    pub fn subject(&self, direction: Direction) -> IpAddr {
        match direction {
            Direction::Egress => self.source,
            Direction::Ingress => self.destination,
        }
    }
}

impl Judged {
    pub fn passes(&self) -> bool {
        !self.egress.denied && !self.ingress.denied
    }
}

impl Program {
    pub fn judge(&self, packet: &Packet) -> Judged {
        let pod = |address| self.pods.get(&address).map(|pod| &pod.pod);
        let source = pod(packet.source);
        // What a pod sends to itself does not leave it.
        let to_itself = source.is_some() && source == pod(packet.destination);
        if packet.from_own_node || to_itself {
            return Judged { egress: JudgedChain::default(), ingress: JudgedChain::default() };
        }
        Judged {
            egress: self.judge_chain(packet, Direction::Egress),
            ingress: self.judge_chain(packet, Direction::Ingress),
        }
    }

    fn judge_chain(&self, packet: &Packet, direction: Direction) -> JudgedChain {
        let pod = self.pods.get(&packet.subject(direction));
        let class = pod.and_then(|pod| self.classes.get(&pod.class));
        let chain = class.and_then(|class| self.chains.get(&class.chain(direction)?));
        chain.map(|chain| chain.judge(packet, |id| self.sets.get(&id))).unwrap_or_default()
    }
}

impl Chain {
    /// A set that is not there has nobody in it.
    pub fn judge<'a>(
        &self,
        packet: &Packet,
        set: impl Fn(SetId) -> Option<&'a Set>,
    ) -> JudgedChain {
        let peer = packet.peer(self.direction);
        let has = |id| set(id).is_some_and(|set| set.has(peer, packet));
        let mut judged = JudgedChain::default();
        for tier in &self.tiers {
            let Some(rule) = tier.rules.iter().find(|rule| rule.matches(packet, has)) else {
                continue;
            };
            let by = || By {
                tier: tier.kind,
                verdict: rule.verdict,
                sources: rule.sources.clone().into(),
            };
            match rule.verdict {
                Verdict::Accept => return JudgedChain { by: Some(by()), ..judged },
                Verdict::Deny(_) => return JudgedChain { denied: true, by: Some(by()), ..judged },
                Verdict::Pass => {}
                Verdict::Report => judged.reported.push(by()),
            }
        }
        judged
    }
}

impl Rule {
    fn matches(&self, packet: &Packet, has: impl Fn(SetId) -> bool) -> bool {
        let port = self.ports.is_empty()
            || self.ports.iter().any(|it| it.contains(packet.protocol, packet.port));
        port && self.within.is_none_or(&has) && !self.without.iter().copied().any(&has)
    }
}

impl Set {
    /// Whether the peer is in it, with the packet's port where that counts.
    pub fn has(&self, peer: IpAddr, packet: &Packet) -> bool {
        match self.kind {
            SetKind::Addresses => self.elements.contains(&Element::Address(peer)),
            SetKind::AddressPorts => self.elements.contains(&Element::AddressPort {
                address: peer,
                protocol: packet.protocol,
                port: packet.port,
            }),
            SetKind::Networks => {
                let whole = Element::Range { first: peer, last: highest(peer) };
                let before = self.elements.get_prev(&whole);
                before.is_some_and(|range| {
                    matches!(range, Element::Range { first, last } if *first <= peer && peer <= *last)
                })
            }
            SetKind::Domains(_) => self.elements.contains(&Element::Address(peer)),
            SetKind::OwnNode => packet.to_own_node && peer == packet.destination,
        }
    }
}

/// The last address of the family.
fn highest(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => IpAddr::from([0xff_u8; 4]),
        IpAddr::V6(_) => IpAddr::from([0xff_u8; 16]),
    }
}
