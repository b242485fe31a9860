//! The peers of a device, and which of them a packet is for.
//!
//! ```text
//! packet from the interface ── destination ──► networks ─┐
//! handshake ── public key ──► peers ─────────────────────┼──► DevicePeer: keys, timers, endpoint
//! packet from the network ── session's number ──► sessions┘
//! ```
//!
//! Contract:
//! - A packet never waits for a change: networks and keys are looked up in what was published last, and a
//!   change publishes what it made beside it.
//! - A change costs what it touches, however many peers there are.
//! - Packets of one peer wait for each other while a batch of them is encrypted or decrypted: `gotatun`'s
//!   `Tunn` has one owner. Packets of different peers do not.
//! - A peer that was removed has no session any more.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use gotatun::noise::Tunn;
use gotatun::noise::index_table::IndexTable;
use gotatun::noise::rate_limiter::RateLimiter;
use gotatun::packet::WgKind;
use gotatun::x25519;
use ipnet::IpNet;
use parking_lot::Mutex;
use stallproof::snapshot::{Map, Snapshot, View};

use super::allowed::AllowedIps;
use crate::key::PublicKey;
use crate::peer::{Change, Delta, Peer};

/// How many handshakes a second of one address are answered without asking it to prove that it is there.
const HANDSHAKES_A_SECOND: u64 = 100;

/// The key of this end.
pub(super) struct Identity {
    pub(super) secret: x25519::StaticSecret,
    pub(super) public: x25519::PublicKey,
    /// Counts handshakes, and has those that are too many prove where they come from.
    pub(super) limiter: Arc<RateLimiter>,
}

impl Identity {
    fn new(secret: x25519::StaticSecret) -> Arc<Self> {
        let public = x25519::PublicKey::from(&secret);
        let limiter = Arc::new(RateLimiter::new(&public, HANDSHAKES_A_SECOND));
        Arc::new(Self { secret, public, limiter })
    }
}

pub(super) struct DevicePeer {
    pub(super) key: PublicKey,
    /// Held for a batch of packets of this peer, for its timers, or for a change of it.
    pub(super) state: Mutex<PeerState>,
}

pub(super) struct PeerState {
    pub(super) tunnel: Tunn,
    /// Where it was heard last, or was said to be.
    pub(super) endpoint: Option<SocketAddr>,
    /// The numbers by which its sessions and handshakes are found in [`DevicePeers::sessions`]: at most
    /// those that `tunnel` holds, and what became stale since its timers were looked at.
    numbers: Vec<u32>,
    is_removed: bool,
}

/// What packets are looked up in.
#[derive(Clone, Default)]
pub(super) struct Table {
    peers: Map<PublicKey, Entry>,
    networks: AllowedIps<Arc<DevicePeer>>,
}

#[derive(Clone)]
struct Entry {
    peer: Arc<DevicePeer>,
    /// What it is allowed, but for what another peer was allowed since.
    networks: Arc<[IpNet]>,
}

impl Table {
    /// Returns the peer that packets for an address go to, and that packets from it may come from.
    pub(super) fn having(&self, address: IpAddr) -> Option<&Arc<DevicePeer>> {
        self.networks.find(address)
    }

    pub(super) fn peer(&self, key: &PublicKey) -> Option<&Arc<DevicePeer>> {
        Some(&self.peers.get(key)?.peer)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<DevicePeer>> {
        self.peers.values().map(|entry| &entry.peer)
    }

    /// Makes the networks of a peer these, and no others.
    fn set_networks(&mut self, key: &PublicKey, networks: &[IpNet]) {
        let Some(entry) = self.peers.get_mut(key) else { return };
        let peer = Arc::clone(&entry.peer);
        let new: Arc<[IpNet]> = networks.iter().map(IpNet::trunc).collect();
        let old = std::mem::replace(&mut entry.networks, Arc::clone(&new));
        let kept: BTreeSet<_> = new.iter().collect();
        for network in old.iter().filter(|it| !kept.contains(it)) {
            self.release(network, &peer);
        }
        for network in &*new {
            if !self.networks.get(network).is_some_and(|owner| Arc::ptr_eq(owner, &peer)) {
                self.networks.insert(network, Arc::clone(&peer));
            }
        }
    }

    /// Takes a network from a peer, unless another has it by now.
    fn release(&mut self, network: &IpNet, peer: &Arc<DevicePeer>) {
        if self.networks.get(network).is_some_and(|owner| Arc::ptr_eq(owner, peer)) {
            self.networks.remove(network);
        }
    }
}

/// A peer as somebody who asks sees it.
pub(crate) struct PeerView {
    pub(crate) key: PublicKey,
    pub(crate) endpoint: Option<SocketAddr>,
    pub(crate) preshared_key: Option<[u8; 32]>,
    pub(crate) keepalive: Option<u16>,
    pub(crate) last_handshake: Option<Duration>,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) networks: Vec<IpNet>,
}

pub(super) struct DevicePeers {
    identity: Snapshot<Arc<Identity>>,
    table: Snapshot<Table>,
    /// Peers by the numbers that their packets carry. Held for one look or one change.
    sessions: Mutex<HashMap<u32, Arc<DevicePeer>>>,
    numbers: IndexTable,
}

impl fmt::Debug for DevicePeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DevicePeers").finish_non_exhaustive()
    }
}

impl DevicePeers {
    pub(super) fn new(secret: x25519::StaticSecret) -> Self {
        Self {
            identity: Snapshot::new(Identity::new(secret)),
            table: Snapshot::default(),
            sessions: Mutex::default(),
            numbers: IndexTable::from_os_rng(),
        }
    }

    pub(super) fn identity(&self) -> Arc<Identity> {
        self.identity.read(Arc::clone)
    }

