use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kernel::netlink::Mac;
use proptest::prelude::*;
use testkit::requires;

use super::*;
use crate::tests::pods::{self, is_cut_off_from_pod, pod, reaches, reaches_pod};

/// What of ours is in the node's kernel.
fn traces(wiring: &Wiring) -> (Vec<Link>, Vec<Route>) {
    let (mut links, mut routes) = wiring
        .node()
        .netlink(|netlink| Ok((netlink.links()?, netlink.routes(MAIN_TABLE)?)))
        .unwrap();
    links.retain(|link| cni::interface::is_ours(&link.name));
    routes.retain(|route| route.protocol == ROUTE_PROTOCOL);
    (links, routes)
}

#[track_caller]
fn assert_no_trace(wiring: &Wiring) {
    assert_eq!(traces(wiring), (Vec::new(), Vec::new()));
}

/// Gives up, or breaks something, before the step of that number.
struct At<'a> {
    left: AtomicUsize,
    then: Box<dyn Fn() -> Result<(), Abandoned> + Sync + 'a>,
}

impl<'a> At<'a> {
    fn step(number: usize, then: impl Fn() -> Result<(), Abandoned> + Sync + 'a) -> Self {
        Self { left: AtomicUsize::new(number), then: Box::new(then) }
    }
}

impl Progress for At<'_> {
    fn step(&self, _: &'static str) -> Result<(), Abandoned> {
        match self.left.fetch_sub(1, Ordering::Relaxed) {
            0 => (self.then)(),
            _ => Ok(()),
        }
    }
}

#[test]
fn pods_reach_each_other_and_the_node_by_both_families() {
    requires!(netns);
    let wiring = pods::node();
    let host = wiring.node().namespace();
    let [(a, inside_a), (b, inside_b)] = [pod(1, 1), pod(1, 2)];
    let wired = wiring.set_up(&a, &inside_a, &()).unwrap();
    wiring.set_up(&b, &inside_b, &()).unwrap();

    assert!(reaches_pod(&inside_a, &b));
    assert!(reaches_pod(&inside_b, &a));
    assert!(reaches_pod(host, &a));
    assert!(reaches(&inside_a, [10, 0, 0, 1]));
    assert!(reaches(&inside_a, "fd00::1".parse::<Ipv6Addr>().unwrap()));

    let names = InterfaceNames::of(&a.key);
    assert_eq!(
        wired,
        PodInterfaces {
            host_interface: a.host_interface.clone(),
            host_mac: names.host_mac,
            pod_interface: "eth0".to_owned(),
            pod_mac: names.pod_mac,
            mtu: pods::MTU,
            gateway_v4: Some(GATEWAY_V4),
            gateway_v6: Some(GATEWAY_V6),
        }
    );
    let mut inside = inside_a.netlink().unwrap();
    let eth0 = inside.link(LinkRef::Name("eth0")).unwrap().unwrap();
    assert_eq!((eth0.mtu, eth0.mac), (pods::MTU, Some(names.pod_mac)));
    let own: Vec<_> = inside.addresses(eth0.index).unwrap().iter().map(|own| own.address).collect();
    assert_eq!(own, ["10.1.0.1/32".parse().unwrap(), "fd00:1::1/128".parse().unwrap()]);
    let (links, _) = traces(&wiring);
    let alias = links.iter().find(|link| link.name == a.host_interface).unwrap().alias.as_deref();
    assert_eq!(alias, Some("container-1-1"));
    let none = wiring.node().netlink(|netlink| netlink.addresses(links[0].index)).unwrap();
    assert_eq!(none, [], "the node's end has no address");

    wiring.tear_down(&a, &()).unwrap();
    assert!(is_cut_off_from_pod(&inside_b, &a));
    assert!(reaches_pod(host, &b));
    wiring.tear_down(&b, &()).unwrap();
    assert_no_trace(&wiring);
}

