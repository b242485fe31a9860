//! `Directory`: whose an address was at a time.
//!
//! Contract:
//! - A holder has an address from its `from` until it gives it up. Of one kind only one holder can
//!   have an address: who is there has it until it is known to have given it up, or until the next
//!   one begins, whichever is known.
//! - An address is looked for among pods, then hosts, services, ingresses; a short while after it
//!   was given up it still stands for its last holder (the end of a connection is reported late).
//!   Then come named networks outside, the longest prefix first; then, in the cluster's own ranges,
//!   it is unmanaged; else external.
//! - What an agent reports of an address that its own node has on some interface (a bridge to its
//!   pods, docker0), and that is nobody's by the above, is about that node. Other nodes may have the
//!   same address: of what they report it is theirs.
//! - Clones share structure: publish it in a [`stallproof::Snapshot`].

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use stallproof::Map;

use super::facts::{ExternalFacts, NodeFacts, PodFacts, ServiceFacts};
use super::{Endpoint, Moment};

/// The kernel tells of a connection's end up to two minutes after its last packet.
pub const LINGER: Duration = Duration::from_secs(120);

/// Past holders remembered of an address and kind: reports are minutes old at most, and an address
/// that changes hands more often than this in minutes is nobody's for long.
const MOST_PAST: usize = 8;

#[derive(Clone)]
pub struct Directory {
    /// In the order of rank, then of `from`.
    spans: Map<IpAddr, Arc<[Span]>>,
    /// What each present holder has, by its identity.
    holdings: Map<Id, Arc<[(IpAddr, Rank)]>>,
    /// Longest prefix first.
    named: Arc<[(IpNet, Arc<Endpoint>)]>,
    ranges: Arc<[IpNet]>,
    /// By node.
    local: Map<Arc<str>, Arc<Local>>,
    external: Arc<Endpoint>,
    unmanaged: Arc<Endpoint>,
}

/// The addresses of all interfaces of a node.
#[derive(Debug)]
struct Local {
    /// Sorted.
    addresses: Vec<IpAddr>,
    endpoint: Arc<Endpoint>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Id {
    Pod(Arc<str>),
    Node(Arc<str>),
    Service(Arc<str>, Arc<str>),
}

/// Who is asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Pod,
    Host,
    Service,
    Ingress,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    rank: Rank,
    from: Moment,
    until: Option<Moment>,
    id: Id,
    endpoint: Arc<Endpoint>,
}

impl Directory {
    pub fn new() -> Self {
        Self {
            spans: Map::new(),
            holdings: Map::new(),
            named: Arc::default(),
            ranges: Arc::default(),
            local: Map::new(),
            external: Arc::new(Endpoint::External { name: None }),
            unmanaged: Arc::new(Endpoint::Unmanaged),
        }
    }

    /// Whose `address` was at `at`.
    pub fn resolve(&self, address: IpAddr, at: Moment) -> Arc<Endpoint> {
        let address = address.to_canonical();
        if let Some(spans) = self.spans.get(&address) {
            let ranks = || spans.chunk_by(|a, b| a.rank == b.rank);
            let found = ranks().find_map(|spans| holder(spans, at));
            if let Some(span) = found.or_else(|| ranks().find_map(|spans| lingering(spans, at))) {
                return Arc::clone(&span.endpoint);
            }
        }
        let named = self.named.iter().find(|(network, _)| network.contains(&address));
        if let Some((_, endpoint)) = named {
            Arc::clone(endpoint)
        } else if self.ranges.iter().any(|range| range.contains(&address)) {
            Arc::clone(&self.unmanaged)
        } else {
            Arc::clone(&self.external)
        }
    }

    /// Whose `address` was at `at`, as the agent of `node` has seen it.
    pub fn resolve_seen_by(&self, node: &str, address: IpAddr, at: Moment) -> Arc<Endpoint> {
        let found = self.resolve(address, at);
        if !matches!(*found, Endpoint::Unmanaged | Endpoint::External { .. }) {
            return found;
        }
        let address = address.to_canonical();
        let local = self.local.get(node);
        match local.filter(|local| local.addresses.binary_search(&address).is_ok()) {
            Some(local) => Arc::clone(&local.endpoint),
            None => found,
        }
    }

