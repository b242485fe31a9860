//! Links, addresses, neighbours and routes as plain values.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::BorrowedFd;

use ipnet::IpNet;

/// A hardware address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

/// Names a link by its name, or by its number in its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkRef<'a> {
    Name(&'a str),
    Index(u32),
}

/// A veth pair to make: one end in the socket's namespace, the peer in the pod's from the beginning. To
/// move a link later takes fifty times as long, and everybody else's changes wait for it.
#[derive(Clone, Debug)]
pub struct Veth<'a> {
    pub name: &'a str,
    pub mac: Mac,
    pub mtu: u32,
    /// The group of the end in the socket's namespace, from the beginning.
    pub group: Option<u32>,
    pub peer: VethPeer<'a>,
}

/// The other end of a veth pair.
#[derive(Clone, Debug)]
pub struct VethPeer<'a> {
    pub name: &'a str,
    pub mac: Mac,
    pub namespace: BorrowedFd<'a>,
}

/// A vxlan device to make. It floods nothing.
#[derive(Clone, Copy, Debug)]
pub struct Vxlan<'a> {
    pub name: &'a str,
    pub mac: Mac,
    pub mtu: u32,
    /// The UDP port that packets come to and go to.
    pub port: u16,
    pub peers: VxlanPeers,
}

/// How a vxlan device knows to which machine a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VxlanPeers {
    /// Its routes say so, and with which network's number. It learns nothing.
    ByRoute,
    /// It takes packets of one network, and sends to a hardware address where packets from that address
    /// came from last. Its tunnels are all over IPv4 or all over IPv6.
    Learned { network: u32, over_ipv4: bool },
}

/// The settings of a link to change.
#[derive(Clone, Debug, Default)]
pub struct SetLink<'a> {
    pub up: bool,
    pub alias: Option<&'a str>,
    pub mtu: Option<u32>,
    /// The number of a group of links, which can be deleted together.
    pub group: Option<u32>,
    /// The kernel gives the link no IPv6 address of its own making.
    pub no_own_addresses: bool,
}

/// One change. The thing to make may exist already, in part or with other details, except for
/// [`Change::Veth`], [`Change::Vxlan`] and [`Change::Wireguard`].
#[derive(Clone, Debug)]
pub enum Change<'a> {
    Veth(Veth<'a>),
    Vxlan(Vxlan<'a>),
    /// The kernel's own WireGuard; refused as unsupported where it has none.
    Wireguard {
        name: &'a str,
        mtu: u32,
    },
    /// Brings the link up first, then changes the other settings.
    Set(LinkRef<'a>, SetLink<'a>),
    Delete(LinkRef<'a>),
    /// Deletes all links of a group: the kernel waits once for all that are under way in them, not once
    /// for each link.
    DeleteGroup(u32),
    /// The address is usable at once: it skips duplicate address detection, which takes a second or more.
    Address(Address),
    DeleteAddress(Address),
    /// The entry is permanent.
    Neighbour(Neighbour),
    DeleteNeighbour(Neighbour),
    Route(Route),
    DeleteRoute(Route),
    /// Of a rule that is there a second one is refused.
    Rule(Rule),
    DeleteRule(Rule),
    /// Of a rule that is there a second one is refused.
    InputRule(InputRule<'a>),
}

/// Packets that come in by a link are routed by another table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputRule<'a> {
    pub link: &'a str,
    pub is_ipv4: bool,
    pub table: u32,
    pub priority: u32,
    pub protocol: u8,
}

/// Bits of a packet's mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MarkBits {
    pub value: u32,
    pub mask: u32,
}

/// Packets from some addresses, or with a mark, are routed by another table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rule {
    pub from: IpNet,
    /// Only packets whose mark has these bits.
    pub mark: Option<MarkBits>,
    pub table: u32,
    /// Lower ones come first.
    pub priority: u32,
    /// The number by which a program marks its own rules.
    pub protocol: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    pub mac: Option<Mac>,
    pub mtu: u32,
    pub up: bool,
    pub alias: Option<String>,
    /// `veth`, `bridge`; none for hardware.
    pub kind: Option<String>,
    /// The number of a veth's other end, in the namespace of that end.
    pub peer: Option<u32>,
    /// The number of the bridge, or of another link, that it is a port of.
    pub bridge: Option<u32>,
    /// The number of its group; 0 for most.
    pub group: u32,
}

