//! Which replica each client's new connections go to, and the routes for it: pure.
//!
//! A *class* says for each of a pod's egresses which replica carries a connection. It has a number, which
//! is the connection's mark, and a routing table in which the longest matching destination decides. So a
//! connection stays with its replica while others come, go and drain, and a node has no more rules than
//! there are classes.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use ipnet::IpNet;
use kernel::netlink::{MarkBits, Route, RouteKind, Rule, Tunnel};
use objects::kinds::{EgressFailure, SessionAffinity};
use serde::{Deserialize, Serialize};

use super::{GATEWAY, NETWORK};
use crate::wiring::ROUTE_PROTOCOL;

/// The bits of packets' and connections' marks that are ours: neither kube-proxy's nor Calico's.
pub(super) const MASK: u32 = 0x3ff0;
const SHIFT: u32 = 4;
/// The number that no class has: packets with it go to no destination of any egress.
pub(super) const HOLD: u16 = (MASK >> SHIFT) as u16;
/// The most classes of a node.
const MOST: u16 = HOLD - 1;
/// The routing tables of classes follow this number; their rules come before the overlay's.
pub(super) const TABLES: u32 = 117_000;
const PRIORITY: u32 = 11_700;
/// The most ways that new connections of one pod are spread over.
const MOST_WAYS: usize = 64;

/// An egress as far as packets go, by `NAMESPACE/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressView {
    pub destinations: Vec<IpNet>,
    pub affinity: SessionAffinity,
    pub failure: EgressFailure,
    /// The namespaces whose pods may use it; none: all.
    pub namespaces: Option<Vec<String>>,
    pub replicas: Vec<ReplicaView>,
}

/// A pod that translates addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaView {
    pub pod: String,
    pub addresses: Vec<IpAddr>,
    /// It is about to end: it keeps its connections and gets no new ones.
    pub draining: bool,
}

/// A pod of this node that chose egresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    pub namespace: String,
    pub pod: String,
    pub addresses: Vec<IpAddr>,
    /// `NAMESPACE/NAME` of each.
    pub egresses: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EgressInputs {
    pub egresses: BTreeMap<String, EgressView>,
    pub clients: Vec<Client>,
    /// Addresses of replicas that answered and no longer do.
    pub silent: BTreeSet<IpAddr>,
    /// Networks that are reached as ever, unless an egress names them or a part of them: those of pods.
    pub own: Vec<IpNet>,
    /// Where another plugin connects the pods.
    pub foreign: Option<ForeignNetwork>,
}

/// The pod network of another plugin, as this node sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeignNetwork {
    /// Where pods have their addresses from, on all nodes.
    pub networks: Vec<IpNet>,
    /// The addresses of this node's pods of which it is known what they chose.
    pub known: BTreeSet<IpAddr>,
    /// The names of links that lead to other machines, and not to pods of this node.
    pub outside: BTreeSet<String>,
}

/// What carries connections to an egress' destinations.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Choice {
    Replica(String),
    /// There is no replica: the egress says what becomes of packets.
    Nobody,
    /// The egress is not for this namespace: packets are dropped.
    Refused,
}

/// Each of a pod's egresses, and what carries connections to it.
pub(super) type Class = BTreeMap<String, Choice>;

/// The number of each class. A number that was given up is the last to be given again: connections may
/// still have it as their mark.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassNumbers {
    pub(super) classes: Vec<(Class, u16)>,
    last: u16,
}

impl ClassNumbers {
    fn of(&mut self, class: &Class) -> Option<u16> {
        if let Some((_, number)) = self.classes.iter().find(|(known, _)| known == class) {
            return Some(*number);
        }
        let taken: BTreeSet<u16> = self.classes.iter().map(|(_, number)| *number).collect();
        let after = (1..=MOST).map(|step| (self.last + step - 1) % MOST + 1);
        let number = after.into_iter().find(|number| !taken.contains(number))?;
        self.last = number;
        self.classes.push((class.clone(), number));
        Some(number)
    }
}

/// What a node's kernel is to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EgressProgram {
    /// The numbers of the classes among which new connections from each address are spread.
    pub(super) ways: BTreeMap<IpAddr, Vec<u16>>,
    /// The numbers of all classes: those of connections that there are, too.
    pub(super) numbers: BTreeSet<u16>,
    pub(super) routes: Vec<Route>,
    pub(super) rules: Vec<Rule>,
    /// The way of packets that are held: to destinations of egresses there is none. Nothing where there is no
    /// egress.
    pub(super) hold: HoldWay,
    /// The addresses of all replicas that this node sends to.
    pub(super) replicas: BTreeSet<IpAddr>,
    /// The addresses of all replicas that there are: on any node they send to the tunnel's port of others.
    pub(super) senders: BTreeSet<IpAddr>,
    /// The pod network of another plugin: addresses of it that are not known are held. None where there is no
    /// egress, or the pod network is our own.
    pub(super) foreign: Option<ForeignNetwork>,
    /// Clients that choose what is not there or not for them, one sentence each.
    pub troubles: Vec<String>,
}