    /// The addresses of all interfaces of a node: all of them. Says whether anything changed.
    pub fn set_local_addresses(&mut self, node: &str, addresses: &[IpAddr]) -> bool {
        let mut addresses: Vec<_> = addresses.iter().map(IpAddr::to_canonical).collect();
        addresses.sort();
        addresses.dedup();
        let before = self.local.get(node).map_or(&[][..], |local| &local.addresses);
        if before == addresses {
            return false;
        }
        if addresses.is_empty() {
            self.local.remove(node);
        } else {
            let endpoint = Arc::new(Endpoint::Host { name: node.into() });
            self.local.insert(node.into(), Arc::new(Local { addresses, endpoint }));
        }
        true
    }

    /// Each answers whether anything changed; `at` is when it was so, for what it no longer has.
    pub fn apply_pod(&mut self, pod: &PodFacts, at: Moment) -> bool {
        let id = Id::Pod(Arc::clone(&pod.uid));
        if let Some(until) = pod.until {
            return self.release(&id, until);
        }
        let endpoint = Endpoint::Workload {
            namespace: Arc::clone(&pod.namespace),
            name: Arc::clone(&pod.name),
            owner: pod.owner(),
            node: Arc::clone(&pod.node),
        };
        let addresses = pod.addresses.iter().map(|address| (*address, Rank::Pod));
        self.hold(&id, &[(Rank::Pod, endpoint)], addresses, pod.from, at)
    }

    pub fn delete_pod(&mut self, uid: &str, at: Moment) -> bool {
        self.release(&Id::Pod(uid.into()), at)
    }

    pub fn apply_service(&mut self, service: &ServiceFacts, at: Moment) -> bool {
        let (namespace, name) = (Arc::clone(&service.namespace), Arc::clone(&service.name));
        let id = Id::Service(Arc::clone(&namespace), Arc::clone(&name));
        let ingress =
            Endpoint::Ingress { namespace: Arc::clone(&namespace), name: Arc::clone(&name) };
        let endpoints =
            [(Rank::Service, Endpoint::Service { namespace, name }), (Rank::Ingress, ingress)];
        let inner = service.cluster_addresses.iter().map(|address| (*address, Rank::Service));
        let outer = service.ingress_addresses.iter().map(|address| (*address, Rank::Ingress));
        self.hold(&id, &endpoints, inner.chain(outer), service.from, at)
    }

    pub fn delete_service(&mut self, namespace: &str, name: &str, at: Moment) -> bool {
        self.release(&Id::Service(namespace.into(), name.into()), at)
    }

    pub fn apply_node(&mut self, node: &NodeFacts, at: Moment) -> bool {
        let id = Id::Node(Arc::clone(&node.name));
        let endpoint = Endpoint::Host { name: Arc::clone(&node.name) };
        let addresses = node.addresses.iter().map(|address| (*address, Rank::Host));
        self.hold(&id, &[(Rank::Host, endpoint)], addresses, node.from, at)
    }

    pub fn delete_node(&mut self, name: &str, at: Moment) -> bool {
        self.release(&Id::Node(name.into()), at)
    }

    /// The networks outside that have names: all of them.
    pub fn set_externals(&mut self, externals: &[ExternalFacts]) {
        let mut named: Vec<_> = externals
            .iter()
            .flat_map(|external| {
                let name = Some(Arc::clone(&external.name));
                let endpoint = Arc::new(Endpoint::External { name });
                external.networks.iter().map(move |network| (*network, Arc::clone(&endpoint)))
            })
            .collect();
        named.sort_by_key(|(network, _)| std::cmp::Reverse(network.prefix_len()));
        self.named = named.into();
    }

    /// The cluster's own ranges (pools, pod and service networks): all of them.
    pub fn set_ranges(&mut self, ranges: &[IpNet]) {
        self.ranges = ranges.into();
    }

    /// Forgets who gave an address up before `moment`. Visits everything: for a slow timer.
    pub fn forget(&mut self, moment: Moment) {
        let past = |span: &Span| span.until.is_some_and(|until| until < moment);
        let stale: Vec<_> = self
            .spans
            .iter()
            .filter(|(_, spans)| spans.iter().any(past))
            .map(|(address, _)| *address)
            .collect();
        for address in stale {
            self.edit(address, |spans| spans.retain(|span| !past(span)));
        }
    }

