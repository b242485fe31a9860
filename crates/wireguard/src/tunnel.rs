//! `Tunnel`: one interface with its key, peers and routes.
//!
//! Contract: calls block, each for a bounded time; the owner makes them on a thread where it may wait.
//! What is told to the device is what differs from what it was told before. A tunnel whose interface
//! somebody else removed says so in [`Tunnel::status`], and is to be opened again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::IpNet;
use kernel::netlink::{self, Address, Change, LinkRef, Netlink, SetLink};
use kernel::netns::Namespace;
use kernel::sysctl;
use tracing::warn;

use crate::claims::Gateway;
use crate::clamp;
use crate::cluster::{self, ClusterRoutes, Way};
use crate::device::{Device, DeviceError, Implementation, KernelDevice};
use crate::key::{PrivateKey, PublicKey};
use crate::path;
use crate::peer::{Peer, PeerStatus, Peers, Routing, delta};
use crate::rotation;
use crate::route_plan::{self, PeerChanges, RoutePlan};
use crate::routes::{self, Routed, Wanted};
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
    /// Networks of peers that yield, to which nobody else has a route.
    pub kept: BTreeSet<IpNet>,
    /// Gateways of this cluster to which no way is known.
    pub lost: BTreeSet<String>,
}

#[derive(Debug)]
pub struct Tunnel {
    config: TunnelConfig,
    namespace: Arc<Namespace>,
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
    kept: BTreeSet<IpNet>,
    lost: BTreeSet<String>,
    /// What one peer's change changes of these; none if all are to be looked at.
    plan: Option<RoutePlan>,
    /// What is sent to a gateway of this cluster.
    forwarded: BTreeMap<IpNet, Gateway>,
    /// The ranges of machines outside of clusters.
    external: BTreeSet<IpNet>,
    is_loose: bool,
    /// The routes to the cluster's own nodes as they were made; none if that is to be read.
    cluster: Option<ClusterRoutes>,
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
            namespace: Arc::clone(namespace),
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
            kept: BTreeSet::new(),
            lost: BTreeSet::new(),
            plan: None,
            forwarded: BTreeMap::new(),
            external: BTreeSet::new(),
            is_loose: false,
            cluster: None,
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

    /// Makes the peers those that are wanted. To tell what differs costs a look at each; who knows what
    /// differs says so by [`Tunnel::change_peers`].
    pub fn set_peers(&mut self, wanted: Peers) -> Result<(), TunnelError> {
        if self.plan.is_none() {
            self.wanted = wanted;
            return self.apply();
        }
        let gone = self.wanted.keys().filter(|key| !wanted.contains_key(key));
        let mut changes: PeerChanges = gone.map(|key| (*key, None)).collect();
        let new = wanted.into_iter().filter(|(key, peer)| self.wanted.get(key) != Some(peer));
        changes.extend(new.map(|(key, peer)| (key, Some(peer))));
        self.change_peers(changes)
    }

    /// Makes some peers those that are wanted, and leaves all others. It costs what these have, however many
    /// others there are.
    pub fn change_peers(&mut self, changes: PeerChanges) -> Result<(), TunnelError> {
        let is_plain = changes.values().flatten().all(route_plan::is_plain);
        match self.plan.take().filter(|_| is_plain) {
            Some(mut plan) => {
                // What fails is looked at as a whole the next time.
                self.change_planned(changes, &mut plan)?;
                self.plan = Some(plan);
                Ok(())
            }
            None => {
                want(&mut self.wanted, changes);
                self.apply()
            }
        }
    }

    /// Makes changes that concern nothing but the peers themselves and their routes.
    fn change_planned(
        &mut self,
        changes: PeerChanges,
        plan: &mut RoutePlan,
    ) -> Result<(), TunnelError> {
        if !changes.values().flatten().all(is_usual) {
            self.loosen();
        }
        let old = |key: &PublicKey| Some((*key, self.applied.get(key)?.clone()));
        let new = |(key, new): (&PublicKey, &Option<Peer>)| Some((*key, new.clone()?));
        let delta = delta(
            &changes.keys().filter_map(old).collect(),
            &changes.iter().filter_map(new).collect(),
        );
        let mut wanted = Wanted {
            routed: self.routed.take().unwrap_or_default(),
            guarded: self.guarded.take().unwrap_or_default(),
            unrouted: std::mem::take(&mut self.unrouted),
            ..Wanted::default()
        };
        let had_before = routes::has_before(&wanted.routed);
        let differs = plan.change(&self.wanted, &changes, &mut wanted);
        let before = (had_before, routes::has_before(&wanted.routed));
        self.unrouted = wanted.unrouted;
        // No packet for a new network leaves in clear text, whatever fails after this.
        let guarding = routes::guard(&mut self.netlink, differs.guarded.iter());
        want(&mut self.wanted, changes.clone());
        guarding?;
        if !delta.is_empty() {
            self.device.apply(&delta)?;
            want(&mut self.applied, changes);
        }
        let (new, gone) = (differs.new.into_iter(), differs.gone.into_iter());
        routes::change(&mut self.netlink, new, gone, before)?;
        routes::unguard(&mut self.netlink, differs.unguarded.iter())?;
        (self.routed, self.guarded) = (Some(wanted.routed), Some(wanted.guarded));
        Ok(())
    }

    /// Says on the way to which peers only smaller packets fit: their routes have that size. It is used
    /// when peers are set next.
    pub fn set_narrow(&mut self, narrow: BTreeMap<PublicKey, u32>) {
        if self.narrow != narrow {
            (self.narrow, self.plan) = (narrow, None);
        }
    }