/// Routes and rules of packets that are held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HoldWay {
    pub(super) routes: Vec<Route>,
    pub(super) rules: Vec<Rule>,
}

impl EgressProgram {
    /// Says whether pods may have to be held: there is an egress.
    pub(super) fn holds(&self) -> bool {
        !self.hold.rules.is_empty()
    }

    /// Says whether the node needs no table for it.
    pub fn is_empty(&self) -> bool {
        !self.has_classes() && self.foreign.is_none()
    }

    /// Says whether connections go into the tunnel.
    pub(super) fn has_classes(&self) -> bool {
        !self.numbers.is_empty()
    }

    pub fn clients(&self) -> usize {
        self.ways.len()
    }
}

pub(super) fn mark_of(number: u16) -> u32 {
    u32::from(number) << SHIFT
}

pub(super) fn table_of(number: u16) -> u32 {
    TABLES + u32::from(number)
}

/// The rules by which packets of a class look into its table.
pub(super) fn rules_of(number: u16) -> [Rule; 2] {
    let everybody: [IpNet; 2] = [IpNet::V4(Default::default()), IpNet::V6(Default::default())];
    everybody.map(|from| Rule {
        from,
        mark: Some(MarkBits { value: mark_of(number), mask: MASK }),
        table: table_of(number),
        priority: PRIORITY,
        protocol: ROUTE_PROTOCOL,
    })
}

/// Says whether a rule is one that [`rules_of`] makes.
pub(super) fn is_our_rule(rule: &Rule) -> bool {
    rule.protocol == ROUTE_PROTOCOL && rule.mark.is_some_and(|mark| mark.mask == MASK)
}

/// The replicas that new connections go to: those that answer and stay; where there are none, those that
/// answer; and if nobody answers, all: then it is not they who are silent.
fn serving<'a>(egress: &'a EgressView, silent: &BTreeSet<IpAddr>) -> Vec<&'a ReplicaView> {
    let answering: Vec<_> =
        egress.replicas.iter().filter(|replica| is_answering(replica, silent)).collect();
    let staying: Vec<_> = answering.iter().filter(|replica| !replica.draining).copied().collect();
    let any = |them: Vec<&'a ReplicaView>, otherwise: Vec<&'a ReplicaView>| {
        if them.is_empty() { otherwise } else { them }
    };
    any(staying, any(answering, egress.replicas.iter().collect()))
}

fn is_answering(replica: &ReplicaView, silent: &BTreeSet<IpAddr>) -> bool {
    !replica.addresses.is_empty()
        && !replica.addresses.iter().any(|address| silent.contains(address))
}

/// Plans what the kernel is to have, on the device that `device` makes and numbers. It is asked for one only
/// where the plan has a use for it: also for connections of pods that chose no longer, or are gone, which keep
/// their replica.
pub fn plan_on<E>(
    inputs: &EgressInputs,
    numbers: &mut ClassNumbers,
    device: impl FnOnce() -> Result<u32, E>,
) -> Result<EgressProgram, E> {
    let is_needed = plan(inputs, &mut numbers.clone(), 0).has_classes();
    let device = if is_needed { device()? } else { 0 };
    Ok(plan(inputs, numbers, device))
}

/// Plans what the kernel is to have, for a vxlan device of this number. Numbers of classes are given and
/// taken back.
pub fn plan(inputs: &EgressInputs, numbers: &mut ClassNumbers, device: u32) -> EgressProgram {
    let mut program = EgressProgram::default();
    // Connections stay where they are for as long as that is there.
    numbers.classes.retain(|(class, _)| {
        class.iter().all(|(egress, choice)| match (choice, inputs.egresses.get(egress)) {
            (Choice::Replica(pod), Some(egress)) => {
                let replica = egress.replicas.iter().find(|replica| replica.pod == *pod);
                replica.is_some_and(|replica| is_answering(replica, &inputs.silent))
            }
            _ => false,
        })
    });
    for client in &inputs.clients {
        let ways = ways(client, inputs, &mut program.troubles);
        if ways.iter().all(BTreeMap::is_empty) {
            continue;
        }
        let given: Option<Vec<u16>> = ways.iter().map(|class| numbers.of(class)).collect();
        let Some(given) = given else {
            let Client { namespace, pod, .. } = client;
            program.troubles.push(format!(
                "pod {namespace}/{pod} does not use its egress: this node's pods choose more \
                 combinations of egresses than the {MOST} that a node has"
            ));
            continue;
        };
        for address in &client.addresses {
            program.ways.insert(*address, given.clone());
        }
    }
    for (class, number) in &numbers.classes {
        program.numbers.insert(*number);
        program.rules.extend(rules_of(*number));
        program.routes.extend(routes(class, inputs, table_of(*number), device));
    }
    if !inputs.egresses.is_empty() {
        // As for a pod that may use none of them.
        let all: Class =
            inputs.egresses.keys().map(|egress| (egress.clone(), Choice::Refused)).collect();
        let routes = routes(&all, inputs, table_of(HOLD), device);
        program.hold = HoldWay { routes, rules: rules_of(HOLD).into() };
        program.foreign.clone_from(&inputs.foreign);
    }
    let used: BTreeSet<&String> =
        numbers.classes.iter().flat_map(|(class, _)| class.keys()).collect();
    for (id, egress) in &inputs.egresses {
        let addresses = egress.replicas.iter().flat_map(|replica| &replica.addresses);
        if used.contains(id) {
            program.replicas.extend(addresses.clone());
        }
        program.senders.extend(addresses);
    }
    program
}