/// UDP sends once: a name that is asked for as a pod starts would be waited for, for seconds.
#[test]
fn the_first_packet_is_not_lost() {
    requires!(netns);
    let wiring = pods::node();
    let bound = |within: &Namespace, address: &'static str| {
        let socket = within.run_in(|| UdpSocket::bind(address)).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket
    };
    let node = bound(wiring.node().namespace(), "10.0.0.1:0");
    let name_server = node.local_addr().unwrap();
    for number in 1..=100 {
        let (attachment, inside) = pod(1, number);
        let socket = bound(&inside, "0.0.0.0:0");
        wiring.set_up(&attachment, &inside, &()).unwrap();
        socket.send_to(&[number], name_server).unwrap();
        let mut asked = [0];
        let (_, from) = node.recv_from(&mut asked).expect("the pod's first packet was lost");
        assert_eq!(asked, [number]);
        node.send_to(&[0], from).unwrap();
        socket.recv(&mut asked).expect("the first packet to the pod was lost");
        wiring.tear_down(&attachment, &()).unwrap();
    }
}

#[test]
fn a_pod_may_have_one_family() {
    requires!(netns);
    let wiring = pods::node();
    let (mut a, inside_a) = pod(1, 1);
    let (mut b, inside_b) = pod(1, 2);
    (a.ipv6, b.ipv4) = (None, None);
    let a_wired = wiring.set_up(&a, &inside_a, &()).unwrap();
    let b_wired = wiring.set_up(&b, &inside_b, &()).unwrap();

    assert_eq!((a_wired.gateway_v4, a_wired.gateway_v6), (Some(GATEWAY_V4), None));
    assert_eq!((b_wired.gateway_v4, b_wired.gateway_v6), (None, Some(GATEWAY_V6)));
    assert!(reaches(wiring.node().namespace(), a.ipv4.unwrap()));
    assert!(reaches(wiring.node().namespace(), b.ipv6.unwrap()));
    assert_eq!(wiring.verify(&a, Some(&inside_a)), []);
    assert_eq!(wiring.verify(&b, Some(&inside_b)), []);
}

#[test]
fn ipv6_that_the_runtime_switched_off_is_switched_on_for_who_has_an_address() {
    requires!(netns);
    let wiring = pods::node();
    let (a, inside) = pod(1, 1);
    for which in ["all", "default"] {
        let off = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
        inside.run_in(|| std::fs::write(off, "1")).unwrap().unwrap();
    }
    wiring.set_up(&a, &inside, &()).unwrap();
    assert!(reaches_pod(wiring.node().namespace(), &a));
    assert_eq!(wiring.verify(&a, Some(&inside)), []);
}

#[test]
fn to_connect_twice_is_to_connect_once() {
    requires!(netns);
    let wiring = pods::node();
    let (a, inside) = pod(1, 1);
    let first = wiring.set_up(&a, &inside, &()).unwrap();
    let before = traces(&wiring);
    assert_eq!(wiring.set_up(&a, &inside, &()).unwrap(), first);
    assert_eq!(traces(&wiring), before, "the same interface, not a new one");

    // What is missing of it comes back.
    wiring.node().netlink(|netlink| netlink.apply(&[Change::DeleteRoute(before.1[0])])).unwrap();
    let mut within = inside.netlink().unwrap();
    let link = within.link(LinkRef::Name("eth0")).unwrap().unwrap().index;
    let own = Address { link, address: IpAddr::from(a.ipv4.unwrap()).into() };
    within.apply(&[Change::DeleteAddress(own)]).unwrap();
    wiring.set_up(&a, &inside, &()).unwrap();
    assert!(reaches_pod(wiring.node().namespace(), &a));
    assert_eq!(traces(&wiring), before);
}

#[test]
fn a_container_that_is_in_another_namespace_now_is_connected_there() {
    requires!(netns);
    let wiring = pods::node();
    let (a, old) = pod(1, 1);
    let new = Namespace::create().unwrap();
    wiring.set_up(&a, &old, &()).unwrap();
    wiring.set_up(&a, &new, &()).unwrap();
    assert_eq!(wiring.verify(&a, Some(&new)), []);
    assert!(reaches(&new, [10, 0, 0, 1]));
    assert!(old.netlink().unwrap().link(LinkRef::Name("eth0")).unwrap().is_none());
}

