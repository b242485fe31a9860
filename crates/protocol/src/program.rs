//! Converts changes of a node's policy program to messages and back.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use objects::kinds::{Ports, Protocol};
use policy::program::{
    Chain, ChainId, Class, ClassId, CounterId, Delta, Denial, Direction, Element, Fingerprint,
    LocalPod, Note, PolicyKind, Rule, RuleTotal, SetChange, SetEdit, SetId, SetKind, Source, Tier,
    TierKind, Unsettled, Verdict,
};

use prost::Message as _;

use crate::join::{address, octets};
use crate::{Malformed, proto};

/// The longest piece of a change, and the longest change.
const PIECE: usize = 64 << 10;
const LONGEST: usize = 64 << 20;

const KINDS: [PolicyKind; 7] = [
    PolicyKind::NetworkPolicy,
    PolicyKind::ClusterNetworkPolicy,
    PolicyKind::AdminNetworkPolicy,
    PolicyKind::BaselineAdminNetworkPolicy,
    PolicyKind::NetworkRule,
    PolicyKind::Group,
    PolicyKind::Quarantine,
];

impl From<&Delta> for proto::ProgramChange {
    fn from(delta: &Delta) -> Self {
        let ids = |ids: Vec<u128>| ids.into_iter().map(id_out).collect();
        Self {
            from: delta.from,
            to: delta.to,
            sets: delta.sets.iter().map(set_out).collect(),
            chains: delta.chains.iter().map(|(id, chain)| chain_out(*id, chain)).collect(),
            removed_chains: ids(delta.removed_chains.iter().map(|id| id.0).collect()),
            classes: delta.classes.iter().map(|(id, class)| class_out(*id, class)).collect(),
            removed_classes: ids(delta.removed_classes.iter().map(|id| id.0).collect()),
            pods: delta.pods.iter().map(|(address, pod)| pod_out(*address, pod.as_ref())).collect(),
            unsettled: delta.unsettled.as_ref().map(|it| proto::Unsettled {
                everywhere: it.everywhere,
                namespaces: it.namespaces.iter().map(ToString::to_string).collect(),
            }),
            long_chains: delta.notes.iter().map(note_out).collect(),
            removed_long_chains: delta.removed_notes.iter().map(note_out).collect(),
        }
    }
}

impl TryFrom<proto::ProgramChange> for Delta {
    type Error = Malformed;

    fn try_from(change: proto::ProgramChange) -> Result<Self, Malformed> {
        let ids = |ids: Vec<Vec<u8>>| ids.iter().map(|id| id_in(id)).collect::<Result<Vec<_>, _>>();
        let notes = |notes: Vec<proto::LongChain>| {
            notes.into_iter().map(note_in).collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            from: change.from,
            to: change.to,
            sets: change.sets.into_iter().map(set_in).collect::<Result<_, _>>()?,
            chains: change.chains.into_iter().map(chain_in).collect::<Result<_, _>>()?,
            removed_chains: ids(change.removed_chains)?.into_iter().map(ChainId).collect(),
            classes: change.classes.iter().map(class_in).collect::<Result<_, _>>()?,
            removed_classes: ids(change.removed_classes)?.into_iter().map(ClassId).collect(),
            pods: change.pods.into_iter().map(pod_in).collect::<Result<_, _>>()?,
            unsettled: change.unsettled.map(|it| {
                let namespaces = it.namespaces.into_iter().map(Arc::from).collect();
                Arc::new(Unsettled { everywhere: it.everywhere, namespaces })
            }),
            notes: notes(change.long_chains)?,
            removed_notes: notes(change.removed_long_chains)?,
        })
    }
}

/// A change in the form in which it is sent.
pub fn encode_change(delta: &Delta) -> Bytes {
    proto::ProgramChange::from(delta).encode_to_vec().into()
}

/// The parts of an encoded change, in order; they share its memory.
pub fn parts(mut change: Bytes) -> impl Iterator<Item = proto::ProgramPart> + Send {
    let mut ended = false;
    std::iter::from_fn(move || {
        if ended {
            return None;
        }
        let piece = change.split_to(change.len().min(PIECE));
        ended = change.is_empty();
        Some(proto::ProgramPart { piece: piece.into(), last: ended })
    })
}

/// Puts the parts of changes together again.
#[derive(Debug, Default)]
pub struct ChangeParts(Vec<u8>);

