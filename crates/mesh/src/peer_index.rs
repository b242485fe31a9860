//! `PeerIndex`: the peers of one cluster by name. A mesh of a hundred clusters keeps half a million of
//! them, so each is kept as a few words of text, and is a [`Peer`] only while somebody looks at it.

use std::fmt;
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use kube::ResourceExt;
use objects::kinds::{WireguardRouting, WireguardWithin};

use crate::peer::{DnsOrIp, Peer, PeerEndpoint, PeerSpec, label};

/// The labels that plans read. Others are not kept.
const LABELS: [&str; 5] =
    [label::MESH, label::NAMESPACE, label::CLUSTER, label::KILO_MESH, label::KILO_CLUSTER];

/// A clone is cheap, and the difference between two indexes is found without comparing what they share.
#[derive(Clone, Default, PartialEq)]
pub struct PeerIndex(OrdMap<Arc<str>, PackedPeer>);

/// What is kept of a peer beside its name: its version, the values of [`LABELS`] and its spec.
#[derive(Clone, PartialEq, Eq)]
struct PackedPeer(Arc<[u8]>);

/// The version, the labels, and the spec field by field: names of fields would take more room than they do.
type Unpacked = (
    Option<String>,
    Vec<Option<String>>,
    Vec<String>,
    Option<(Option<String>, Option<String>, u32)>,
    u32,
    String,
    Option<String>,
    Option<(Option<WireguardWithin>, WireguardRouting)>,
);

impl PackedPeer {
    fn pack(peer: &Peer) -> Self {
        // Those of kilo-clustermesh come last, and are rare.
        let mut labels = LABELS.map(|key| peer.labels().get(key)).to_vec();
        while labels.last().is_some_and(Option::is_none) {
            labels.pop();
        }
        let PeerSpec {
            allowed_ips,
            endpoint,
            persistent_keepalive,
            public_key,
            next_public_key,
            within,
            routing,
        } = &peer.spec;
        // Few have either.
        let rare = (within.is_some() || !routing.is_always()).then_some((within, routing));
        let endpoint = endpoint.as_ref().map(|it| (&it.dns_or_ip.dns, &it.dns_or_ip.ip, it.port));
        let version = &peer.metadata.resource_version;
        let text = serde_json::to_vec(&(
            version,
            labels,
            allowed_ips,
            endpoint,
            persistent_keepalive,
            public_key,
            next_public_key,
            rare,
        ));
        // Texts and numbers can always be written.
        Self(text.unwrap_or_default().into())
    }

    fn unpack(&self, name: &str) -> Peer {
        let mut peer = Peer::default();
        peer.metadata.name = Some(name.to_owned());
        if let Ok(kept) = serde_json::from_slice::<Unpacked>(&self.0) {
            let (version, labels, allowed_ips, endpoint, keepalive, key, next_key, rare) = kept;
            let (within, routing) = rare.unwrap_or_default();
            let labels = LABELS.into_iter().zip(labels);
            let labels = labels.filter_map(|(key, value)| Some((key.to_owned(), value?)));
            peer.metadata.labels = Some(labels.collect());
            peer.metadata.resource_version = version;
            let of = |(dns, ip, port)| PeerEndpoint { dns_or_ip: DnsOrIp { dns, ip }, port };
            peer.spec = PeerSpec {
                allowed_ips,
                endpoint: endpoint.map(of),
                persistent_keepalive: keepalive,
                public_key: key,
                next_public_key: next_key,
                within,
                routing,
            };
        }
        peer
    }
}

/// A peer before and after a change.
pub(crate) type PeerChange = (Arc<str>, Option<Peer>, Option<Peer>);

impl PeerIndex {
    pub fn get(&self, name: &str) -> Option<Peer> {
        self.0.get(name).map(|peer| peer.unpack(name))
    }

    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Adds a peer, or replaces the one of its name.
    pub fn insert(&mut self, peer: &Peer) {
        self.0.insert(peer.name_any().into(), PackedPeer::pack(peer));
    }

    /// Removes a peer, and returns whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }

    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.keys()
    }

    pub fn iter(&self) -> impl Iterator<Item = Peer> {
        self.0.iter().map(|(name, peer)| peer.unpack(name))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The peers that differ between two indexes.
    pub(crate) fn changes(&self, now: &Self) -> Vec<PeerChange> {
        let change = |item: DiffItem<'_, '_, Arc<str>, PackedPeer>| match item {
            DiffItem::Add(name, new) => (Arc::clone(name), None, Some(new.unpack(name))),
            DiffItem::Update { old: (name, old), new: (_, new) } => {
                (Arc::clone(name), Some(old.unpack(name)), Some(new.unpack(name)))
            }
            DiffItem::Remove(name, old) => (Arc::clone(name), Some(old.unpack(name)), None),
        };
        self.0.diff(&now.0).map(change).collect()
    }
}

impl FromIterator<Peer> for PeerIndex {
    fn from_iter<I: IntoIterator<Item = Peer>>(peers: I) -> Self {
        let packed = |peer: Peer| (Arc::from(peer.name_any()), PackedPeer::pack(&peer));
        Self(peers.into_iter().map(packed).collect())
    }
}

impl fmt::Debug for PeerIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