#[test]
fn an_interface_that_somebody_else_put_there_is_left_and_said() {
    requires!(netns);
    let wiring = pods::node();
    let (a, inside) = pod(1, 1);
    let other = Namespace::create().unwrap();
    let mac = Mac([2, 0, 0, 0, 0, 9]);
    let peer = VethPeer { name: "far", mac, namespace: other.as_fd() };
    let taken = Veth { name: "eth0", mac, mtu: 1500, group: None, peer };
    let theirs = inside.netlink().unwrap().create_veth(taken).unwrap();

    let error = wiring.set_up(&a, &inside, &()).unwrap_err();

    assert_eq!(error.step, step::CREATE);
    assert!(matches!(&error.cause, Cause::Taken(name) if name == "eth0"), "{error}");
    assert_no_trace(&wiring);
    let still = inside.netlink().unwrap().link(LinkRef::Name("eth0")).unwrap();
    assert_eq!(still, Some(theirs));
}

#[test]
fn who_gives_up_before_any_step_finds_nothing_left() {
    requires!(netns);
    let wiring = pods::node();
    let (a, inside) = pod(1, 1);
    let steps =
        [step::CREATE, step::ENTER, step::ADDRESS, step::CONFIGURE, step::RECORD, step::ROUTE];
    for (number, step) in steps.into_iter().enumerate() {
        let error = wiring.set_up(&a, &inside, &At::step(number, || Err(Abandoned))).unwrap_err();
        assert_eq!(error.step, step);
        assert!(matches!(error.cause, Cause::Abandoned(_)), "{error}");
        assert!(error.left.is_none(), "{error}");
        assert_no_trace(&wiring);
        assert_eq!(inside.netlink().unwrap().links().unwrap().len(), 1);
    }
    let past = At::step(steps.len(), || unreachable!("there are no more steps"));
    wiring.set_up(&a, &inside, &past).unwrap();
}

#[test]
fn when_the_kernel_fails_at_any_step_nothing_is_left() {
    requires!(netns);
    let wiring = pods::node();
    let (a, inside) = pod(1, 1);
    // The interface vanishes before the step of that number: what the step does then fails.
    for number in 1..4 {
        let vanish = || {
            wiring.tear_down(&a, &()).unwrap();
            Ok(())
        };
        let outcome = wiring.set_up(&a, &inside, &At::step(number, vanish));
        let error = outcome.unwrap_err();
        assert!(matches!(error.cause, Cause::Kernel(_) | Cause::Node(_)), "{error}");
        assert!(error.left.is_none(), "{error}");
        assert_no_trace(&wiring);
    }
    // Now it succeeds.
    wiring.set_up(&a, &inside, &()).unwrap();
    assert_eq!(wiring.verify(&a, Some(&inside)), []);
}

#[test]
fn to_disconnect_twice_is_to_disconnect_once_and_without_a_namespace_too() {
    requires!(netns);
    let wiring = pods::node();
    let (a, inside) = pod(1, 1);
    wiring.tear_down(&a, &()).unwrap();
    wiring.set_up(&a, &inside, &()).unwrap();
    for _ in 0..2 {
        wiring.tear_down(&a, &()).unwrap();
        assert_no_trace(&wiring);
    }
    let error = wiring.tear_down(&a, &At::step(0, || Err(Abandoned))).unwrap_err();
    assert_eq!(error.step, step::DELETE);
}

