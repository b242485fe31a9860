use proptest::prelude::*;
use testkit::requires;

use super::*;
use crate::datapath::Datapath;
use crate::tests::pods::{self, is_cut_off, is_cut_off_from_pod, pod, reaches, reaches_pod};

fn block(node: &str, networks: &[&str], via: &[&str]) -> RoutedBlock {
    RoutedBlock {
        node: node.to_owned(),
        networks: networks.iter().map(|network| network.parse().unwrap()).collect(),
        via: via.iter().map(|address| address.parse().unwrap()).collect(),
        overlay: Overlay::Direct,
    }
}

pub(crate) fn inputs(node: &str, blocks: &[RoutedBlock], export_table: Option<u32>) -> RouteInputs {
    RouteInputs {
        node: node.to_owned(),
        blocks: blocks.to_vec(),
        export_table,
        overlaid: Vec::new(),
        device: DeviceSettings { port: overlay::PORT, mtu: 1450 },
        complete: true,
    }
}

fn routes_of(routes: &[Route]) -> RouteState {
    RouteState { routes: routes.to_vec(), ..RouteState::default() }
}

fn route(destination: &str, table: u32, kind: RouteKind) -> Route {
    Route { destination: destination.parse().unwrap(), table, protocol: ROUTE_PROTOCOL, kind }
}

#[test]
fn own_blocks_end_here_and_are_exported_and_others_go_to_their_nodes() {
    let blocks = [
        block("a", &["10.1.0.0/27", "fd00:1::/123"], &["10.0.0.1", "fd00::1"]),
        block("b", &["10.2.0.0/27", "fd00:2::/123"], &["10.0.0.2"]),
        block("a", &["10.3.0.7/32"], &[]),
    ];
    let via = RouteKind::Via([10, 0, 0, 2].into());
    assert_eq!(
        wanted(&inputs("a", &blocks, Some(119)), &Underlay::default()).routes,
        [
            route("10.1.0.0/27", 119, RouteKind::Blackhole),
            route("10.3.0.7/32", 119, RouteKind::Blackhole),
            route("fd00:1::/123", 119, RouteKind::Blackhole),
            route("10.1.0.0/27", 254, RouteKind::Blackhole),
            // No way there by IPv6, and a block of one address has no hole.
            route("10.2.0.0/27", 254, via),
            route("fd00:1::/123", 254, RouteKind::Blackhole),
        ]
    );
}

