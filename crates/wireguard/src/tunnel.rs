//! `Tunnel`: one interface with its key, peers and routes.
//!
//! Contract: calls block, each for a bounded time; the owner makes them on a thread where it may wait.
//! What is told to the device is what differs from what it was told before. A tunnel whose interface
//! somebody else removed says so in [`Tunnel::status`], and is to be opened again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::IpNet;
use kernel::netlink::{self, Address, Change, LinkRef, Netlink, SetLink};
use kernel::netns::Namespace;
use tracing::warn;

use crate::clamp;
use crate::device::{Device, DeviceError, Implementation, KernelDevice};
use crate::key::{PrivateKey, PublicKey};
use crate::path;
use crate::peer::{PeerStatus, Peers, delta};
use crate::rotation;
use crate::routes::{self, Routed};
use crate::userspace::{LARGEST_MTU, Userspace};

/// What an interface is.
#[derive(Clone, Debug)]
pub struct TunnelConfig {
    /// The name of the interface.
    pub name: String,
    /// The UDP port at which peers reach it; 0 takes any.
    pub port: u16,
    pub mtu: u32,
    /// The interface's own addresses; it needs none.
    pub addresses: Vec<IpNet>,
    /// None: the kernel's where it has one.
    pub implementation: Option<Implementation>,
    /// Where `wg` looks for sockets.
    pub socket_directory: PathBuf,
    /// Whether the interface has the address that probes go to.
    pub probes: bool,
}