#[test]
fn what_is_not_as_it_should_be_is_named() {
    requires!(netns);
    let wiring = pods::node();
    let (a, inside) = pod(1, 1);
    let faults = || wiring.verify(&a, Some(&inside));
    assert_eq!(faults(), [Fault::NoLink(a.host_interface.clone())]);

    wiring.set_up(&a, &inside, &()).unwrap();
    assert_eq!(faults(), []);
    let ip = |host: bool, args: &str| {
        let run = || Command::new("ip").args(args.split(' ')).status().unwrap().success();
        let at = if host { wiring.node().namespace() } else { &inside };
        assert!(at.run_in(run).unwrap(), "ip {args}");
    };
    ip(true, "route del 10.1.0.1");
    ip(true, &format!("neigh del fd00:1::1 dev {}", a.host_interface));
    ip(false, "address del 10.1.0.1/32 dev eth0");
    ip(false, "-6 route del default");
    let (v4, v6) = (IpAddr::from(a.ipv4.unwrap()), IpAddr::from(a.ipv6.unwrap()));
    let expected = [
        Fault::NoRoute("the node", v4.into()),
        Fault::NoNeighbour("the node", v6),
        Fault::NoAddress { link: "eth0".to_owned(), address: v4 },
        Fault::NoNeighbour("the pod", GATEWAY_V4.into()),
        Fault::NoRoute("the pod", "0.0.0.0/0".parse().unwrap()),
        Fault::NoRoute("the pod", "::/0".parse().unwrap()),
    ];
    // With the pod's only IPv4 address the kernel has dropped its IPv4 routes and neighbours.
    assert_eq!(faults(), expected);
    wiring.set_up(&a, &inside, &()).unwrap();
    assert_eq!(faults(), []);

    ip(true, &format!("link set {} down", a.host_interface));
    assert_eq!(faults()[0], Fault::Down(a.host_interface.clone()));
    let other = Namespace::create().unwrap();
    let faults = wiring.verify(&a, Some(&other));
    assert_eq!(faults.last(), Some(&Fault::NoLink("eth0".to_owned())));
}

#[test]
fn an_error_says_the_step_what_failed_and_why() {
    let source = io::Error::from_raw_os_error(16);
    let cause = Cause::Enter(source);
    let left = NodeError::Open(io::Error::other("it is stuck"));
    let error = WiringError { step: step::ENTER, cause, left: Some(Box::new(left)) };
    assert_eq!(
        stallproof::sentence(&error),
        "open-netns failed and was not undone (cannot open a netlink socket: it is stuck): the pod's \
         network namespace cannot be entered: Device or resource busy (os error 16)"
    );
}

proptest! {
    #[test]
    fn names_fit_the_kernel_and_differ_by_key(container in ".{0,80}", ifname in "[a-z0-9]{1,15}", other in ".{0,80}") {
        let key = AttachmentKey { container: container.clone(), ifname: ifname.clone() };
        let names = InterfaceNames::of(&key);
        prop_assert_eq!(names.host_interface.len(), 15);
        prop_assert!(names.host_interface.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()));
        for mac in [names.host_mac, names.pod_mac] {
            prop_assert_eq!(mac.0[0] & 3, 2);
        }
        prop_assert_ne!(names.host_mac, names.pod_mac);
        let second = InterfaceNames::of(&AttachmentKey { container: other.clone(), ifname });
        prop_assert_eq!(container == other, names == second);
    }
}

/// Notes what it is told, and whether the pod was routed then.
#[derive(Debug)]
struct Recorder {
    node: Node,
    refuses: bool,
    heard: parking_lot::Mutex<Vec<(&'static str, bool)>>,
}

impl Recorder {
    fn hear(&self, what: &'static str, attachment: &Attachment) {
        let routes = self.node.netlink(|netlink| netlink.routes(MAIN_TABLE)).unwrap();
        let is_to =
            |address: IpAddr| routes.iter().any(|route| route.destination == IpNet::from(address));
        let routed = attachment.addresses().any(is_to);
        self.heard.lock().push((what, routed));
    }
}

impl PodPolicies for Recorder {
    fn admit(&self, attachment: &Attachment) -> Result<(), String> {
        self.hear("admit", attachment);
        if self.refuses { Err("the kernel has no nftables".to_owned()) } else { Ok(()) }
    }

    fn settle(&self, attachment: &Attachment) {
        self.hear("settle", attachment);
    }