impl ChangeParts {
    /// Takes the next part; answers the change when it is complete.
    pub fn take(&mut self, part: &proto::ProgramPart) -> Result<Option<Delta>, Malformed> {
        if part.piece.len() > PIECE || self.0.len() + part.piece.len() > LONGEST {
            self.0 = Vec::new();
            return Err(Malformed("a change of the program is too long"));
        }
        self.0.extend_from_slice(&part.piece);
        if !part.last {
            return Ok(None);
        }
        let change = proto::ProgramChange::decode(std::mem::take(&mut self.0).as_slice());
        change.map_err(|_| Malformed("a change of the program"))?.try_into().map(Some)
    }
}

pub fn fingerprint_out(fingerprint: Fingerprint) -> Vec<u8> {
    id_out(fingerprint.0)
}

pub fn fingerprint_in(bytes: &[u8]) -> Result<Fingerprint, Malformed> {
    id_in(bytes).map(Fingerprint)
}

/// The most rules whose totals are in one message, and reasons why pods are not judged.
pub const TOTALS: usize = 500;
pub const REASONS: usize = 16;

pub fn totals_out(totals: &[RuleTotal]) -> Vec<proto::RuleTotal> {
    let total = |it: &RuleTotal| proto::RuleTotal {
        counter: id_out(it.counter.0),
        packets: it.packets,
        bytes: it.bytes,
    };
    totals.iter().map(total).collect()
}

pub fn totals_in(totals: &[proto::RuleTotal]) -> Result<Vec<RuleTotal>, Malformed> {
    if totals.len() > TOTALS {
        return Err(Malformed("too many rules in one message"));
    }
    let total = |it: &proto::RuleTotal| {
        let counter = CounterId(id_in(&it.counter)?);
        Ok(RuleTotal { counter, packets: it.packets, bytes: it.bytes })
    };
    totals.iter().map(total).collect()
}

fn id_out(id: u128) -> Vec<u8> {
    id.to_be_bytes().to_vec()
}

fn id_in(bytes: &[u8]) -> Result<u128, Malformed> {
    let bytes = <[u8; 16]>::try_from(bytes).map_err(|_| Malformed("an id is not of 16 bytes"))?;
    Ok(u128::from_be_bytes(bytes))
}

fn set_out(change: &SetChange) -> proto::SetChange {
    let mut message = proto::SetChange { id: id_out(change.id.0), ..Default::default() };
    let (added, removed): (&[Element], &[Element]) = match &change.change {
        SetEdit::Gone => {
            message.set_state(proto::SetState::Gone);
            (&[], &[])
        }
        SetEdit::New { kind, elements } => {
            message.set_state(proto::SetState::New);
            message.set_kind(match kind {
                SetKind::Addresses => proto::SetKind::Addresses,
                SetKind::AddressPorts => proto::SetKind::AddressPorts,
                SetKind::Networks => proto::SetKind::Networks,
                SetKind::Domains(_) => proto::SetKind::Domains,
                SetKind::OwnNode => proto::SetKind::OwnNode,
            });
            if let SetKind::Domains(names) = kind {
                message.domains = names.iter().map(ToString::to_string).collect();
            }
            (elements, &[])
        }
        SetEdit::Changed { added, removed } => {
            message.set_state(proto::SetState::Changed);
            let first = added.first().or(removed.first());
            message.set_kind(match first {
                Some(Element::AddressPort { .. }) => proto::SetKind::AddressPorts,
                Some(Element::Range { .. }) => proto::SetKind::Networks,
                _ => proto::SetKind::Addresses,
            });
            (added, removed)
        }
    };
    for element in added {
        let four = element_address(element).is_ipv4();
        put(element, if four { &mut message.added4 } else { &mut message.added6 });
    }
    for element in removed {
        let four = element_address(element).is_ipv4();
        put(element, if four { &mut message.removed4 } else { &mut message.removed6 });
    }
    message
}

fn element_address(element: &Element) -> IpAddr {
    match element {
        Element::Address(address)
        | Element::AddressPort { address, .. }
        | Element::Range { first: address, .. } => *address,
    }
}

fn put(element: &Element, into: &mut Vec<u8>) {
    match element {
        Element::Address(address) => into.extend(octets(*address)),
        Element::AddressPort { address, protocol, port } => {
            into.extend(octets(*address));
            into.push(protocol.0);
            into.extend(port.to_be_bytes());
        }
        Element::Range { first, last } => {
            into.extend(octets(*first));
            into.extend(octets(*last));
        }
    }
}