    fn hold(
        &mut self,
        id: &Id,
        endpoints: &[(Rank, Endpoint)],
        addresses: impl Iterator<Item = (IpAddr, Rank)>,
        from: Moment,
        at: Moment,
    ) -> bool {
        let mut held: Vec<_> = addresses.map(|(ip, rank)| (ip.to_canonical(), rank)).collect();
        held.sort();
        held.dedup();
        let endpoints: Vec<_> =
            endpoints.iter().map(|(rank, endpoint)| (*rank, Arc::new(endpoint.clone()))).collect();
        let before = self.holdings.get(id).cloned().unwrap_or_default();
        let mut changed = false;
        for gone in before.iter().filter(|held_before| !held.contains(held_before)) {
            changed |= self.end(*gone, id, at);
        }
        for (address, rank) in &held {
            let endpoint = endpoints.iter().find(|(of, _)| of == rank).map(|(_, it)| it);
            let Some(endpoint) = endpoint else { continue };
            changed |= self.edit(*address, |spans| begin(spans, *rank, from, id, endpoint));
        }
        if held.is_empty() {
            self.holdings.remove(id);
        } else if *before != *held {
            self.holdings.insert(id.clone(), held.into());
        }
        changed
    }

    fn release(&mut self, id: &Id, at: Moment) -> bool {
        let Some(held) = self.holdings.remove(id) else { return false };
        let mut changed = false;
        for held in held.iter() {
            changed |= self.end(*held, id, at);
        }
        changed
    }

    fn end(&mut self, (address, rank): (IpAddr, Rank), id: &Id, at: Moment) -> bool {
        self.edit(address, |spans| {
            let open =
                |span: &&mut Span| span.rank == rank && span.id == *id && span.until.is_none();
            if let Some(span) = spans.iter_mut().find(open) {
                span.until = Some(at.max(span.from));
            }
        })
    }

    fn edit(&mut self, address: IpAddr, edit: impl FnOnce(&mut Vec<Span>)) -> bool {
        let before = self.spans.get(&address).cloned().unwrap_or_default();
        let mut spans = before.to_vec();
        edit(&mut spans);
        if *before == *spans {
            return false;
        }
        if spans.is_empty() {
            self.spans.remove(&address);
        } else {
            self.spans.insert(address, spans.into());
        }
        true
    }
}

fn begin(spans: &mut Vec<Span>, rank: Rank, from: Moment, id: &Id, endpoint: &Arc<Endpoint>) {
    let open = |span: &&mut Span| span.rank == rank && span.id == *id && span.until.is_none();
    if let Some(span) = spans.iter_mut().find(open) {
        // Equal ones stay the same one, so that readers compare pointers.
        if span.endpoint != *endpoint {
            span.endpoint = Arc::clone(endpoint);
        }
        return;
    }
    let span = Span { rank, from, until: None, id: id.clone(), endpoint: Arc::clone(endpoint) };
    let place = spans.partition_point(|other| (other.rank, other.from) <= (rank, from));
    spans.insert(place, span);
    let past = |span: &Span| span.rank == rank && span.until.is_some();
    while spans.iter().filter(|span| past(span)).count() > MOST_PAST {
        let Some(oldest) = spans.iter().position(past) else { break };
        spans.remove(oldest);
    }
}

/// Of one rank, in the order of `from`: the first that had begun and had not ended.
fn holder(spans: &[Span], at: Moment) -> Option<&Span> {
    let ends = |i: usize| spans[i].until.or(spans.get(i + 1).map(|next| next.from));
    (0..spans.len())
        .find(|i| spans[*i].from <= at && ends(*i).is_none_or(|end| at < end))
        .map(|i| &spans[i])
}

/// The last that ended a short while before.
fn lingering(spans: &[Span], at: Moment) -> Option<&Span> {
    let ended = spans.iter().filter_map(|span| Some((span.until?, span)));
    let recent = ended.filter(|(until, _)| *until <= at && at.since(*until) < LINGER);
    recent.max_by_key(|(until, _)| *until).map(|(_, span)| span)
}

impl Default for Directory {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (addresses, holders) = (self.spans.len(), self.holdings.len());
        f.debug_struct("Directory")
            .field("addresses", &addresses)
            .field("holders", &holders)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
