//! The two implementations behind one face: the kernel's WireGuard, and the one in this process.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use kernel::netns::Namespace;
use kernel::wireguard::{SetDevice, SetPeer, Socket};
use serde::{Deserialize, Serialize};

use crate::key::{PresharedKey, PrivateKey, PublicKey};
use crate::peer::{Delta, Peer, PeerStatus, Peers, Routing};
use crate::userspace::Userspace;

/// Who encrypts and decrypts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Implementation {
    Kernel,
    Userspace,
}

impl fmt::Display for Implementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel => "kernel",
            Self::Userspace => "userspace",
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    #[error("the kernel's WireGuard did not take a change")]
    Kernel(#[source] io::Error),
    #[error("WireGuard in this process cannot be started")]
    Userspace(#[source] io::Error),
}

#[derive(Debug)]
pub(crate) enum Device {
    Kernel(KernelDevice),
    Userspace(Box<Userspace>),
}

impl Device {
    pub(crate) fn implementation(&self) -> Implementation {
        match self {
            Self::Kernel(_) => Implementation::Kernel,
            Self::Userspace(_) => Implementation::Userspace,
        }
    }

    pub(crate) fn apply(&mut self, delta: &Delta) -> Result<(), DeviceError> {
        match self {
            Self::Kernel(device) => device.apply(delta).map_err(DeviceError::Kernel),
            Self::Userspace(device) => {
                device.apply(delta);
                Ok(())
            }
        }
    }

    /// Uses another key from now on, and connects to all peers anew.
    pub(crate) fn set_key(&mut self, key: &PrivateKey, peers: &Peers) -> Result<(), DeviceError> {
        match self {
            Self::Kernel(device) => device.set_key(key, peers).map_err(DeviceError::Kernel),
            Self::Userspace(device) => {
                device.set_key(key);
                Ok(())
            }
        }
    }

    pub(crate) fn status(&mut self) -> Result<BTreeMap<PublicKey, PeerStatus>, DeviceError> {
        match self {
            Self::Kernel(device) => device.status().map_err(DeviceError::Kernel),
            Self::Userspace(device) => Ok(device.status()),
        }
    }
}

/// An interface of the kernel.
#[derive(Debug)]
pub(crate) struct KernelDevice {
    socket: Socket,
    name: String,
}

/// Takes a preshared key away.
const NO_KEY: [u8; 32] = [0; 32];
/// A keepalive that is turned on is sent at once, and connects.
const WAKE: u16 = 25;

impl KernelDevice {
    /// Takes an interface that is there. The peers that it has are returned beside it: it may have been
    /// made before this process began.
    pub(crate) fn open(
        namespace: &Arc<Namespace>,
        name: &str,
        port: u16,
        key: &PrivateKey,
    ) -> io::Result<(Self, Peers)> {
        let socket = namespace.run_in(Socket::open)??;
        let mut device = Self { socket, name: name.to_owned() };
        let change = SetDevice {
            private_key: Some(key.secret().to_bytes()),
            listen_port: Some(port),
            peers: Vec::new(),
        };
        device.socket.set(name, &change)?;
        let peer = |peer: kernel::wireguard::Peer| {
            let known = Peer {
                routing: Routing::default(),
                allowed_ips: peer.allowed_ips,
                endpoint: peer.endpoint,
                keepalive: Some(peer.keepalive).filter(|seconds| *seconds > 0),
                // Not asked for: a key that is wanted is set once more.
                preshared_key: None,
                successor_of: None,
            };
            (PublicKey(peer.public_key), known)
        };
        let peers = device.socket.get(name)?.peers.into_iter().map(peer).collect();
        Ok((device, peers))
    }

    fn apply(&mut self, delta: &Delta) -> io::Result<()> {
        self.socket.set(&self.name, &SetDevice { peers: changes(delta), ..SetDevice::default() })
    }

    fn set_key(&mut self, key: &PrivateKey, peers: &Peers) -> io::Result<()> {
        let private_key = Some(key.secret().to_bytes());
        self.socket.set(&self.name, &SetDevice { private_key, ..SetDevice::default() })?;
        let keepalives = |of: &dyn Fn(&Peer) -> u16| SetDevice {
            peers: peers
                .iter()
                .map(|(key, peer)| SetPeer {
                    public_key: key.0,
                    keepalive: Some(of(peer)),
                    ..SetPeer::default()
                })
                .collect(),
            ..SetDevice::default()
        };
        self.socket.set(&self.name, &keepalives(&|_| 0))?;
        self.socket.set(&self.name, &keepalives(&|_| WAKE))?;
        self.socket.set(&self.name, &keepalives(&|peer| peer.keepalive.unwrap_or(0)))
    }

    fn status(&mut self) -> io::Result<BTreeMap<PublicKey, PeerStatus>> {
        let now = SystemTime::now();
        let peers = self.socket.get(&self.name)?.peers.into_iter();
        let status = |peer: kernel::wireguard::Peer| {
            let status = PeerStatus {
                endpoint: peer.endpoint,
                // A clock that was set back makes no handshake of the future.
                last_handshake: peer
                    .last_handshake
                    .map(|then| now.duration_since(then).unwrap_or_default()),
                received_bytes: peer.received,
                sent_bytes: peer.sent,
            };
            (PublicKey(peer.public_key), status)
        };
        Ok(peers.map(status).collect())
    }
}

/// A delta in the kernel's words, in the delta's order.
fn changes(delta: &Delta) -> Vec<SetPeer> {
    let shared = |key: &Option<PresharedKey>| key.as_ref().map_or(NO_KEY, |key| key.0);
    let removed = delta.removed.iter().map(|key| SetPeer {
        public_key: key.0,
        remove: true,
        ..SetPeer::default()
    });
    let released = delta.released.iter().map(|(key, kept)| SetPeer {
        public_key: key.0,
        allowed_ips: Some(kept.clone()),
        ..SetPeer::default()
    });
    let added = delta.added.iter().map(|(key, peer)| SetPeer {
        public_key: key.0,
        remove: false,
        preshared_key: Some(shared(&peer.preshared_key)),
        endpoint: peer.endpoint,
        keepalive: Some(peer.keepalive.unwrap_or(0)),
        allowed_ips: Some(peer.allowed_ips.clone()),
    });
    let changed = delta.changed.iter().map(|(key, change)| SetPeer {
        public_key: key.0,
        remove: false,
        preshared_key: change.preshared_key.as_ref().map(shared),
        endpoint: change.endpoint,
        keepalive: change.keepalive.map(|seconds| seconds.unwrap_or(0)),
        allowed_ips: change.allowed_ips.clone(),
    });
    removed.chain(released).chain(added).chain(changed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::delta;

    #[test]
    fn a_delta_in_the_kernels_words_gives_up_networks_before_they_are_taken() {
        let networks: Vec<_> = ["10.1.0.0/16"].iter().filter_map(|it| it.parse().ok()).collect();
        let (from, to, gone) = (PublicKey([9; 32]), PublicKey([1; 32]), PublicKey([5; 32]));
        let with = Peer { allowed_ips: networks.clone(), ..Peer::default() };
        let without = Peer { keepalive: Some(25), ..Peer::default() };
        let is: Peers =
            [(from, with.clone()), (to, without.clone()), (gone, Peer::default())].into();
        let wanted: Peers =
            [(from, Peer::default()), (to, Peer { keepalive: None, ..with })].into();
        let changes = changes(&delta(&is, &wanted));
        let expected = [
            SetPeer { public_key: gone.0, remove: true, ..SetPeer::default() },
            SetPeer { public_key: from.0, allowed_ips: Some(vec![]), ..SetPeer::default() },
            SetPeer {
                public_key: to.0,
                keepalive: Some(0),
                allowed_ips: Some(networks),
                ..SetPeer::default()
            },
        ];
        assert_eq!(changes, expected);
    }
}