fn set_in(message: proto::SetChange) -> Result<SetChange, Malformed> {
    let kind = proto::SetKind::try_from(message.kind).map_err(|_| Malformed("a kind of set"))?;
    let both = |four: &[u8], six: &[u8]| {
        let mut elements = take(kind, four, 4)?;
        elements.extend(take(kind, six, 16)?);
        Ok(elements)
    };
    let state = proto::SetState::try_from(message.state).map_err(|_| Malformed("a set's state"))?;
    let change = match state {
        proto::SetState::Gone => SetEdit::Gone,
        proto::SetState::New => SetEdit::New {
            elements: both(&message.added4, &message.added6)?,
            kind: match kind {
                proto::SetKind::Addresses => SetKind::Addresses,
                proto::SetKind::AddressPorts => SetKind::AddressPorts,
                proto::SetKind::Networks => SetKind::Networks,
                proto::SetKind::Domains => {
                    SetKind::Domains(message.domains.into_iter().map(Arc::from).collect())
                }
                proto::SetKind::OwnNode => SetKind::OwnNode,
            },
        },
        proto::SetState::Changed => SetEdit::Changed {
            added: both(&message.added4, &message.added6)?,
            removed: both(&message.removed4, &message.removed6)?,
        },
    };
    Ok(SetChange { id: SetId(id_in(&message.id)?), change })
}

/// The elements of a set, whose addresses have so many bytes.
fn take(kind: proto::SetKind, bytes: &[u8], length: usize) -> Result<Vec<Element>, Malformed> {
    let size = match kind {
        proto::SetKind::OwnNode if bytes.is_empty() => return Ok(Vec::new()),
        proto::SetKind::OwnNode => return Err(Malformed("the own node's set has no elements")),
        proto::SetKind::Addresses | proto::SetKind::Domains => length,
        proto::SetKind::AddressPorts => length + 3,
        proto::SetKind::Networks => 2 * length,
    };
    let (elements, rest) = (bytes.chunks_exact(size), bytes.len() % size);
    if rest != 0 {
        return Err(Malformed("an element of a set is cut"));
    }
    let read = |bytes: &[u8]| {
        let (first, rest) = bytes.split_at(length);
        let first = address(first)?;
        Some(match kind {
            proto::SetKind::Addresses | proto::SetKind::Domains | proto::SetKind::OwnNode => {
                Element::Address(first)
            }
            proto::SetKind::AddressPorts => Element::AddressPort {
                address: first,
                protocol: Protocol(*rest.first()?),
                port: u16::from_be_bytes([*rest.get(1)?, *rest.get(2)?]),
            },
            proto::SetKind::Networks => Element::Range { first, last: address(rest)? },
        })
    };
    elements.map(|it| read(it).ok_or(Malformed("an element of a set"))).collect()
}

fn chain_out(id: ChainId, chain: &Chain) -> proto::PolicyChain {
    let tiers = chain.tiers.iter().map(|tier| {
        let kind = match tier.kind {
            TierKind::Quarantine => proto::TierKind::Quarantine,
            TierKind::Admin => proto::TierKind::Admin,
            TierKind::NetworkPolicy => proto::TierKind::NetworkPolicy,
            TierKind::Guard => proto::TierKind::Guard,
            TierKind::Baseline => proto::TierKind::Baseline,
        };
        proto::PolicyTier { kind: kind.into(), rules: tier.rules.iter().map(rule_out).collect() }
    });
    let ingress = chain.direction == Direction::Ingress;
    proto::PolicyChain { id: id_out(id.0), ingress, tiers: tiers.collect() }
}

fn rule_out(rule: &Rule) -> proto::PolicyRule {
    let verdict = match rule.verdict {
        Verdict::Accept => proto::PolicyVerdict::Accept,
        Verdict::Deny(Denial::Drop) => proto::PolicyVerdict::Drop,
        Verdict::Deny(Denial::Reject) => proto::PolicyVerdict::Reject,
        Verdict::Pass => proto::PolicyVerdict::Pass,
        Verdict::Report => proto::PolicyVerdict::Report,
    };
    let ports = rule.ports.iter().map(|ports| proto::Ports {
        protocol: u32::from(ports.protocol.0),
        first: u32::from(ports.first),
        last: u32::from(ports.last),
    });
    let sources = rule.sources.iter().map(|source| proto::PolicySource {
        kind: source.kind.to_string(),
        policy: source.policy.to_string(),
        rule: source.rule.to_string(),
    });
    proto::PolicyRule {
        verdict: verdict.into(),
        ports: ports.collect(),
        within: rule.within.map(|id| id_out(id.0)).unwrap_or_default(),
        without: rule.without.iter().map(|id| id_out(id.0)).collect(),
        report: rule.report,
        sources: sources.collect(),
    }
}

