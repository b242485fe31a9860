use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;

use testkit::{Host, Sandbox, requires};

use super::*;
use crate::netns::Namespace;

const MAIN: u32 = 254;
const OURS: u8 = 119;
const HERE: Mac = Mac([2, 0, 0, 0, 0, 1]);
const THERE: Mac = Mac([2, 0, 0, 0, 0, 2]);

struct Ground {
    _sandbox: Sandbox,
    a: Namespace,
    b: Namespace,
    here: Netlink,
    there: Netlink,
}

fn ground() -> Ground {
    let sandbox = Sandbox::new();
    let open = |host: Host| Namespace::open(host.netns()).unwrap();
    let (a, b) = (open(sandbox.host("a")), open(sandbox.host("b")));
    let (here, there) = (a.netlink().unwrap(), b.netlink().unwrap());
    Ground { _sandbox: sandbox, a, b, here, there }
}

fn veth<'a>(ground: &'a Namespace, name: &'a str) -> Veth<'a> {
    let peer = VethPeer { name: "eth0", mac: THERE, namespace: ground.as_fd() };
    Veth { name, mac: HERE, mtu: 1400, group: None, peer }
}

fn up(link: u32) -> [Change<'static>; 2] {
    let quiet = SetLink { no_own_addresses: true, ..SetLink::default() };
    let up = SetLink { up: true, ..SetLink::default() };
    [quiet, up].map(|wanted| Change::Set(LinkRef::Index(link), wanted))
}

fn route(destination: &str, kind: RouteKind) -> Route {
    Route { destination: destination.parse().unwrap(), table: MAIN, protocol: OURS, kind }
}