    /// Says what is sent to gateways of this cluster. It is used when peers are set next.
    pub(crate) fn set_forwarded(&mut self, forwarded: BTreeMap<IpNet, Gateway>) {
        if self.forwarded != forwarded {
            (self.forwarded, self.plan) = (forwarded, None);
        }
    }

    /// Says in which ranges nothing is sent but to peers. It is used when peers are set next.
    pub(crate) fn set_external(&mut self, external: BTreeSet<IpNet>) {
        if self.external != external {
            (self.external, self.plan) = (external, None);
        }
    }

    /// Has the interface take packets from networks to which another one has the routes: while networks
    /// move, one end sends by this interface before the other does. The kernel is loose about that only
    /// where the interface has an address of IPv4; nobody sends from this one.
    fn loosen(&mut self) {
        if std::mem::replace(&mut self.is_loose, true) {
            return;
        }
        let address = IpNet::from(IpAddr::from([127, 117, 118, 1]));
        let change = Change::Address(Address { link: self.link, address });
        if let Err(error) = self.netlink.apply(&[change]) {
            warn!(error = stallproof::sentence(&error), "the interface cannot be made loose");
        }
        let file = sysctl::net(format!("ipv4/conf/{}/rp_filter", self.config.name));
        // Where there is no such filter there is nothing to loosen.
        let _ = self.namespace.run_in(|| std::fs::write(file, "2"));
    }

    /// Lets successors that have connected take over, and repairs routes that others removed. To be called
    /// every second or so while [`Tunnel::is_rotating`], else every half minute.
    pub fn converge(&mut self) -> Result<(), TunnelError> {
        (self.routed, self.guarded, self.plan) = (None, None, None);
        self.apply()
    }

    /// Makes the routes to the cluster's own nodes those that are wanted; none are where the pod network is
    /// not encrypted. With `repair` the kernel is read: others may have removed some.
    pub(crate) fn set_cluster(
        &mut self,
        wanted: Option<cluster::Wanted>,
        repair: bool,
    ) -> Result<(), TunnelError> {
        let found = match self.cluster.take().filter(|_| !repair) {
            Some(found) => found,
            None => cluster::read(&mut self.netlink)?,
        };
        let wanted = match wanted {
            None => ClusterRoutes::default(),
            Some(cluster::Wanted { mode, network, nodes }) => {
                let has = self.netlink.all_addresses()?;
                let has: BTreeSet<_> = has.into_iter().map(|it| it.address.addr()).collect();
                let sources: Vec<_> =
                    network.addresses.iter().copied().filter(|it| has.contains(it)).collect();
                let way = Way { link: Some(self.link), sources: &sources, nodes: Some(&nodes) };
                cluster::wanted(mode, &network, &way)
            }
        };
        cluster::make(&mut self.netlink, &cluster::plan(&found, &wanted, true))?;
        self.cluster = Some(wanted);
        Ok(())
    }

    /// Looks at all peers and routes, and makes what differs.
    fn apply(&mut self) -> Result<(), TunnelError> {
        self.plan = None;
        let effective = if self.is_rotating() {
            rotation::effective(&self.wanted, &self.device.status()?)
        } else {
            self.wanted.clone()
        };
        if !effective.values().all(is_usual) {
            self.loosen();
        }
        let needs_foreign = !self.forwarded.is_empty()
            || effective.values().any(|peer| peer.routing == Routing::Yielding);
        let mut foreign = Vec::new();
        if self.routed.is_none() || needs_foreign {
            let (ours, others) = routes::read(&mut self.netlink, self.link)?;
            (self.routed, foreign) = (Some(ours), others);
        }
        let Wanted { routed, guarded: wanted_guards, unrouted, kept, lost } = routes::wanted(
            self.link,
            &effective,
            &self.narrow,
            &self.forwarded,
            &self.external,
            &foreign,
        );
        // No packet for a new network leaves in clear text, whatever fails after this.
        let guarded = match self.guarded.take() {
            Some(is) => is,
            None => routes::guarded(&mut self.netlink)?,
        };
        let new = wanted_guards.difference(&guarded);
        routes::guard(&mut self.netlink, new)?;
        let delta = delta(&self.applied, &effective);
        if !delta.is_empty() {
            self.device.apply(&delta)?;
            self.applied = effective;
        }
        let is = self.routed.take().unwrap_or_default();
        routes::apply(&mut self.netlink, &is, &routed)?;
        routes::unguard(&mut self.netlink, guarded.difference(&wanted_guards))?;
        (self.guarded, self.routed) = (Some(wanted_guards), Some(routed));
        (self.unrouted, self.kept, self.lost) = (unrouted, kept, lost);
        if self.forwarded.is_empty() {
            self.plan = RoutePlan::new(self.link, &self.wanted, &self.narrow, &self.external);
        }
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
            kept: self.kept.clone(),
            lost: self.lost.clone(),
        })
    }

    /// Removes the interface, its routes, and the guards beneath them.
    pub fn close(mut self) -> Result<(), TunnelError> {
        let link = LinkRef::Index(self.link);
        drop(self.device);
        let guarded = routes::guarded(&mut self.netlink)?;
        routes::unguard(&mut self.netlink, guarded.iter())?;
        let left = cluster::read(&mut self.netlink)?;
        let changes = cluster::plan(&left, &ClusterRoutes::default(), true);
        cluster::make(&mut self.netlink, &changes)?;
        match self.netlink.apply(&[Change::Delete(link)]) {
            Err(error) if !error.not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Whether the other end may only send by this interface what is sent to it by this interface.
fn is_usual(peer: &Peer) -> bool {
    matches!(peer.routing, Routing::Main | Routing::Cluster)
}

fn want(peers: &mut Peers, changes: PeerChanges) {
    for (key, new) in changes {
        match new {
            Some(peer) => drop(peers.insert(key, peer)),
            None => drop(peers.remove(&key)),
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
