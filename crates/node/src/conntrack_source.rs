//! Reads the kernel's connections for the sensor: which table they are in, which addresses are the
//! node's own, and each entry in the sensor's form.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use kernel::conntrack::{self, EndEvents, Entry, Table};
use kernel::netlink::{self, Netlink};
use kernel::netns::Namespace;
use tracing::warn;
use traffic::conversations::{Moment, Protocol};

use crate::LocalPods;
use crate::sensor::{Flow, FlowId};
use crate::source::Source;
use crate::watcher::CannotObserve;

/// Identifies the kernel's connection table: the boot id and the network namespace's inode.
pub(super) fn name() -> io::Result<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let namespace = Namespace::current().map_err(io::Error::other)?.id();
    Ok(format!("{} {}", boot.trim_end(), namespace.inode))
}

/// kube-proxy keeps the addresses of Services here; they are not the node's.
const SERVICES: &str = "kube-ipvs0";
/// More than a controller takes; a node has some ten.
const MOST_LOCAL: usize = 1024;

/// The addresses of all interfaces of the host, each once: among them those of bridges and of the
/// host's ends of pods' wires, from which kubelet's probes come. Loopback and what is valid on one
/// link only is left out.
pub(super) fn local() -> io::Result<Vec<IpAddr>> {
    let mut netlink = Netlink::open()?;
    let links = netlink.links().map_err(io::Error::other)?;
    let services = links.iter().find(|link| link.name == SERVICES).map(|link| link.index);
    let all = netlink.all_addresses().map_err(io::Error::other)?;
    let own = all.iter().filter(|address| Some(address.link) != services);
    let mut local: Vec<IpAddr> = own.map(|address| address.address.addr()).collect();
    local.retain(|address| match address {
        IpAddr::V4(address) => !address.is_loopback(),
        IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
    });
    local.sort();
    local.dedup();
    local.truncate(MOST_LOCAL);
    Ok(local)
}

/// The addresses of all links, and the networks of this node's pods.
pub(super) fn own(
    netlink: &mut Netlink,
    pods: &dyn LocalPods,
) -> Result<Vec<IpNet>, netlink::Error> {
    let mut own = Vec::new();
    for link in netlink.links()? {
        let addresses = netlink.addresses(link.index)?;
        own.extend(addresses.iter().map(|address| IpNet::from(address.address.addr())));
    }
    own.extend(pods.networks());
    Ok(own)
}

/// The kernel's connection table.
#[derive(Debug)]
pub(crate) struct ConntrackSource {
    table: Table,
    ends: EndEvents,
    /// Whether tracking was turned on for it.
    track: bool,
}

impl ConntrackSource {
    /// Has the kernel count what connections carry, and with `track` also track them where nothing else
    /// needs it to.
    pub(crate) fn open(track: bool) -> Result<Self, CannotObserve> {
        conntrack::enable_accounting()?;
        if track {
            conntrack::enable_tracking().map_err(CannotObserve::denied(
                "the kernel does not track them for us (guard.track)",
            ))?;
        }
        // Before the first listing: what ends in between is heard.
        let ends = EndEvents::open().map_err(CannotObserve::denied("no netfilter socket"))?;
        let table = Table::open().map_err(CannotObserve::denied("no netfilter socket"))?;
        Ok(Self { table, ends, track })
    }
}

impl Source for ConntrackSource {
    fn list(&mut self, each: &mut dyn FnMut(&Flow)) -> io::Result<bool> {
        self.table.list(|entry| each(&flow(&entry, false)))
    }

    fn ends(&mut self, wait: Duration, each: &mut dyn FnMut(&Flow)) -> io::Result<bool> {
        let read = self.ends.read(wait, |entry| each(&flow(&entry, true)))?;
        Ok(read.lost)
    }

    fn close(&mut self) {
        if self.track
            && let Err(error) = conntrack::disable_tracking()
        {
            warn!(%error, "the nftables table fairlead is left behind");
        }
    }
}

/// Converts a conntrack entry to the sensor's form.
fn flow(entry: &Entry, ended: bool) -> Flow {
    let Entry { id, zone, original, reply, carried, begun, .. } = entry;
    let carried = carried.unwrap_or_default();
    let id = FlowId {
        number: *id,
        zone: *zone,
        protocol: Protocol(original.protocol),
        client: address(original.source),
        client_port: original.source_port,
        server: address(reply.source),
        port: reply.source_port,
        begun: begun.map(|nanoseconds| Moment(nanoseconds / 1_000_000)),
    };
    Flow { id, bytes: carried.bytes, packets: carried.packets, ended }
}

fn address(address: IpAddr) -> IpAddr {
    address.to_canonical()
}