fn chain_in(message: proto::PolicyChain) -> Result<(ChainId, Arc<Chain>), Malformed> {
    let tier = |tier: proto::PolicyTier| {
        let kind = proto::TierKind::try_from(tier.kind).map_err(|_| Malformed("a tier"))?;
        let kind = match kind {
            proto::TierKind::Quarantine => TierKind::Quarantine,
            proto::TierKind::Admin => TierKind::Admin,
            proto::TierKind::NetworkPolicy => TierKind::NetworkPolicy,
            proto::TierKind::Guard => TierKind::Guard,
            proto::TierKind::Baseline => TierKind::Baseline,
        };
        let rules = tier.rules.into_iter().map(rule_in).collect::<Result<_, _>>()?;
        Ok(Tier { kind, rules })
    };
    let tiers = message.tiers.into_iter().map(tier).collect::<Result<_, _>>()?;
    let direction = if message.ingress { Direction::Ingress } else { Direction::Egress };
    Ok((ChainId(id_in(&message.id)?), Arc::new(Chain { direction, tiers })))
}

fn rule_in(message: proto::PolicyRule) -> Result<Rule, Malformed> {
    let verdict = proto::PolicyVerdict::try_from(message.verdict);
    let verdict = match verdict.map_err(|_| Malformed("a verdict"))? {
        proto::PolicyVerdict::NoVerdict => return Err(Malformed("a rule without a verdict")),
        proto::PolicyVerdict::Accept => Verdict::Accept,
        proto::PolicyVerdict::Drop => Verdict::DROP,
        proto::PolicyVerdict::Reject => Verdict::Deny(Denial::Reject),
        proto::PolicyVerdict::Pass => Verdict::Pass,
        proto::PolicyVerdict::Report => Verdict::Report,
    };
    let ports = |ports: &proto::Ports| {
        let small = |number: u32| u16::try_from(number).map_err(|_| Malformed("a port"));
        let protocol = u8::try_from(ports.protocol).map_err(|_| Malformed("a protocol"))?;
        let (first, last) = (small(ports.first)?, small(ports.last)?);
        Ok(Ports { protocol: Protocol(protocol), first, last })
    };
    let source = |source: proto::PolicySource| {
        let kind = KINDS.into_iter().find(|kind| kind.to_string() == source.kind);
        let kind = kind.ok_or(Malformed("a kind of policy"))?;
        Ok(Source { kind, policy: source.policy.into(), rule: source.rule.into() })
    };
    let set = |id: &[u8]| id_in(id).map(SetId);
    let within = (!message.within.is_empty()).then(|| set(&message.within)).transpose()?;
    Ok(Rule {
        verdict,
        ports: message.ports.iter().map(ports).collect::<Result<_, _>>()?,
        within,
        without: message.without.iter().map(|id| set(id)).collect::<Result<_, _>>()?,
        report: message.report,
        sources: message.sources.into_iter().map(source).collect::<Result<_, _>>()?,
    })
}

fn class_out(id: ClassId, class: &Class) -> proto::PolicyClass {
    let chain = |id: Option<ChainId>| id.map(|id| id_out(id.0)).unwrap_or_default();
    proto::PolicyClass {
        id: id_out(id.0),
        egress: chain(class.egress),
        ingress: chain(class.ingress),
    }
}

fn class_in(message: &proto::PolicyClass) -> Result<(ClassId, Class), Malformed> {
    let chain = |id: &[u8]| (!id.is_empty()).then(|| id_in(id).map(ChainId)).transpose();
    let class = Class { egress: chain(&message.egress)?, ingress: chain(&message.ingress)? };
    Ok((ClassId(id_in(&message.id)?), class))
}

fn pod_out(address: IpAddr, pod: Option<&LocalPod>) -> proto::PolicyPod {
    proto::PolicyPod {
        address: octets(address),
        pod: pod.map(|pod| pod.pod.to_string()).unwrap_or_default(),
        class: pod.map(|pod| id_out(pod.class.0)).unwrap_or_default(),
    }
}

fn pod_in(message: proto::PolicyPod) -> Result<(IpAddr, Option<LocalPod>), Malformed> {
    let address = address(&message.address).ok_or(Malformed("a pod's address"))?;
    if message.pod.is_empty() {
        return Ok((address, None));
    }
    let class = ClassId(id_in(&message.class)?);
    Ok((address, Some(LocalPod { pod: message.pod.into(), class })))
}

fn note_out(note: &Note) -> proto::LongChain {
    let Note::Long { chain, lookups, why } = note;
    proto::LongChain {
        chain: id_out(chain.0),
        lookups: u32::try_from(*lookups).unwrap_or(u32::MAX),
        why: why.to_string(),
    }
}

fn note_in(message: proto::LongChain) -> Result<Note, Malformed> {
    let chain = ChainId(id_in(&message.chain)?);
    Ok(Note::Long { chain, lookups: message.lookups as usize, why: message.why.into() })
}

#[cfg(test)]
mod tests;
