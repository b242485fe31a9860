//! One node's peer in one target: what it is called, and what must be written.

use std::borrow::Borrow;
use std::sync::Arc;

use kube::ResourceExt;
use serde_json::{Value, json};

use crate::frame::Frame;
use crate::peer::{Peer, PeerEndpoint, PeerSpec, label};
use crate::plan::{Conflict, Update};
use crate::source::{Peered, Source};
use crate::there::There;

/// What becomes of one node's peer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decision {
    /// What is there under this name, or will be, stays. None: nothing of ours.
    pub(crate) keeps: Option<Arc<str>>,
    pub(crate) write: Option<Box<Write>>,
    pub(crate) conflict: Option<Box<Conflict>>,
    /// Whether the node's peer is in place, exactly as it should be.
    pub(crate) registered: bool,
}

#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "it is boxed where it is kept")]
pub(crate) enum Write {
    Create(Peer),
    Update(Update),
}

/// Who else would take a node's plain name: the first by cluster and node has it.
pub(crate) type First<'a> = (&'a str, &'a str);

/// The name of a node's peer in a target, and the peer if it is there. A peer keeps the name it has;
/// a new one takes the plain name unless that is somebody else's.
fn called<'t, 'n, P: Borrow<Peer>>(
    frame: &Frame,
    source: &str,
    node: &'n Peered,
    first: First<'_>,
    there: &'t There<P>,
) -> (&'n Arc<str>, Option<&'t Peer>) {
    let names = &node.names;
    if let Some(peer) = there.ours_of(&names.hashed, source) {
        return (&names.hashed, Some(peer));
    }
    let is_first = first == (source, &*node.node);
    match there.ours_of(&names.plain, source) {
        // Written before the other cluster had such a node.
        Some(peer) if is_first || first.0 != source => (&names.plain, Some(peer)),
        None if is_first && !frame.rival && !there.has(&names.plain) => (&names.plain, None),
        _ => (&names.hashed, None),
    }
}

/// How well a node can carry its cluster's residual networks in a target; the least does. Who has them
/// now keeps them while it can be reached. None: it has no endpoint there.
pub(crate) fn carrying<'n, P: Borrow<Peer>>(
    frame: &Frame,
    source: &str,
    of: &Source,
    node: &'n Peered,
    first: First<'_>,
    there: &There<P>,
) -> Option<(bool, &'n Arc<str>)> {
    let (_, existing) = called(frame, source, node, first, there);
    there.endpoint(node, existing)?;
    let carries = existing
        .is_some_and(|peer| peer.spec.allowed_ips.iter().any(|ip| of.residual.contains(ip)));
    Some((!carries, &node.node))
}

/// `extra` is what it carries beside its own routes.
pub(crate) fn decide<P: Borrow<Peer>>(
    frame: &Frame,
    source: &str,
    node: &Peered,
    extra: &[String],
    first: First<'_>,
    there: &There<P>,
) -> Decision {
    let (name, existing) = called(frame, source, node, first, there);
    let wanted = Wanted {
        routes: &node.routes,
        extra,
        endpoint: there.endpoint(node, existing),
        keepalive: frame.keepalive,
        key: &node.key,
    };
    let mut conflict = None;
    if let Some(holder) = there.holder(&node.key) {
        let covers = holder.labels().contains_key(label::MESH)
            && wanted.ips().all(|ip| holder.spec.allowed_ips.contains(ip));
        let holder_name = holder.name_any();
        if covers && (existing.is_none() || *holder_name < **name) {
            // Another mesh brings the same node with the same routes: one peer is enough.
            return Decision { keeps: None, write: None, conflict: None, registered: true };
        }
        if !covers {
            conflict = Some(Box::new(Conflict {
                cluster: source.to_owned(),
                node: node.node.to_string(),
                adoptable: holder.source(&frame.namespace, &frame.name, true).is_some(),
                holder: holder_name,
            }));
            if existing.is_none() {
                return Decision { keeps: None, write: None, conflict, registered: false };
            }
        }
    }
    let write = match existing {
        None => {
            let mut peer = Peer::new(name, wanted.spec());
            peer.metadata.labels = Some(frame.labels(source));
            Some(Write::Create(peer))
        }
        Some(peer) => patch(frame, source, peer, &wanted).map(|(patch, yields)| {
            let version = peer.resource_version();
            Write::Update(Update { name: name.to_string(), version, patch, yields })
        }),
    };
    Decision {
        keeps: Some(Arc::clone(name)),
        registered: write.is_none(),
        write: write.map(Box::new),
        conflict,
    }
}

/// A peer as it should be, not yet written out: nearly always it is as it should be.
struct Wanted<'a> {
    routes: &'a [String],
    extra: &'a [String],
    endpoint: Option<PeerEndpoint>,
    keepalive: u32,
    key: &'a str,
}

impl Wanted<'_> {
    fn ips(&self) -> impl Iterator<Item = &String> {
        self.routes.iter().chain(self.extra)
    }

    fn spec(self) -> PeerSpec {
        PeerSpec {
            allowed_ips: self.ips().cloned().collect(),
            endpoint: self.endpoint,
            persistent_keepalive: self.keepalive,
            public_key: self.key.to_owned(),
        }
    }
}

/// What makes `peer` as it should be, and whether it gives up routes; nothing if it is.
fn patch(frame: &Frame, source: &str, peer: &Peer, wanted: &Wanted<'_>) -> Option<(Value, bool)> {
    let mut labels = serde_json::Map::new();
    for (key, value) in [
        (label::MESH, frame.name.as_str()),
        (label::NAMESPACE, &frame.namespace),
        (label::CLUSTER, source),
    ] {
        if peer.labels().get(key).is_none_or(|has| has != value) {
            labels.insert(key.to_owned(), value.into());
        }
    }
    // An adopted peer that kept its old labels would be removed with its old mesh.
    for key in [label::KILO_MESH, label::KILO_CLUSTER] {
        if peer.labels().contains_key(key) {
            labels.insert(key.to_owned(), Value::Null);
        }
    }
    let mut fields = serde_json::Map::new();
    let mut yields = false;
    if peer.spec.public_key != wanted.key {
        fields.insert("publicKey".to_owned(), json!(wanted.key));
    }
    if !peer.spec.allowed_ips.iter().eq(wanted.ips()) {
        let after: Vec<&String> = wanted.ips().collect();
        yields = peer.spec.allowed_ips.iter().any(|ip| !after.contains(&ip));
        fields.insert("allowedIPs".to_owned(), json!(after));
    }
    if peer.spec.persistent_keepalive != wanted.keepalive {
        fields.insert("persistentKeepalive".to_owned(), json!(wanted.keepalive));
    }
    if peer.spec.endpoint != wanted.endpoint {
        let endpoint = wanted.endpoint.as_ref().map(|endpoint| {
            // A merge keeps what it does not name: the kind of host that it was.
            let host = &endpoint.dns_or_ip;
            json!({"dnsOrIP": {"ip": host.ip, "dns": host.dns}, "port": endpoint.port})
        });
        fields.insert("endpoint".to_owned(), json!(endpoint));
    }
    let mut patch = serde_json::Map::new();
    if !labels.is_empty() {
        patch.insert("metadata".to_owned(), json!({"labels": labels}));
    }
    if !fields.is_empty() {
        patch.insert("spec".to_owned(), fields.into());
    }
    (!patch.is_empty()).then(|| (patch.into(), yields))
}
