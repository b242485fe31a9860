use kernel::netlink::{Change, LinkRef, Route, RouteKind, SetLink};
use testkit::requires;

use super::*;
use crate::tests::pods;
use crate::wiring::MAIN_TABLE;

#[test]
fn the_mtu_is_that_of_the_way_out() {
    requires!(netns);
    let node = pods::node().node().clone();
    assert_eq!(node.uplink_mtu().unwrap(), USUAL_MTU);

    let out = |destination: &str, via: &str| Route {
        destination: destination.parse().unwrap(),
        table: MAIN_TABLE,
        protocol: 4,
        kind: RouteKind::Via(via.parse().unwrap()),
    };
    let mtu = |mtu| {
        Change::Set(LinkRef::Name("uplink"), SetLink { mtu: Some(mtu), ..SetLink::default() })
    };
    let v6 = Change::Route(out("::/0", "fd00::9"));
    node.netlink(|netlink| netlink.apply(&[mtu(1400), v6.clone()])).unwrap();
    assert_eq!(node.uplink_mtu().unwrap(), 1400);

    let v4 = Change::Route(out("0.0.0.0/0", "10.0.0.9"));
    node.netlink(|netlink| netlink.apply(&[mtu(9000), v4])).unwrap();
    assert_eq!(node.uplink_mtu().unwrap(), 9000);
}

#[test]
fn forwarding_is_switched_on_and_router_advertisements_go_on_being_heard() {
    requires!(netns);
    let wiring = pods::node();
    let read = |path: &str| {
        let path = format!("/proc/sys/net/{path}");
        let text = wiring.node().namespace().run_in(|| fs::read_to_string(path)).unwrap();
        text.unwrap().trim().to_owned()
    };
    assert_eq!(read("ipv4/ip_forward"), "1");
    assert_eq!(read("ipv6/conf/all/forwarding"), "1");
    assert_eq!(read("ipv6/conf/uplink/accept_ra"), "2");
    wiring.node().forward().unwrap();
}

#[test]
fn calls_at_the_same_time_have_a_socket_each() {
    requires!(netns);
    let node = pods::node().node().clone();
    node.netlink(|_| {
        let inner = node.netlink(Netlink::links).unwrap();
        assert!(inner.iter().any(|link| link.name == "uplink"));
        Ok(())
    })
    .unwrap();
    assert_eq!(node.0.idle.lock().len(), 2);
}
