//! For tests: a node and its pods, all of them namespaces.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use ipnet::IpNet;
use kernel::netlink::{Address, Change, LinkRef, Mac, SetLink, Veth, VethPeer};
use kernel::netns::Namespace;

use crate::node::Node;
use crate::wiring::{Wiring, host_interface};
use crate::{Attachment, AttachmentKey};

pub(crate) const MTU: u32 = 1450;

/// A node with addresses of its own, `10.0.0.1` and `fd00::1`, on a link called `uplink`.
pub(crate) fn node() -> Wiring {
    let namespace = Namespace::create().unwrap();
    let [uplink, _] = cable(&namespace, (&namespace, "far"));
    own(&namespace, uplink, 1);
    Wiring::new(ready(namespace), MTU)
}

/// Two nodes with a cable between them: `10.0.0.1`, `fd00::1` and `10.0.0.2`, `fd00::2`.
pub(crate) fn two_nodes() -> [Wiring; 2] {
    let [a, b] = [(); 2].map(|()| Namespace::create().unwrap());
    let [to_b, to_a] = cable(&a, (&b, "uplink"));
    own(&a, to_b, 1);
    own(&b, to_a, 2);
    [a, b].map(|namespace| Wiring::new(ready(namespace), MTU))
}

fn ready(namespace: Namespace) -> Node {
    let node = Node::new(namespace);
    node.forward().unwrap();
    node
}

fn cable(a: &Namespace, (b, name): (&Namespace, &str)) -> [u32; 2] {
    let mac = |number| Mac([2, 0, 0, 0, 0, number]);
    let peer = VethPeer { name, mac: mac(2), namespace: b.as_fd() };
    let veth = Veth { name: "uplink", mac: mac(1), mtu: 1500, group: None, peer };
    let made = a.netlink().unwrap().create_veth(veth).unwrap();
    let (here, there) = (made.index, made.peer.unwrap());
    // An address that the kernel makes itself is of no use for a second or two, and a router without
    // one does not ask for its neighbours.
    let quiet = SetLink { no_own_addresses: true, ..SetLink::default() };
    for (namespace, link) in [(a, here), (b, there)] {
        let link = LinkRef::Index(link);
        let changes = [Change::Set(link, quiet.clone()), up(link)];
        namespace.netlink().unwrap().apply(&changes).unwrap();
    }
    [here, there]
}

fn own(namespace: &Namespace, link: u32, number: u8) {
    let own = ["10.0.0.", "fd00::", "fe80::"].map(|prefix| format!("{prefix}{number}"));
    let own = own.map(|address| Address { link, address: within_its_net(&address) });
    let mut changes = vec![up(LinkRef::Name("lo"))];
    changes.extend(own.map(Change::Address));
    namespace.netlink().unwrap().apply(&changes).unwrap();
}

fn within_its_net(address: &str) -> IpNet {
    let address: IpAddr = address.parse().unwrap();
    IpNet::new(address, if address.is_ipv4() { 24 } else { 64 }).unwrap()
}

fn up(link: LinkRef<'_>) -> Change<'_> {
    Change::Set(link, SetLink { up: true, ..SetLink::default() })
}

/// A pod's namespace, and the record of its attachment: the `number`th address of `10.NET.0.0/24`
/// and `fd00:NET::/120`.
pub(crate) fn pod(net: u8, number: u8) -> (Attachment, Namespace) {
    let namespace = Namespace::create().unwrap();
    let id = namespace.id();
    let key =
        AttachmentKey { container: format!("container-{net}-{number}"), ifname: "eth0".to_owned() };
    let attachment = Attachment {
        mac: None,
        network: "pods".to_owned(),
        pod: None,
        pool: "default".to_owned(),
        ipv4: Some(Ipv4Addr::new(10, net, 0, number)),
        ipv6: Some(Ipv6Addr::new(0xfd00, u16::from(net), 0, 0, 0, 0, 0, u16::from(number))),
        namespace: id,
        netns: format!("/proc/{}/fd/{}", std::process::id(), namespace.as_fd().as_raw_fd()),
        host_interface: host_interface(&key),
        since: jiff::Timestamp::UNIX_EPOCH,
        key,
    };
    (attachment, namespace)
}

/// Whether a packet from there comes to `address` and its answer back: nobody listens, so the answer
/// is a refusal.
pub(crate) fn reaches(from: &Namespace, address: impl Into<IpAddr>) -> bool {
    within(Duration::from_secs(10), from, address.into())
}

/// An answer that takes longer than this is none: a busy machine makes no cable.
pub(crate) fn is_cut_off(from: &Namespace, address: impl Into<IpAddr>) -> bool {
    !within(Duration::from_millis(300), from, address.into())
}

fn within(wait: Duration, from: &Namespace, address: IpAddr) -> bool {
    let address = SocketAddr::new(address, 9);
    let dial = from.run_in(|| TcpStream::connect_timeout(&address, wait));
    dial.unwrap().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Both of a pod's addresses.
pub(crate) fn reaches_pod(from: &Namespace, pod: &Attachment) -> bool {
    reaches(from, pod.ipv4.unwrap()) && reaches(from, pod.ipv6.unwrap())
}

/// Neither of them.
pub(crate) fn is_cut_off_from_pod(from: &Namespace, pod: &Attachment) -> bool {
    is_cut_off(from, pod.ipv4.unwrap()) && is_cut_off(from, pod.ipv6.unwrap())
}
