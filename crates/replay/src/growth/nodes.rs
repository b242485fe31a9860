//! Nodes of a cluster: a pod's change in policy, a node's change in a mesh, a block's change in routes.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ipnet::IpNet;
use net::overlay::Underlay;
use net::routes::{BlockRef, KernelRoutes, RoutePlanner, RoutedBlock};
use objects::kinds::Overlay;
use policy::cluster::{Key, Labels, Pod};
use policy::spec::{AcceptRule, NamespaceSelection, NetworkPolicy, Peer, PodSelection, Settings};
use policy::{Change, Compiler, Publisher};

use super::meter::{Grows, Meter};
use super::peers::Mesh;
use crate::incident::Cannot;

/// Pods of a node, and nodes on which there are pods of a namespace.
const PODS: usize = 4;
const NODES_TOGETHER: usize = 4;
/// Clusters of the mesh: each node has a peer in the others.
const CLUSTERS: usize = 3;

pub(super) fn measure(nodes: usize, meter: &mut Meter) -> Result<(), Cannot> {
    policies(nodes, meter);
    peers(nodes, meter)?;
    routes(nodes, meter)
}

/// Pod `place` of a node, in the namespace of some nodes. `changed`: with another label.
pub(super) fn pod(namespace: usize, node: usize, place: usize, changed: bool) -> Change {
    let key = Key::new(&format!("ns-{namespace}"), &format!("p-{node}-{place}"));
    let address = Ipv4Addr::from(0x0a00_0000 + u32::try_from(node * 1024 + place).unwrap_or(0));
    let pod = Pod {
        key: key.clone(),
        node: format!("n{node}").into(),
        labels: Labels::from([("app".to_owned(), if changed { "b" } else { "a" }.to_owned())]),
        addresses: vec![address.into()],
        host_network: false,
        finished: false,
        ports: Vec::new(),
        images: Vec::new(),
        owner: format!("Deployment/d-{node}").into(),
        created: 0,
    };
    Change::Pod(key, Some(Arc::new(pod)))
}

/// Pods of the namespace with the first label may enter.
pub(super) fn network_policy(namespace: usize) -> Change {
    let key = Key::new(&format!("ns-{namespace}"), "own");
    let own = Peer::Pods(PodSelection {
        namespaces: NamespaceSelection::Named(Arc::clone(&key.namespace)),
        pods: "app=a".parse().unwrap_or_default(),
    });
    let policy = NetworkPolicy {
        key: key.clone(),
        pods: objects::Selector::default(),
        ingress: Some(vec![AcceptRule { peers: vec![own], ports: Vec::new() }]),
        egress: None,
    };
    Change::NetworkPolicy(key, Some(Arc::new(policy)))
}

/// Namespaces that have a policy each.
pub(super) fn publisher(namespaces: usize) -> Publisher {
    let mut publisher = Publisher::new(Compiler::new(Settings::default()), 1);
    for namespace in 0..namespaces {
        let name = format!("ns-{namespace}").into();
        publisher.apply(Change::Namespace(name, Some(Labels::new())));
        publisher.apply(network_policy(namespace));
    }
    publisher
}

fn policies(nodes: usize, meter: &mut Meter) {
    let what = format!("policy: {PODS} pods a node, namespaces of {NODES_TOGETHER} nodes, memory");
    let mut publisher = meter.standing(&what, || {
        let mut publisher = publisher(nodes.div_ceil(NODES_TOGETHER));
        for node in 0..nodes {
            for place in 0..PODS {
                publisher.apply(pod(node / NODES_TOGETHER, node, place, false));
            }
            publisher.follow(&format!("n{node}"));
        }
        publisher.publish();
        publisher
    });
    meter.change("policy: a pod's labels change", Grows::Not, |i| {
        publisher.apply(pod(0, 0, 0, i % 2 == 0));
        let told = publisher.publish().len();
        assert_eq!(told, NODES_TOGETHER, "the nodes of its namespace are told");
    });
}

fn peers(nodes: usize, meter: &mut Meter) -> Result<(), Cannot> {
    let what = format!("mesh: {CLUSTERS} clusters of as many nodes, memory");
    let mut mesh = meter.standing(&what, || Mesh::new(CLUSTERS, nodes))?;
    // The first carries what no node covers.
    for (which, i) in [("a node", nodes / 2), ("the node that carries the rest", 0)] {
        meter.change(&format!("mesh: the endpoint of {which} changes"), Grows::Not, |n| {
            let to_write = mesh.move_node(i, n % 2 == 0).unwrap_or_default();
            assert_eq!(to_write, if n % 2 == 0 { CLUSTERS - 1 } else { 0 });
        });
    }
    meter.change("mesh: a node goes, and comes back", Grows::Not, |n| {
        let to_write = mesh.remove_node(nodes / 2, n % 2 == 0).unwrap_or_default();
        assert_eq!(to_write, if n % 2 == 0 { CLUSTERS - 1 } else { 0 });
    });
    Ok(())
}

fn block(number: usize, moved: bool) -> Result<Arc<RoutedBlock>, Cannot> {
    let number = u32::try_from(number)?;
    let network = IpNet::new(Ipv4Addr::from(0x0a00_0000 + (number << 6)).into(), 26)?;
    let host = |moved: u32| IpAddr::from(Ipv4Addr::from(0xc0a8_0000 + moved + number));
    let via = vec![host(if moved { 0x8000 } else { 1 })];
    let node = format!("n{number}");
    Ok(Arc::new(RoutedBlock { node, networks: vec![network], via, overlay: Overlay::Direct }))
}

fn routes(nodes: usize, meter: &mut Meter) -> Result<(), Cannot> {
    let name = |number: usize| BlockRef::Listed(format!("b{number}").into());
    let mut planner = RoutePlanner::new("here", None);
    let addresses = vec!["192.168.0.0/16".parse()?];
    planner.set_underlay(Underlay { device: None, addresses });
    for number in 0..nodes {
        planner.set_block(&name(number), Some(block(number, false)?));
    }
    let kernel = KernelRoutes::from(planner.wanted());
    planner.settle(&kernel);
    let moved = [block(0, true)?, block(0, false)?];
    meter.change("routes: a block is another node's, on one node", Grows::Not, |i| {
        planner.set_block(&name(0), Some(Arc::clone(&moved[i % 2])));
        let changes = planner.changes(&kernel, true).len();
        assert_eq!(changes, usize::from(i % 2 == 0));
    });
    Ok(())
}