/// A refusal proves that the packet went there and the answer came back.
fn reaches(from: &Namespace, address: &str) -> bool {
    let address = SocketAddr::new(address.parse().unwrap(), 9);
    let dial = from.run_in(|| TcpStream::connect_timeout(&address, Duration::from_secs(5)));
    dial.unwrap().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[test]
fn a_pair_is_made_with_its_other_end_in_place() {
    requires!(netns);
    let mut ground = ground();
    let made = ground.here.create_veth(veth(&ground.b, "left")).unwrap();
    let other = ground.there.link(LinkRef::Name("eth0")).unwrap().unwrap();

    let left = Link {
        index: made.index,
        name: "left".to_owned(),
        mac: Some(HERE),
        mtu: 1400,
        up: false,
        alias: None,
        kind: Some("veth".to_owned()),
        peer: Some(other.index),
        bridge: None,
        group: 0,
    };
    assert_eq!(made, left);
    let peer = Some(made.index);
    let right =
        Link { index: other.index, name: "eth0".to_owned(), mac: Some(THERE), peer, ..left };
    assert_eq!(other, right);
    assert!(ground.here.links().unwrap().contains(&made));

    let alias = SetLink { alias: Some("c1"), mtu: Some(1300), ..SetLink::default() };
    ground.here.apply(&[Change::Set(LinkRef::Name("left"), alias)]).unwrap();
    let changed = ground.here.link(LinkRef::Index(made.index)).unwrap().unwrap();
    assert_eq!((changed.alias.as_deref(), changed.mtu), (Some("c1"), 1300));

    ground.here.apply(&[Change::Delete(LinkRef::Index(made.index))]).unwrap();
    assert_eq!(ground.here.link(LinkRef::Name("left")).unwrap(), None);
    assert_eq!(ground.there.link(LinkRef::Name("eth0")).unwrap(), None);
}

#[test]
fn packets_go_over_what_was_set_and_it_reads_back_as_it_was_written() {
    requires!(netns);
    let mut ground = ground();
    let left = ground.here.create_veth(veth(&ground.b, "left")).unwrap();
    let (left, right) = (left.index, left.peer.unwrap());
    let own = |link, address: &str| Address { link, address: address.parse().unwrap() };
    let gateway: IpAddr = "169.254.1.1".parse().unwrap();
    let here = [own(left, "10.0.0.1/24"), own(left, "fd00::1/64")];
    let there = [own(right, "10.1.0.2/32"), own(right, "fd01::2/128")];
    let neighbour =
        |link, address: &str, mac| Neighbour { link, address: address.parse().unwrap(), mac };
    let ours = [neighbour(left, "10.1.0.2", THERE), neighbour(left, "fd01::2", THERE)];
    let theirs = [neighbour(right, "169.254.1.1", HERE), neighbour(right, "fe80::1", HERE)];
    let to = [
        route("10.1.0.2/32", RouteKind::Link(left)),
        route("fd01::2/128", RouteKind::Link(left)),
        route("10.9.0.0/16", RouteKind::Blackhole),
        route("fd09::/64", RouteKind::Blackhole),
        Route { table: 1190, ..route("10.8.0.0/16", RouteKind::Via("10.0.0.7".parse().unwrap())) },
    ];
    let back = [
        route("0.0.0.0/0", RouteKind::On(right, gateway)),
        route("::/0", RouteKind::On(right, "fe80::1".parse().unwrap())),
    ];
    let all = |link, addresses: &[Address], neighbours: &[Neighbour], routes: &[Route]| {
        let mut changes = up(link).to_vec();
        changes.extend(addresses.iter().copied().map(Change::Address));
        changes.extend(neighbours.iter().copied().map(Change::Neighbour));
        changes.extend(routes.iter().copied().map(Change::Route));
        changes
    };
    // Twice: what is there is left as it is.
    for _ in 0..2 {
        ground.there.apply(&all(right, &there, &theirs, &back)).unwrap();
        ground.here.apply(&all(left, &here, &ours, &to)).unwrap();
    }

    assert!(reaches(&ground.a, "10.1.0.2"));
    assert!(reaches(&ground.a, "fd01::2"));
    assert!(reaches(&ground.b, "10.0.0.1"));
    assert!(reaches(&ground.b, "fd00::1"));

    assert_eq!(ground.there.addresses(right).unwrap(), there);
    assert_eq!(ground.here.addresses(left).unwrap(), here);
    let mut all = ground.here.all_addresses().unwrap();
    all.retain(|address| address.link == left);
    assert_eq!(all, here);
    let mut found = ground.there.neighbours(Some(right)).unwrap();
    found.sort_by_key(|neighbour| neighbour.address);
    assert_eq!(found, theirs);
    let routes = ground.here.routes(MAIN).unwrap();
    assert!(to[..4].iter().all(|route| routes.contains(route)), "{routes:?}");
    assert_eq!(ground.here.routes(1190).unwrap(), to[4..]);
    let routes = ground.there.routes(MAIN).unwrap();
    assert!(back.iter().all(|route| routes.contains(route)), "{routes:?}");

    assert_eq!(ground.there.default_link().unwrap(), Some(right));
    assert_eq!(ground.here.default_link().unwrap(), None);

    let gone = to.map(Change::DeleteRoute);
    ground.here.apply(&gone).unwrap();
    let routes = ground.here.routes(MAIN).unwrap();
    assert!(!routes.iter().any(|route| route.protocol == OURS), "{routes:?}");
    ground.there.apply(&there.map(Change::DeleteAddress)).unwrap();
    assert_eq!(ground.there.addresses(right).unwrap(), []);
}

#[test]
fn the_first_failure_is_told_with_the_kernels_words_and_the_rest_is_done() {
    requires!(netns);
    let mut ground = ground();
    let left = ground.here.create_veth(veth(&ground.b, "left")).unwrap().index;
    let lost = Change::Route(route("10.8.0.0/16", RouteKind::Via("10.0.0.7".parse().unwrap())));
    let kept = route("10.9.0.0/16", RouteKind::Blackhole);
    let absent = Change::Delete(LinkRef::Name("nobody"));

    let error = ground.here.apply(&[up(left)[1].clone(), lost, absent, Change::Route(kept)]);

    let error = error.unwrap_err();
    assert_eq!((error.at, error.errno()), (1, Some(libc::ENETUNREACH)), "{error:?}");
    let said = "cannot route 10.8.0.0/16 via 10.0.0.7 in table 254 (Nexthop has invalid gateway)";
    assert_eq!(error.to_string(), said);
    assert!(ground.here.routes(MAIN).unwrap().contains(&kept));

    let error = ground.here.create_veth(veth(&ground.b, "left")).unwrap_err();
    assert!(error.already_exists(), "{error:?}");
    let error = ground.here.create_veth(veth(&ground.b, "other")).unwrap_err();
    assert!(error.already_exists(), "the name at the other end is taken: {error:?}");
    assert_eq!(ground.here.link(LinkRef::Name("other")).unwrap(), None);
    let error = ground.here.apply(&[Change::Delete(LinkRef::Name("other"))]).unwrap_err();
    assert!(error.not_found(), "{error:?}");
    assert!(ground.here.apply(&[]).is_ok());
}

#[test]
fn a_long_listing_is_whole_while_others_change_it() {
    requires!(netns);
    let ground = ground();
    let mut here = ground.here;
    let range: Vec<_> = (0..2000u16)
        .map(|n| route(&format!("10.{}.{}.0/24", n >> 8, n & 255), RouteKind::Blackhole))
        .collect();
    here.apply(&range.iter().copied().map(Change::Route).collect::<Vec<_>>()).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = ground.a.netlink().unwrap();
            let extra = route("10.200.0.0/24", RouteKind::Blackhole);
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                other.apply(&[Change::Route(extra), Change::DeleteRoute(extra)]).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        for _ in 0..20 {
            let found = here.routes(MAIN).unwrap();
            assert!(range.iter().all(|route| found.contains(route)));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn tunnels_rules_and_neighbours_are_read_back_as_they_were_made() {
    requires!(netns);
    let mut netlink = ground().here;
    let peers = VxlanPeers::ByRoute;
    let vxlan = Vxlan { name: "tunnel", mac: HERE, mtu: 1400, port: 4789, peers };
    netlink.apply(&[Change::Vxlan(vxlan)]).unwrap();
    let again = netlink.apply(&[Change::Vxlan(vxlan)]).unwrap_err();
    assert!(again.already_exists(), "{again}");
    let device = netlink.link(LinkRef::Name("tunnel")).unwrap().unwrap();
    assert_eq!(device.kind.as_deref(), Some("vxlan"));
    assert_eq!((device.mtu, device.mac), (1400, Some(HERE)));
    netlink.apply(&up(device.index)).unwrap();
    let gateway: Ipv6Addr = "fe80::7".parse().unwrap();
    let to = |remote: &str, gateway| {
        let (link, remote) = (device.index, remote.parse().unwrap());
        RouteKind::Tunnel(Tunnel { link, remote, network: 7_000_000, gateway })
    };
    let mut wanted = [
        route("10.2.0.0/27", to("192.0.2.7", Some(gateway))),
        route("10.3.0.0/27", to("2001:db8::7", Some(gateway))),
        route("fd00:2::/123", to("192.0.2.7", Some(gateway))),
        route("fe80::7/128", to("2001:db8::7", None)),
        route("10.4.0.0/16", RouteKind::Throw),
    ];
    let neighbour = Neighbour { link: device.index, address: gateway.into(), mac: THERE };
    let marked = Some(MarkBits { value: 0x10, mask: 0x3ff0 });
    let rules =
        [("10.0.0.0/8", None), ("0.0.0.0/0", marked), ("fd00::/16", None), ("::/0", marked)];
    let rules = rules.map(|(from, mark)| Rule {
        from: from.parse().unwrap(),
        mark,
        table: 1_000,
        priority: 100,
        protocol: OURS,
    });
    netlink.apply(&[Change::Neighbour(neighbour)]).unwrap();
    netlink.apply(&wanted.map(Change::Route)).unwrap();
    netlink.apply(&rules.map(Change::Rule)).unwrap();
    let twice = netlink.apply(&[Change::Rule(rules[0])]).unwrap_err();
    assert!(twice.already_exists(), "{twice}");

    let mut found = netlink.routes(MAIN).unwrap();
    found.retain(|route| route.protocol == OURS);
    found.sort_by_key(|route| route.destination);
    wanted.sort_by_key(|route| route.destination);
    assert_eq!(found, wanted);
    assert_eq!(netlink.neighbours(Some(device.index)).unwrap(), [neighbour]);
    let ours = |netlink: &mut Netlink| {
        let mut rules = netlink.rules().unwrap();
        rules.retain(|rule| rule.protocol == OURS);
        rules
    };
    assert_eq!(ours(&mut netlink), rules);

    netlink.apply(&rules.map(Change::DeleteRule)).unwrap();
    netlink.apply(&wanted.map(Change::DeleteRoute)).unwrap();
    netlink.apply(&[Change::DeleteNeighbour(neighbour)]).unwrap();
    assert_eq!(ours(&mut netlink), []);
    assert_eq!(netlink.neighbours(Some(device.index)).unwrap(), []);
    let gone = netlink.apply(&[Change::DeleteRule(rules[0])]).unwrap_err();
    assert!(gone.not_found(), "{gone}");
}

#[test]
fn a_group_of_links_is_deleted_and_no_other() {
    requires!(netns);
    let mut ground = ground();
    let made = ["one", "two", "three"].map(|name| {
        let inside = Namespace::create().unwrap();
        let peer = VethPeer { name: "eth0", mac: THERE, namespace: inside.as_fd() };
        let group = (name == "two").then_some(77);
        let veth = Veth { name, mac: HERE, mtu: 1400, group, peer };
        (ground.here.create_veth(veth).unwrap(), inside)
    });
    let group = SetLink { group: Some(77), ..SetLink::default() };
    assert_eq!(made.each_ref().map(|(link, _)| link.group), [0, 77, 0]);
    // One is of the group from the beginning, and one comes to it.
    ground.here.apply(&[Change::Set(LinkRef::Index(made[0].0.index), group)]).unwrap();
    ground.here.apply(&[Change::DeleteGroup(77)]).unwrap();
    let left = ["one", "two", "three"]
        .map(|name| ground.here.link(LinkRef::Name(name)).unwrap().is_some());
    assert_eq!(left, [false, false, true]);
    let none = ground.here.apply(&[Change::DeleteGroup(77)]).unwrap_err();
    assert!(none.not_found(), "{none}");
}

#[test]
fn an_error_whose_number_has_no_opposite_is_an_error() {
    let mut datagram = vec![20, 0, 0, 0, 2, 0];
    datagram.resize(16, 0);
    datagram.extend(i32::MIN.to_ne_bytes());
    let raw = messages(&datagram).next().unwrap();
    assert_eq!(raw.message_type(), NLMSG_ERROR);
    assert!(answer(&raw).0.is_some());
}