/// The classes among which a pod's new connections are spread.
fn ways(client: &Client, inputs: &EgressInputs, troubles: &mut Vec<String>) -> Vec<Class> {
    let Client { namespace, pod, egresses, .. } = client;
    let mut ways = vec![Class::new()];
    for id in egresses {
        let Some(egress) = inputs.egresses.get(id) else {
            troubles.push(format!("pod {namespace}/{pod} chose egress {id}, which is not there"));
            continue;
        };
        let may = egress.namespaces.as_ref().is_none_or(|those| those.contains(namespace));
        let serving = serving(egress, &inputs.silent);
        let choices: Vec<Choice> = if !may {
            troubles.push(format!(
                "pod {namespace}/{pod} chose egress {id}, whose namespaces do not have {namespace}"
            ));
            vec![Choice::Refused]
        } else if serving.is_empty() {
            vec![Choice::Nobody]
        } else if egress.affinity == SessionAffinity::None
            && ways.len() * serving.len() <= MOST_WAYS
        {
            serving.iter().map(|replica| Choice::Replica(replica.pod.clone())).collect()
        } else {
            // The highest of all: when a replica goes, no other client moves.
            let rank = |replica: &&&ReplicaView| {
                let mut hasher = DefaultHasher::new();
                (namespace, pod, &replica.pod).hash(&mut hasher);
                hasher.finish()
            };
            serving
                .iter()
                .max_by_key(rank)
                .map(|it| Choice::Replica(it.pod.clone()))
                .into_iter()
                .collect()
        };
        let with = |class: &Class, choice: &Choice| {
            let mut class = class.clone();
            class.insert(id.clone(), choice.clone());
            class
        };
        ways = ways
            .iter()
            .flat_map(|way| choices.iter().map(|it| with(way, it)).collect::<Vec<_>>())
            .collect();
    }
    ways
}

/// The routes of a class.
fn routes(class: &Class, inputs: &EgressInputs, table: u32, device: u32) -> Vec<Route> {
    let mut kinds: BTreeMap<IpNet, RouteKind> = BTreeMap::new();
    let mut replicas: Vec<IpAddr> = Vec::new();
    for (id, choice) in class {
        let Some(egress) = inputs.egresses.get(id) else { continue };
        replicas.extend(egress.replicas.iter().flat_map(|replica| &replica.addresses).copied());
        let replica = match choice {
            Choice::Replica(pod) => egress.replicas.iter().find(|replica| replica.pod == *pod),
            _ => None,
        };
        for destination in &egress.destinations {
            let is_ipv4 = destination.addr().is_ipv4();
            let has_family =
                |it: &&ReplicaView| it.addresses.iter().any(|own| own.is_ipv4() == is_ipv4);
            let kind = match replica.filter(has_family) {
                Some(replica) => {
                    let outer = replica.addresses.iter().min_by_key(|own| own.is_ipv6());
                    outer.map(|remote| {
                        RouteKind::Tunnel(Tunnel {
                            link: device,
                            remote: *remote,
                            network: NETWORK,
                            gateway: Some(GATEWAY),
                        })
                    })
                }
                None if *choice == Choice::Refused || egress.failure == EgressFailure::Drop => {
                    Some(RouteKind::Blackhole)
                }
                None => None,
            };
            if let Some(kind) = kind {
                kinds.entry(destination.trunc()).or_insert(kind);
            }
        }
    }
    let wide: Vec<IpNet> = kinds.keys().copied().collect();
    let replicas = replicas.into_iter().map(IpNet::from);
    let kept = private().into_iter().chain(inputs.own.iter().copied()).chain(replicas);
    for net in kept.filter(|net| wide.iter().any(|wide| wide.contains(net))) {
        kinds.entry(net).or_insert(RouteKind::Throw);
    }
    let route = |(destination, kind)| Route { destination, table, protocol: ROUTE_PROTOCOL, kind };
    kinds.into_iter().map(route).collect()
}

/// Networks that an egress to the whole world does not mean.
fn private() -> Vec<IpNet> {
    let nets = [
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "169.254.0.0/16",
        "224.0.0.0/4",
        "fc00::/7",
        "fe80::/10",
        "ff00::/8",
    ];
    nets.iter().filter_map(|net| net.parse().ok()).collect()
}

#[cfg(test)]
mod tests;
