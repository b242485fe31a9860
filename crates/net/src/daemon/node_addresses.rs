//! The addresses at which other nodes reach this one, unless the configuration names them: those that
//! it sends from.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use stallproof::{Snapshot, Tasks};
use tracing::info;

/// How often the addresses are looked up again: they change with a lease, or with a person.
const LOOK: Duration = Duration::from_secs(30);

/// Publishes the addresses: those `given`, or those that the node sends from, kept up to date.
pub(super) fn follow(given: Vec<IpAddr>, tasks: &Tasks) -> Snapshot<Vec<IpAddr>> {
    if !given.is_empty() {
        return Snapshot::new(given);
    }
    let addresses = Snapshot::new(sent_from());
    let (published, stop) = (addresses.clone(), tasks.stopping());
    tasks.spawn("node-addresses", async move {
        while stop.bound(tokio::time::sleep(LOOK)).await.is_some() {
            let found = sent_from();
            // A default route that is away for a moment is no reason to be reached nowhere.
            if !found.is_empty() && published.publish(found.clone()) {
                info!(addresses = ?found, "this node's addresses have changed");
            }
        }
    });
    addresses
}

/// Returns, of each family, the source of a packet that would leave by the default route. Nothing is
/// sent: the kernel chooses the source when a socket is connected. The targets are addresses reserved for
/// documentation.
pub fn sent_from() -> Vec<IpAddr> {
    let to: [(IpAddr, IpAddr); 2] = [
        (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()),
    ];
    let source = |(any, target): (IpAddr, IpAddr)| {
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect((target, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    let usable = |address: &IpAddr| !address.is_loopback() && !address.is_unspecified();
    to.into_iter().filter_map(source).filter(usable).collect()
}
