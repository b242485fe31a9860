use kernel::netlink::RouteKind;
use testkit::requires;

use super::*;
use crate::datapath::Datapath;
use crate::routes::EXPORT_TABLE;
use crate::tests::pods;

fn route(destination: &str, table: u32, protocol: u8) -> Change<'static> {
    let destination = destination.parse().unwrap();
    Change::Route(Route { destination, table, protocol, kind: RouteKind::Blackhole })
}

fn left(node: &Node) -> Vec<String> {
    let routes = |table| node.netlink(|netlink| netlink.routes(table)).unwrap();
    let found = [MAIN_TABLE, EXPORT_TABLE].into_iter().flat_map(routes);
    let static_or_ours = |route: &Route| [4, ROUTE_PROTOCOL].contains(&route.protocol);
    found.filter(static_or_ours).map(|route| route.to_string()).collect()
}

#[test]
fn what_agents_made_goes_and_what_others_made_stays() {
    requires!(netns);
    let wiring = pods::node();
    let node = wiring.node();
    let (record, sandbox) = pods::pod(1, 1);
    wiring.set_up(&record, &sandbox, &()).unwrap();
    let others = "10.9.0.0/24 to nowhere in table 119";
    let changes = [
        route("10.1.0.0/27", MAIN_TABLE, ROUTE_PROTOCOL),
        route("fd00:1::/123", MAIN_TABLE, ROUTE_PROTOCOL),
        route("10.1.0.0/27", EXPORT_TABLE, ROUTE_PROTOCOL),
        // Somebody's own (`RTPROT_STATIC`).
        route("10.9.0.0/24", EXPORT_TABLE, 4),
    ];
    node.netlink(|netlink| netlink.apply(&changes)).unwrap();

    let purged = purge(node, &[EXPORT_TABLE], false).unwrap();
    assert_eq!(purged.interfaces, Vec::<String>::new());
    assert_eq!(interfaces(node).unwrap().len(), 1, "without being told to, no pod is cut off");
    wiring.set_up(&record, &sandbox, &()).unwrap();
    let purged = purge(node, &[EXPORT_TABLE], true).unwrap();
    assert_eq!(purged.interfaces, [record.host_interface]);
    assert_eq!(purged.failed, Vec::<String>::new());
    assert_eq!(interfaces(node).unwrap(), []);
    assert_eq!(left(node), [others]);
    assert_eq!(purge(node, &[EXPORT_TABLE], true).unwrap(), Purged::default(), "again is nothing");
}
