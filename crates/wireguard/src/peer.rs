//! Peers as they should be, as they are, and what leads from one to the other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;

use crate::key::{PresharedKey, PublicKey};

/// A peer as it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// What may come from it, and what is sent to it.
    pub allowed_ips: Vec<IpNet>,
    /// Where it is. None: it says so itself by connecting.
    pub endpoint: Option<SocketAddr>,
    /// Says something at least this often, so that a NAT in between does not forget. Seconds.
    pub keepalive: Option<u16>,
    pub preshared_key: Option<PresharedKey>,
    /// The peer is the same machine as this one, with its next key: it takes over the networks of the
    /// other when it has been heard of.
    pub successor_of: Option<PublicKey>,
    /// By which routes its networks are sent to it.
    pub routing: Routing,
}

/// By which routes a peer's networks are sent to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Routing {
    /// By routes of the main table, with guards beneath them.
    #[default]
    Main,
    /// By routes that are looked up before the main table, which another data plane has routes in.
    Before,
    /// By routes of the cluster's own tables ([`crate::cluster`]), which are made apart.
    Cluster,
    /// By none: another data plane has its networks. What comes from it is taken.
    Nowhere,
    /// By none where the main table has a route of somebody else, else as [`Before`](Self::Before).
    Yielding,
}

/// Peers by their public keys.
pub type Peers = BTreeMap<PublicKey, Peer>;

/// What a peer has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerStatus {
    /// Where it was heard last, or was said to be.
    pub endpoint: Option<SocketAddr>,
    /// How long ago the last handshake was.
    pub last_handshake: Option<Duration>,
    pub received_bytes: u64,
    pub sent_bytes: u64,
}

/// What leads from some peers to others. It is made in the order of its fields, so that a network is
/// given up before another peer takes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    pub removed: Vec<PublicKey>,
    /// Peers that give up networks which others take: what they keep.
    pub released: BTreeMap<PublicKey, Vec<IpNet>>,
    pub added: Peers,
    /// Peers of which something else than their networks has changed, or which got networks.
    pub changed: BTreeMap<PublicKey, Change>,
}

/// What changes of a peer; what is none stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    pub allowed_ips: Option<Vec<IpNet>>,
    /// Where the peer is now said to be. A peer that is no longer said to be anywhere stays where it was
    /// heard.
    pub endpoint: Option<SocketAddr>,
    pub keepalive: Option<Option<u16>>,
    pub preshared_key: Option<Option<PresharedKey>>,
}

impl Delta {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Says what leads from `is` to `wanted`, in as few changes as it takes. An endpoint is set when it is said
/// anew, and is otherwise left to what was heard: a peer that roamed is not called back.
pub fn delta(is: &Peers, wanted: &Peers) -> Delta {
    let mut delta = Delta {
        removed: is.keys().filter(|key| !wanted.contains_key(key)).copied().collect(),
        ..Delta::default()
    };
    let (mut moved, mut gained) = (Vec::new(), BTreeSet::<IpNet>::new());
    for (key, new) in wanted {
        let Some(old) = is.get(key) else {
            gained.extend(&new.allowed_ips);
            delta.added.insert(*key, new.clone());
            continue;
        };
        let mut change = Change::default();
        if old.allowed_ips != new.allowed_ips {
            gained.extend(new.allowed_ips.iter().filter(|ip| !old.allowed_ips.contains(ip)));
            moved.push((*key, &old.allowed_ips, &new.allowed_ips));
        }
        if old.endpoint != new.endpoint {
            change.endpoint = new.endpoint;
        }
        if old.keepalive != new.keepalive {
            change.keepalive = Some(new.keepalive);
        }
        if old.preshared_key != new.preshared_key {
            change.preshared_key = Some(new.preshared_key.clone());
        }
        if change != Change::default() {
            delta.changed.insert(*key, change);
        }
    }
    for (key, old, new) in moved {
        let is_contested = old.iter().any(|ip| !new.contains(ip) && gained.contains(ip));
        if is_contested {
            let kept = old.iter().filter(|ip| new.contains(ip)).copied();
            delta.released.insert(key, kept.collect());
        }
        if !is_contested || new.iter().any(|ip| !old.contains(ip)) {
            delta.changed.entry(key).or_default().allowed_ips = Some(new.clone());
        }
    }
    delta
}

#[cfg(test)]
mod tests;