impl TunnelConfig {
    /// An interface of any implementation for a path of 1,500 bytes, less what WireGuard takes over IPv6.
    pub fn new(name: impl Into<String>, port: u16) -> Self {
        Self {
            name: name.into(),
            port,
            mtu: 1_420,
            addresses: Vec::new(),
            implementation: None,
            socket_directory: "/var/run/wireguard".into(),
            probes: false,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    #[error("the network namespace cannot be used")]
    Namespace(#[source] io::Error),
    #[error(transparent)]
    Netlink(#[from] netlink::Error),
    #[error("the interface {0} cannot be made in this process: {1}")]
    Open(String, #[source] DeviceError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("somebody removed the interface {0}")]
    Removed(String),
}

/// What an interface has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelStatus {
    pub implementation: Implementation,
    pub public_key: PublicKey,
    pub mtu: u32,
    pub peers: BTreeMap<PublicKey, PeerStatus>,
    /// Networks of peers that are not routed into the tunnel, because a peer is reached there.
    pub unrouted: BTreeSet<IpNet>,
}

#[derive(Debug)]
pub struct Tunnel {
    config: TunnelConfig,
    key: PublicKey,
    /// The key before, of which the interface still has the address.
    outdated: Option<PublicKey>,
    is_probed: bool,
    device: Device,
    netlink: Netlink,
    link: u32,
    mtu: u32,
    /// The peers as they are wanted, and as the device has them.
    wanted: Peers,
    applied: Peers,
    /// The peers on whose way only smaller packets fit.
    narrow: BTreeMap<PublicKey, u32>,
    /// The routes and the guards beneath them as they were made; none if that is to be read.
    routed: Option<Routed>,
    guarded: Option<BTreeSet<IpNet>>,
    unrouted: BTreeSet<IpNet>,
}

impl Tunnel {
    /// Makes the interface in a namespace, or takes the kernel's that is there, and brings it up.
    pub fn open(
        namespace: &Arc<Namespace>,
        config: TunnelConfig,
        key: &PrivateKey,
    ) -> Result<Self, TunnelError> {
        let mut netlink = namespace.netlink().map_err(TunnelError::Namespace)?;
        let in_kernel = match config.implementation {
            Some(Implementation::Userspace) => false,
            wanted => match make_link(&mut netlink, &config) {
                Ok(()) => true,
                Err(error) if wanted.is_none() && is_unsupported(&error) => false,
                Err(error) => return Err(error.into()),
            },
        };
        let failed = |error| TunnelError::Open(config.name.clone(), error);
        let (device, applied) = if in_kernel {
            let opened = KernelDevice::open(namespace, &config.name, config.port, key);
            let (device, peers) = opened.map_err(DeviceError::Kernel)?;
            (Device::Kernel(device), peers)
        } else {
            let TunnelConfig { name, port, mtu, socket_directory, .. } = &config;
            let opened = Userspace::open(namespace, name, *port, *mtu, key, socket_directory);
            (Device::Userspace(Box::new(opened.map_err(failed)?)), Peers::new())
        };
        let found = netlink.link(LinkRef::Name(&config.name))?;
        let link = found.ok_or_else(|| TunnelError::Removed(config.name.clone()))?.index;
        let mtu = if in_kernel { config.mtu } else { config.mtu.min(LARGEST_MTU) };
        let up = SetLink { up: true, mtu: Some(mtu), no_own_addresses: true, ..SetLink::default() };
        let addresses =
            config.addresses.iter().map(|it| Change::Address(Address { link, address: *it }));
        let changes: Vec<_> =
            [Change::Set(LinkRef::Index(link), up)].into_iter().chain(addresses).collect();
        netlink.apply(&changes)?;
        if let Err(error) = clamp::apply(namespace, &config.name) {
            let name = &config.name;
            warn!(%error, name, "TCP through the interface announces segments as large as it likes");
        }
        let mut tunnel = Self {
            config,
            key: key.public(),
            outdated: None,
            is_probed: false,
            device,
            netlink,
            link,
            mtu,
            wanted: applied.clone(),
            applied,
            narrow: BTreeMap::new(),
            routed: None,
            guarded: None,
            unrouted: BTreeSet::new(),
        };
        tunnel.set_probe_address();
        Ok(tunnel)
    }

    /// Gives the interface the address of its key. That of the key before stays until the next change:
    /// peers learn of a new key one after the other.
    fn set_probe_address(&mut self) {
        if !self.config.probes {
            return;
        }
        let link = self.link;
        let address = |key| Address { link, address: path::allowed(key) };
        let new = Change::Address(address(self.key));
        let old = self.outdated.take().map(|key| Change::DeleteAddress(address(key)));
        let changes: Vec<_> = [new].into_iter().chain(old).collect();
        let made = self.netlink.apply(&changes);
        self.is_probed = made.is_ok();
        if let Err(error) = made {
            // A node without IPv6 has tunnels all the same.
            warn!(error = stallproof::sentence(&error), "the interface has no address for probes");
        }
    }

    /// Returns whether the interface has the address that probes go to.
    pub fn is_probed(&self) -> bool {
        self.is_probed
    }

    pub fn implementation(&self) -> Implementation {
        self.device.implementation()
    }

    pub fn public_key(&self) -> PublicKey {
        self.key
    }

    /// The number of the interface.
    pub fn link(&self) -> u32 {
        self.link
    }

    /// The size of the largest packet that the interface takes.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Makes the peers those that are wanted.
    pub fn set_peers(&mut self, wanted: Peers) -> Result<(), TunnelError> {
        self.wanted = wanted;
        self.apply()
    }

    /// Says on the way to which peers only smaller packets fit: their routes have that size. It is used
    /// when peers are set next.
    pub fn set_narrow(&mut self, narrow: BTreeMap<PublicKey, u32>) {
        self.narrow = narrow;
    }

    /// Lets successors that have connected take over, and repairs routes that others removed. To be called
    /// every second or so while [`Tunnel::is_rotating`], else every half minute.
    pub fn converge(&mut self) -> Result<(), TunnelError> {
        (self.routed, self.guarded) = (None, None);
        self.apply()
    }

    fn apply(&mut self) -> Result<(), TunnelError> {
        let effective = if self.is_rotating() {
            rotation::effective(&self.wanted, &self.device.status()?)
        } else {
            self.wanted.clone()
        };
        // No packet for a new network leaves in clear text, whatever fails after this.
        let (routed, unrouted) = routes::wanted(&effective, &self.narrow);
        let guarded = match self.guarded.take() {
            Some(is) => is,
            None => routes::guarded(&mut self.netlink)?,
        };
        let new = routed.keys().filter(|network| !guarded.contains(network));
        routes::guard(&mut self.netlink, new)?;
        let delta = delta(&self.applied, &effective);
        if !delta.is_empty() {
            self.device.apply(&delta)?;
            self.applied = effective;
        }
        let is = match self.routed.take() {
            Some(is) => is,
            None => routes::read(&mut self.netlink, self.link)?,
        };
        routes::apply(&mut self.netlink, self.link, &is, &routed)?;
        let gone = guarded.iter().filter(|network| !routed.contains_key(network));
        routes::unguard(&mut self.netlink, gone)?;
        self.guarded = Some(routed.keys().copied().collect());
        (self.routed, self.unrouted) = (Some(routed), unrouted);
        Ok(())
    }

    /// Returns whether a peer is about to change its key.
    pub fn is_rotating(&self) -> bool {
        rotation::is_pending(&self.wanted)
    }

    /// Uses another key of this node from now on. Peers that know it connect anew at once.
    pub fn set_key(&mut self, key: &PrivateKey) -> Result<(), TunnelError> {
        self.device.set_key(key, &self.applied)?;
        let before = std::mem::replace(&mut self.key, key.public());
        self.set_probe_address();
        self.outdated = Some(before);
        Ok(())
    }

    pub fn status(&mut self) -> Result<TunnelStatus, TunnelError> {
        let found = self.netlink.link(LinkRef::Name(&self.config.name))?;
        if found.is_none_or(|link| link.index != self.link) {
            return Err(TunnelError::Removed(self.config.name.clone()));
        }
        Ok(TunnelStatus {
            implementation: self.implementation(),
            public_key: self.key,
            mtu: self.mtu,
            peers: self.device.status()?,
            unrouted: self.unrouted.clone(),
        })
    }

    /// Removes the interface, its routes, and the guards beneath them.
    pub fn close(mut self) -> Result<(), TunnelError> {
        let link = LinkRef::Index(self.link);
        drop(self.device);
        let guarded = routes::guarded(&mut self.netlink)?;
        routes::unguard(&mut self.netlink, guarded.iter())?;
        match self.netlink.apply(&[Change::Delete(link)]) {
            Err(error) if !error.not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }
}

fn make_link(netlink: &mut Netlink, config: &TunnelConfig) -> Result<(), netlink::Error> {
    match netlink.apply(&[Change::Wireguard { name: &config.name, mtu: config.mtu }]) {
        // An agent before this one made it: its sessions go on.
        Err(error) if error.already_exists() => Ok(()),
        result => result,
    }
}

/// The kernel answers so to a kind of link that it does not know.
fn is_unsupported(error: &netlink::Error) -> bool {
    error.source.kind() == io::ErrorKind::Unsupported
}