    pub(super) fn table(&self) -> View<Table> {
        self.table.load()
    }

    /// Returns the peer whose session or handshake has this number.
    pub(super) fn of_session(&self, number: u32) -> Option<Arc<DevicePeer>> {
        self.sessions.lock().get(&number).cloned()
    }

    /// Has a peer found by the number of a handshake that is about to be sent to it.
    pub(super) fn register(&self, sent: &WgKind, peer: &Arc<DevicePeer>, state: &mut PeerState) {
        let number = match sent {
            WgKind::HandshakeInit(packet) => packet.sender_idx.get(),
            WgKind::HandshakeResp(packet) => packet.sender_idx.get(),
            WgKind::CookieReply(_) | WgKind::Data(_) => return,
        };
        if !state.is_removed {
            state.numbers.push(number);
            self.sessions.lock().insert(number, Arc::clone(peer));
        }
    }

    /// Forgets the numbers of sessions that have ended.
    pub(super) fn forget_stale(&self, peer: &Arc<DevicePeer>, state: &mut PeerState) {
        let stale = state.numbers.extract_if(.., |number| !self.numbers.in_use(*number));
        stale.for_each(|number| self.forget(number, peer));
    }

    fn forget(&self, number: u32, peer: &Arc<DevicePeer>) {
        let mut sessions = self.sessions.lock();
        // A number that is free may be another peer's by now.
        if sessions.get(&number).is_some_and(|owner| Arc::ptr_eq(owner, peer)) {
            sessions.remove(&number);
        }
    }

    /// Makes the changes in their order, and publishes what comes of all of them at once.
    pub(super) fn apply(&self, delta: &Delta) {
        let mut removed = Vec::new();
        let identity = self.identity();
        self.table.update(|table| {
            for key in &delta.removed {
                let Some(entry) = table.peers.remove(key) else { continue };
                for network in &*entry.networks {
                    table.release(network, &entry.peer);
                }
                removed.push(entry.peer);
            }
            for (key, kept) in &delta.released {
                table.set_networks(key, kept);
            }
            for (key, peer) in &delta.added {
                if !table.peers.contains_key(key) {
                    let made = self.make(*key, peer, &identity);
                    table.peers.insert(*key, Entry { peer: made, networks: Arc::default() });
                }
                table.set_networks(key, &peer.allowed_ips);
            }
            for (key, change) in &delta.changed {
                if let Some(networks) = &change.allowed_ips {
                    table.set_networks(key, networks);
                }
            }
            true
        });
        for peer in removed {
            let mut state = peer.state.lock();
            state.is_removed = true;
            let numbers = std::mem::take(&mut state.numbers);
            numbers.into_iter().for_each(|number| self.forget(number, &peer));
        }
        let table = self.table();
        for (key, Change { endpoint, keepalive, preshared_key, .. }) in &delta.changed {
            let Some(peer) = table.peer(key) else { continue };
            let mut state = peer.state.lock();
            if endpoint.is_some() {
                state.endpoint = *endpoint;
            }
            if let Some(seconds) = keepalive {
                state.tunnel.set_persistent_keepalive(*seconds);
            }
            if let Some(key) = preshared_key {
                state.tunnel.set_preshared_key(key.as_ref().map(|key| key.0));
            }
        }
    }

    fn make(&self, key: PublicKey, peer: &Peer, identity: &Identity) -> Arc<DevicePeer> {
        let tunnel = Tunn::new(
            identity.secret.clone(),
            key.0.into(),
            peer.preshared_key.as_ref().map(|key| key.0),
            peer.keepalive,
            self.numbers.clone(),
            Arc::clone(&identity.limiter),
        );
        let state =
            PeerState { tunnel, endpoint: peer.endpoint, numbers: Vec::new(), is_removed: false };
        Arc::new(DevicePeer { key, state: Mutex::new(state) })
    }

    /// Uses another key from now on, which ends all sessions. Returns what opens new ones: peers that are
    /// silent would not notice.
    pub(super) fn set_key(&self, secret: x25519::StaticSecret) -> Vec<(WgKind, SocketAddr)> {
        let identity = Identity::new(secret);
        let published = Arc::clone(&identity);
        self.identity.update(|current| {
            *current = published;
            true
        });
        let mut calls = Vec::new();
        for peer in self.table().iter() {
            let mut state = peer.state.lock();
            let limiter = Arc::clone(&identity.limiter);
            state.tunnel.set_static_private(identity.secret.clone(), identity.public, limiter);
            // A peer without an endpoint, or one that is away, connects when it comes.
            let Some(endpoint) = state.endpoint else { continue };
            if let Some(packet) = state.tunnel.format_handshake_initiation(false) {
                let packet = WgKind::from(packet);
                self.register(&packet, peer, &mut state);
                calls.push((packet, endpoint));
            }
        }
        calls
    }

    pub(super) fn views(&self) -> Vec<PeerView> {
        let table = self.table();
        let view = |entry: &Entry| {
            let is_own = |network: &&IpNet| {
                table.networks.get(network).is_some_and(|owner| Arc::ptr_eq(owner, &entry.peer))
            };
            let networks = entry.networks.iter().filter(is_own).copied().collect();
            let state = entry.peer.state.lock();
            let (last_handshake, sent, received, _loss, _time) = state.tunnel.stats();
            PeerView {
                key: entry.peer.key,
                endpoint: state.endpoint,
                preshared_key: state.tunnel.preshared_key(),
                keepalive: state.tunnel.persistent_keepalive(),
                last_handshake,
                received_bytes: received as u64,
                sent_bytes: sent as u64,
                networks,
            }
        };
        table.peers.values().map(view).collect()
    }
}

#[cfg(test)]
mod tests;