impl Link {
    /// Names the CNI plugin that makes such a link on every node and forwards pods' packets by eBPF, past
    /// routing and netfilter.
    pub fn ebpf_datapath(&self) -> Option<&'static str> {
        match self.name.as_str() {
            "cilium_host" | "cilium_net" => Some("Cilium"),
            "bpfin.cali" | "bpfout.cali" => Some("Calico's eBPF datapath"),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub link: u32,
    /// The address with its host part.
    pub address: IpNet,
}

/// A permanent neighbour entry, which no protocol has to discover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Neighbour {
    pub link: u32,
    pub address: IpAddr,
    pub mac: Mac,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    pub destination: IpNet,
    pub table: u32,
    /// The routing protocol number, by which a program marks its own routes.
    pub protocol: u8,
    pub kind: RouteKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RouteKind {
    /// The destination is on the link itself.
    Link(u32),
    /// The same, for packets of at most so many bytes: larger ones are refused with the size that fits.
    Narrow { link: u32, mtu: u32 },
    /// On the link itself, or for smaller packets; what this machine sends there comes from that address of
    /// its own.
    Sourced { link: u32, mtu: Option<u32>, source: IpAddr },
    /// Through a gateway; the kernel finds the link by its own routes.
    Via(IpAddr),
    /// Through a gateway on this link, whether or not a route says that it is there.
    On(u32, IpAddr),
    /// Through a tunnel.
    Tunnel(Tunnel),
    /// Packets are dropped.
    Blackhole,
    /// Senders are told that there is no way, where no route of a lower metric leads to the destination.
    Unreachable { metric: u32 },
    /// The table has no route for them: the rules that follow decide.
    Throw,
}

/// Where a tunnel leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tunnel {
    /// The vxlan device.
    pub link: u32,
    /// The machine at the other end.
    pub remote: IpAddr,
    /// The number of the network, which is written on each packet.
    pub network: u32,
    /// The gateway behind the tunnel, a neighbour of the device; none if the destination is one itself.
    pub gateway: Option<Ipv6Addr>,
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for LinkRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Index(index) => write!(f, "number {index}"),
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { destination, table, kind, .. } = self;
        match kind {
            RouteKind::Link(link) => write!(f, "{destination} on link {link}")?,
            RouteKind::Narrow { link, mtu } => {
                write!(f, "{destination} on link {link} with {mtu} bytes")?;
            }
            RouteKind::Sourced { link, source, .. } => {
                write!(f, "{destination} on link {link} from {source}")?;
            }
            RouteKind::Via(gateway) => write!(f, "{destination} via {gateway}")?,
            RouteKind::On(link, gateway) => {
                write!(f, "{destination} via {gateway} on link {link}")?;
            }
            RouteKind::Tunnel(tunnel) => {
                write!(f, "{destination} by a tunnel to {}", tunnel.remote)?;
            }
            RouteKind::Blackhole => write!(f, "{destination} to nowhere")?,
            RouteKind::Unreachable { .. } => write!(f, "{destination} as unreachable")?,
            RouteKind::Throw => write!(f, "{destination} by the next rule")?,
        }
        write!(f, " in table {table}")
    }
}

/// Describes the change in words that follow "cannot".
impl fmt::Display for Change<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Veth(veth) => write!(f, "make veth {} with peer {}", veth.name, veth.peer.name),
            Self::Vxlan(vxlan) => write!(f, "make vxlan device {}", vxlan.name),
            Self::Wireguard { name, .. } => write!(f, "make WireGuard interface {name}"),
            Self::Set(link, SetLink { up: true, .. }) => write!(f, "bring up link {link}"),
            Self::Set(link, _) => write!(f, "configure link {link}"),
            Self::Delete(link) => write!(f, "delete link {link}"),
            Self::DeleteGroup(group) => write!(f, "delete the links of group {group}"),
            Self::Address(Address { link, address }) => {
                write!(f, "give {address} to link number {link}")
            }
            Self::DeleteAddress(Address { link, address }) => {
                write!(f, "take {address} from link number {link}")
            }
            Self::Neighbour(Neighbour { link, address, mac }) => {
                write!(f, "say that {address} is {mac} on link number {link}")
            }
            Self::DeleteNeighbour(Neighbour { link, address, .. }) => {
                write!(f, "forget neighbour {address} of link number {link}")
            }
            Self::Route(route) => write!(f, "route {route}"),
            Self::DeleteRoute(route) => write!(f, "remove route {route}"),
            Self::Rule(Rule { from, table, .. }) => write!(f, "route {from} by table {table}"),
            Self::DeleteRule(Rule { from, table, .. }) => {
                write!(f, "no longer route {from} by table {table}")
            }
            Self::InputRule(InputRule { link, table, .. }) => {
                write!(f, "route what comes by link {link} by table {table}")
            }
        }
    }
}