    fn release(&self, attachment: &Attachment) {
        self.hear("release", attachment);
    }
}

#[test]
fn policies_decide_about_a_pod_before_it_is_routed_and_until_it_no_longer_is() {
    requires!(netns);
    for refuses in [false, true] {
        let wiring = pods::node();
        let node = wiring.node().clone();
        let recorder = Arc::new(Recorder { node, refuses, heard: Default::default() });
        let wiring = wiring.with_policies([recorder.clone() as Arc<dyn PodPolicies>]);
        let (a, inside) = pod(1, 1);
        let made = wiring.set_up(&a, &inside, &());
        if refuses {
            let error = made.unwrap_err();
            assert_eq!(error.step, step::ROUTE);
            let why = stallproof::sentence(&error);
            assert!(why.contains("the kernel has no nftables"), "{why}");
            assert_eq!(*recorder.heard.lock(), [("admit", false), ("release", false)]);
        } else {
            made.unwrap();
            wiring.tear_down(&a, &()).unwrap();
            let heard = [("admit", false), ("settle", true), ("release", false)];
            assert_eq!(*recorder.heard.lock(), heard);
        }
        assert_no_trace(&wiring);
    }
}

#[test]
fn without_an_address_nothing_is_left_of_the_pair() {
    requires!(netns);
    let wiring = pods::node();
    let (attachment, inside) = pod(1, 1);
    let there = || {
        let (links, routes) = traces(&wiring);
        assert_eq!((links.len(), routes), (1, Vec::new()), "the pair is there before its address");
        None
    };
    let (key, host_interface) = (&attachment.key, attachment.host_interface.as_str());
    let (pool, mac) = ("default", None);
    let never = || panic!("it has no address that could be recorded");
    let coming = Coming { key, host_interface, pool, mac, chosen: &there, recorded: &never };
    let error = wiring.set_up_when(&coming, &inside, &()).unwrap_err();
    assert!(matches!(error.cause, Cause::NoAddress), "{error:?}");
    assert_no_trace(&wiring);
    assert_eq!(inside.netlink().unwrap().link(LinkRef::Name("eth0")).unwrap(), None);
}

/// An address that is not on disk may be another's after a crash: nobody reaches it, and it reaches nobody.
#[test]
fn an_address_that_is_not_recorded_carries_no_packet_and_goes_if_it_never_is() {
    requires!(netns);
    let wiring = pods::node();
    let (attachment, inside) = pod(1, 1);
    let shared = Arc::new(attachment.clone());
    let chosen = || Some(Arc::clone(&shared));
    let not_yet = || {
        let mut within = inside.netlink().unwrap();
        let eth0 = within.link(LinkRef::Name("eth0")).unwrap().unwrap();
        assert_eq!(within.addresses(eth0.index).unwrap().len(), 2, "the pod's end is done");
        let (links, routes) = traces(&wiring);
        assert_eq!((links.len(), routes), (1, Vec::new()), "the node has no route to it");
        assert!(!links[0].up, "the node's end carries nothing");
        assert!(is_cut_off_from_pod(wiring.node().namespace(), &attachment));
        assert!(pods::is_cut_off(&inside, [10, 0, 0, 1]));
        false
    };
    let (key, host_interface) = (&attachment.key, attachment.host_interface.as_str());
    let (pool, mac) = ("default", None);
    let coming = Coming { key, host_interface, pool, mac, chosen: &chosen, recorded: &not_yet };
    let error = wiring.set_up_when(&coming, &inside, &()).unwrap_err();
    assert_eq!(error.step, step::RECORD);
    assert!(matches!(error.cause, Cause::NoAddress), "{error:?}");
    assert_no_trace(&wiring);
    assert_eq!(inside.netlink().unwrap().link(LinkRef::Name("eth0")).unwrap(), None);
}

#[test]
fn several_are_torn_down_together_and_no_other() {
    requires!(netns);
    let wiring = pods::node();
    let all: Vec<_> = (1..=20).map(|number| pod(1, number)).collect();
    for (attachment, inside) in &all {
        wiring.set_up(attachment, inside, &()).unwrap();
    }
    // One is gone already: its namespace was.
    wiring.tear_down(&all[3].0, &()).unwrap();
    let gone: Vec<_> =
        all[..15].iter().map(|(attachment, _)| Arc::new(attachment.clone())).collect();
    assert!(wiring.tear_down_all(&gone).is_empty());
    let (links, _) = traces(&wiring);
    let mut left: Vec<_> = links.iter().map(|link| link.name.as_str()).collect();
    let mut kept: Vec<_> = all[15..].iter().map(|(it, _)| it.host_interface.as_str()).collect();
    left.sort_unstable();
    kept.sort_unstable();
    assert_eq!(left, kept);
    for (attachment, _) in &all[15..] {
        assert!(reaches_pod(wiring.node().namespace(), attachment));
    }
    assert!(wiring.tear_down_all(&gone).is_empty(), "again is nothing");
}