/// A kernel of maps: what a plan leaves.
fn after(found: &[Route], plan: &[Change<'_>]) -> Vec<Route> {
    let mut routes: BTreeMap<_, _> = found
        .iter()
        .map(|route| ((route.table, route.destination, route.protocol), *route))
        .collect();
    for change in plan {
        match change {
            Change::Route(route) => {
                routes.insert((route.table, route.destination, route.protocol), *route);
            }
            Change::DeleteRoute(route) => {
                let gone = routes.remove(&(route.table, route.destination, route.protocol));
                assert_eq!(gone, Some(*route), "only what is there is removed");
            }
            other => panic!("{other}"),
        }
    }
    routes.into_values().collect()
}

fn any_route() -> impl Strategy<Value = Route> {
    let kind = prop_oneof![
        (0u8..4).prop_map(|n| RouteKind::Via([10, 0, 0, n].into())),
        Just(RouteKind::Blackhole),
        (1u32..4).prop_map(RouteKind::Link),
    ];
    let table = prop_oneof![Just(MAIN_TABLE), Just(EXPORT_TABLE)];
    let protocol = prop_oneof![Just(ROUTE_PROTOCOL), Just(4)];
    (0u8..6, table, protocol, kind).prop_map(|(n, table, protocol, kind)| Route {
        destination: IpNet::new([10, n, 0, 0].into(), 24).unwrap(),
        table,
        protocol,
        kind,
    })
}

fn any_routes() -> impl Strategy<Value = Vec<Route>> {
    // One for each place and maker.
    proptest::collection::vec(any_route(), 0..20)
        .prop_map(|routes| after(&[], &routes.into_iter().map(Change::Route).collect::<Vec<_>>()))
}

fn any_blocks() -> impl Strategy<Value = Vec<RoutedBlock>> {
    let block =
        (0u8..3, 0u8..6, proptest::option::of(0u8..4)).prop_map(|(node, net, via)| RoutedBlock {
            node: node.to_string(),
            networks: vec![IpNet::new([10, net, 0, 0].into(), 24).unwrap()],
            via: via.map(|via| [10, 0, 0, via].into()).into_iter().collect(),
            overlay: Overlay::Direct,
        });
    proptest::collection::vec(block, 0..8)
}

proptest! {
    #[test]
    fn a_plan_makes_what_is_wanted_touches_nobody_elses_and_is_then_empty(
        blocks in any_blocks(), found in any_routes(), all: bool,
    ) {
        let inputs = inputs("0", &blocks, Some(EXPORT_TABLE));
        let wanted = wanted(&inputs, &Underlay::default());
        let steps = plan(&wanted, &routes_of(&found), all);
        let left = after(&found, &steps);
        for route in &wanted.routes {
            prop_assert!(left.contains(route));
        }
        let ours = |route: &&Route| route.protocol == ROUTE_PROTOCOL
            && !matches!(route.kind, RouteKind::Link(_));
        prop_assert_eq!(
            found.iter().filter(|route| route.protocol != ROUTE_PROTOCOL).collect::<Vec<_>>(),
            left.iter().filter(|route| route.protocol != ROUTE_PROTOCOL).collect::<Vec<_>>()
        );
        if all {
            prop_assert!(left.iter().filter(ours).all(|route| wanted.routes.contains(route)));
        } else {
            prop_assert!(!steps.iter().any(|step| matches!(step, Change::DeleteRoute(_))));
        }
        prop_assert!(plan(&wanted, &routes_of(&left), all).is_empty());
    }
}

#[test]
fn pods_of_two_nodes_reach_each_other_and_routes_that_vanish_come_back() {
    requires!(netns);
    let [a, b] = pods::two_nodes();
    let (on_a, inside_a) = pod(1, 1);
    let (on_b, inside_b) = pod(2, 1);
    a.set_up(&on_a, &inside_a, &()).unwrap();
    b.set_up(&on_b, &inside_b, &()).unwrap();
    let mut blocks = vec![
        block("a", &["10.1.0.0/27", "fd00:1::/123"], &["10.0.0.1", "fd00::1"]),
        block("b", &["10.2.0.0/27", "fd00:2::/123"], &["10.0.0.2", "fd00::2"]),
    ];
    let install = |wiring: &crate::wiring::Wiring, name: &str, blocks: &[RoutedBlock]| {
        apply(wiring.node(), &inputs(name, blocks, Some(EXPORT_TABLE))).unwrap()
    };
    assert!(is_cut_off_from_pod(&inside_a, &on_b));
    for (wiring, name) in [(&a, "a"), (&b, "b")] {
        assert_eq!(install(wiring, name, &blocks), RouteReport { changed: 6, failed: Vec::new() });
        assert_eq!(install(wiring, name, &blocks), RouteReport::default());
    }
    assert!(reaches_pod(&inside_a, &on_b));
    assert!(reaches_pod(&inside_b, &on_a));
    assert!(reaches_pod(a.node().namespace(), &on_b));
    assert!(is_cut_off(&inside_a, [10, 2, 0, 9]), "nobody has it");

    let export = a.node().netlink(|netlink| netlink.routes(EXPORT_TABLE)).unwrap();
    assert_eq!(
        export,
        [
            route("10.1.0.0/27", EXPORT_TABLE, RouteKind::Blackhole),
            route("fd00:1::/123", EXPORT_TABLE, RouteKind::Blackhole),
        ]
    );

    let main = a.node().netlink(|netlink| netlink.routes(MAIN_TABLE)).unwrap();
    let gone: Vec<_> = main
        .into_iter()
        .filter(|route| matches!(route.kind, RouteKind::Via(_)))
        .map(Change::DeleteRoute)
        .collect();
    assert_eq!(gone.len(), 2);
    a.node().netlink(|netlink| netlink.apply(&gone)).unwrap();
    assert!(is_cut_off_from_pod(&inside_a, &on_b));
    assert_eq!(install(&a, "a", &blocks).changed, 2);
    assert!(reaches_pod(&inside_a, &on_b));

    // A node that moves, and one whose address is on no network of ours.
    blocks[1].via = vec!["10.0.0.200".parse().unwrap(), "fd00::2".parse().unwrap()];
    blocks.push(block("c", &["10.4.0.0/27"], &["192.0.2.1"]));
    let report = install(&a, "a", &blocks);
    assert_eq!(report.changed, 1);
    assert_eq!(report.failed.len(), 1);
    assert!(report.failed[0].contains("10.4.0.0/27 via 192.0.2.1"), "{report:?}");
    assert!(reaches(&inside_a, on_b.ipv6.unwrap()));
    assert!(is_cut_off(&inside_a, on_b.ipv4.unwrap()));

    blocks.truncate(1);
    assert_eq!(install(&a, "a", &blocks).changed, 2);
    assert!(reaches_pod(a.node().namespace(), &on_a), "the pod's own route is nobody's business");
}
