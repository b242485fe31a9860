//! What holds of every plan, whatever the clusters look like.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use mesh::{
    Index, Observation, Observed, Peer, PeerIndex, Plan, index, label, plan, with_wireguard,
};
use objects::kinds::{ClusterMesh, DataPlane, MeshState, WireguardNode, WireguardNodeSpec};
use proptest::prelude::*;
use serde_json::{Value, json};

type Observations = BTreeMap<String, Observation>;

/// Cluster `i` has 10.i.0.0/16, with its service network 10.(100 + i).0.0/16.
fn mesh(clusters: usize, plane: DataPlane) -> ClusterMesh {
    let cluster = |i: usize| {
        json!({"name": format!("c{i}"), "clusterRef": format!("c{i}"),
               "allowedNetworks": [format!("10.{i}.0.0/16"), format!("10.{}.0.0/16", 100 + i)]})
    };
    serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh",
        "metadata": {"name": "m", "namespace": "fairlead"},
        "spec": {"dataPlane": plane, "clusters": (0..clusters).map(cluster).collect::<Vec<_>>()},
    }))
    .unwrap()
}

/// A node as it may be found: complete or not, with clashes now and then.
#[derive(Clone, Debug)]
struct Drawn {
    pods: u8,
    address: u8,
    key: Option<u8>,
    internal: u8,
    endpoint: u8,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    (0u8..12, 0u8..12, proptest::option::weighted(0.9, 0u8..60), 0u8..40, 0u8..4).prop_map(
        |(pods, address, key, internal, endpoint)| Drawn { pods, address, key, internal, endpoint },
    )
}

fn node(cluster: usize, i: usize, drawn: &Drawn) -> Node {
    let Drawn { pods, address, key, internal, endpoint } = drawn;
    let mut annotations = serde_json::Map::new();
    annotations.insert(
        "kilo.squat.ai/wireguard-ip".to_owned(),
        format!("10.{cluster}.255.{address}/16").into(),
    );
    if let Some(key) = key {
        annotations.insert("kilo.squat.ai/key".to_owned(), format!("key-{key}").into());
    }
    match endpoint {
        1 => drop(annotations.insert("kilo.squat.ai/force-endpoint".to_owned(), "nonsense".into())),
        2 | 3 => {
            let endpoint = format!("198.51.100.{i}:51820");
            annotations.insert("kilo.squat.ai/force-endpoint".to_owned(), endpoint.clone().into());
            annotations.insert("fairlead.dev/wireguard-endpoint".to_owned(), endpoint.into());
        }
        _ => {}
    }
    // Some are in a cluster's own networks, or in another's.
    let internal = match internal {
        0..3 => format!("10.1.{internal}.7"),
        n => format!("192.168.0.{n}"),
    };
    // For either data plane: of the one that a mesh does not have nothing counts.
    let said = key.map(|key| {
        let spec = WireguardNodeSpec {
            node: format!("n{i}"),
            public_key: format!("wireguard-{key}"),
            next_public_key: (key % 3 == 0).then(|| format!("next-{key}")),
            port: 51821,
            encrypts_pods: false,
        };
        WireguardNode::new(&format!("n{i}"), spec)
    });
    let node = serde_json::from_value(json!({
        "metadata": {"name": format!("n{i}"), "annotations": annotations},
        "spec": {"podCIDRs": [format!("10.{cluster}.{pods}.0/24")]},
        "status": {"addresses": [{"type": "InternalIP", "address": internal}]},
    }))
    .unwrap();
    with_wireguard(node, said.as_ref(), [])
}

fn planes() -> impl Strategy<Value = DataPlane> {
    prop_oneof![Just(DataPlane::Kilo), Just(DataPlane::Wireguard)]
}

/// What a node of cluster `c` owns, and what somebody of its cluster has to carry.
fn owned(c: usize, node: &Node) -> Vec<IpNet> {
    let pods = node.spec.iter().flat_map(|spec| spec.pod_cidrs.iter().flatten());
    let pods = pods.map(|pods| pods.parse().unwrap());
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let addresses =
        addresses.map(|it| IpNet::from(it.address.parse::<std::net::IpAddr>().unwrap()));
    let carried = [format!("10.{c}.0.0/16"), format!("10.{}.0.0/16", 100 + c)];
    pods.chain(addresses).chain(carried.map(|it| it.parse().unwrap())).collect()
}

fn nodes() -> impl Strategy<Value = Vec<Vec<Drawn>>> {
    proptest::collection::vec(proptest::collection::vec(drawn(), 0..6), 2..5)
}

fn observations(clusters: &[Vec<Drawn>]) -> Observations {
    let observation = |(c, drawn): (usize, &Vec<Drawn>)| {
        let nodes = index(drawn.iter().enumerate().map(|(i, drawn)| node(c, i, drawn)));
        let peers = Observed::Known(PeerIndex::default());
        (format!("c{c}"), Observation { nodes: Observed::Known(nodes), peers })
    };
    clusters.iter().enumerate().map(observation).collect()
}

fn planned(mesh: &ClusterMesh, observations: &Observations) -> Plan {
    plan(mesh, &[], observations)
}

fn peers(observation: &Observation) -> Vec<Peer> {
    observation.peers.known().unwrap().iter().collect()
}

fn merge(into: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else { return into.clone_from(patch) };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            into.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut into[key], value);
        }
    }
}

fn known<T>(observed: &mut Observed<Index<T>>) -> &mut Index<T> {
    let Observed::Known(index) = observed else { panic!() };
    index
}

/// As an API server does it.
fn apply(plan: &Plan, observations: &mut Observations) {
    for (target, plan) in &plan.targets {
        let Observed::Known(peers) = &mut observations.get_mut(target).unwrap().peers else {
            panic!()
        };
        for name in &plan.deletes {
            assert!(peers.remove(name));
        }
        for update in &plan.updates {
            let mut value = serde_json::to_value(peers.get(&update.name).unwrap()).unwrap();
            merge(&mut value, &update.patch);
            let peer: Peer = serde_json::from_value(value).unwrap();
            peers.insert(&peer);
        }
        for peer in &plan.creates {
            assert!(!peers.contains(&peer.name_any()), "created twice");
            peers.insert(peer);
        }
    }
}

fn disjoint(peers: &[Peer]) {
    let routes = |peer: &Peer| -> Vec<IpNet> {
        peer.spec.allowed_ips.iter().map(|ip| ip.parse().unwrap()).collect()
    };
    for (i, a) in peers.iter().enumerate() {
        for b in &peers[i + 1..] {
            assert_ne!(a.spec.public_key, b.spec.public_key);
            for x in routes(a) {
                for y in routes(b) {
                    assert!(!x.contains(&y) && !y.contains(&x), "{x} {y}\n{a:?}\n{b:?}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn a_plan_applied_leaves_nothing_to_do_and_no_address_twice(
        clusters in nodes(), plane in planes(),
    ) {
        let mesh = mesh(clusters.len(), plane);
        let mut observations = observations(&clusters);
        let first = planned(&mesh, &observations);
        apply(&first, &mut observations);
        let again = planned(&mesh, &observations);
        prop_assert!(again.is_empty(), "{again:#?}");
        for (target, observation) in &observations {
            disjoint(&peers(observation));
            let keys: BTreeSet<_> = observation.nodes.known().unwrap().values()
                .filter_map(|node| node.annotations().get(match plane {
                    DataPlane::Kilo => "kilo.squat.ai/key",
                    DataPlane::Wireguard => "wireguard.fairlead.dev/key",
                })).collect();
            for peer in peers(observation) {
                prop_assert_ne!(&peer.labels()[label::CLUSTER], target);
                prop_assert!(!keys.contains(&peer.spec.public_key), "a peer for itself");
            }
        }
        // Ready says that every node of every cluster has its peer everywhere.
        let complete = clusters.iter().all(|nodes| !nodes.is_empty())
            && again.skipped.values().all(Vec::is_empty)
            && again.status.clusters.iter().all(|c| c.state == MeshState::Converged);
        let ready = again.status.conditions.iter().find(|c| c.r#type == "Ready").unwrap();
        prop_assert_eq!(ready.status == "True", complete, "{:?}", again.status);
        for cluster in &again.status.clusters {
            if cluster.state == MeshState::Converged {
                prop_assert_eq!(cluster.registered_peers, cluster.wanted_peers);
            }
        }
    }

    #[test]
    fn the_order_of_what_goes_in_does_not_matter(
        clusters in nodes(), turn in 0usize..6, plane in planes(),
    ) {
        let mut mesh = mesh(clusters.len(), plane);
        let mut observations = observations(&clusters);
        let first = planned(&mesh, &observations);
        for observation in observations.values_mut() {
            let nodes = known(&mut observation.nodes);
            let mut shuffled: Vec<Node> = nodes.values().map(|node| (**node).clone()).collect();
            shuffled.reverse();
            let turn = turn.min(shuffled.len());
            shuffled.rotate_left(turn);
            *nodes = index(shuffled);
        }
        mesh.spec.clusters.reverse();
        let mut second = planned(&mesh, &observations);
        second.status.clusters.reverse();
        prop_assert_eq!(&first.targets, &second.targets);
        prop_assert_eq!(&first.skipped, &second.skipped);
        prop_assert_eq!(&first.status.clusters, &second.status.clusters);
        // Peers too: a carrier is found again wherever it stands in the list.
        apply(&first, &mut observations);
        for observation in observations.values_mut() {
            let reversed: Vec<Peer> = peers(observation).into_iter().rev().collect();
            observation.peers = Observed::Known(reversed.into_iter().collect());
        }
        prop_assert!(planned(&mesh, &observations).is_empty());
    }

    /// A node that somebody took over says what it likes of keys and ports, and is sent what is its own.
    #[test]
    fn a_peer_of_ours_is_allowed_what_its_node_owns_whatever_it_says(clusters in nodes()) {
        let mesh = mesh(clusters.len(), DataPlane::Wireguard);
        let mut observations = observations(&clusters);
        apply(&planned(&mesh, &observations), &mut observations);
        for observation in observations.values() {
            for peer in peers(observation) {
                let cluster = &peer.labels()[label::CLUSTER];
                let name = peer.name_any();
                let node = name.rsplit("--").next().unwrap();
                let node = &observations[cluster].nodes.known().unwrap()[node];
                let owned = owned(cluster[1..].parse().unwrap(), node);
                for ip in &peer.spec.allowed_ips {
                    prop_assert!(owned.contains(&ip.parse().unwrap()), "{} of {}", ip, name);
                }
                let said = &node.annotations()["wireguard.fairlead.dev/key"];
                prop_assert_eq!(&peer.spec.public_key, said);
            }
        }
    }

    /// Whatever the way there: from what one mesh of nodes left behind to exactly what another needs.
    #[test]
    fn any_state_leads_to_the_same_peers(
        before in nodes(), after in nodes(), plane in planes(),
    ) {
        let clusters = before.len().min(after.len());
        let mesh = mesh(clusters, plane);
        let mut way = observations(&before[..clusters]);
        apply(&planned(&mesh, &way), &mut way);
        let mut fresh = observations(&after[..clusters]);
        for (name, observation) in &mut way {
            observation.nodes = fresh[name].nodes.clone();
        }
        apply(&planned(&mesh, &way), &mut way);
        prop_assert!(planned(&mesh, &way).is_empty());
        apply(&planned(&mesh, &fresh), &mut fresh);
        for (name, observation) in &way {
            disjoint(&peers(observation));
            let names = |observation: &Observation| -> BTreeSet<_> {
                peers(observation).iter().map(ResourceExt::name_any).collect()
            };
            prop_assert_eq!(names(observation), names(&fresh[name]));
        }
    }

    #[test]
    fn one_nodes_change_is_written_to_its_own_peers_and_a_carriers(
        clusters in 2usize..5, of in 0usize..8, endpoint in 0u8..4, gone in any::<bool>(),
        plane in planes(),
    ) {
        // No two claim one thing.
        let draw = |c: usize, i: usize| Drawn {
            pods: i as u8, address: i as u8, key: Some((c * 4 + i) as u8),
            internal: (10 + c * 4 + i) as u8, endpoint: if i == 1 { 0 } else { 2 },
        };
        let all: Vec<Vec<Drawn>> =
            (0..clusters).map(|c| (0..4).map(|i| draw(c, i)).collect()).collect();
        let mesh = mesh(clusters, plane);
        let mut observations = observations(&all);
        apply(&planned(&mesh, &observations), &mut observations);
        let (c, i) = (of % clusters, of / 2);
        let nodes = known(&mut observations.get_mut(&format!("c{c}")).unwrap().nodes);
        if gone {
            nodes.remove(format!("n{i}").as_str());
        } else {
            let moved = Drawn { endpoint, key: Some(59), ..draw(c, i) };
            nodes.insert(format!("n{i}").into(), Arc::new(node(c, i, &moved)));
        }
        let plan = planned(&mesh, &observations);
        let its_own = format!("m--c{c}--n{i}");
        for (target, plan) in &plan.targets {
            let written: BTreeSet<String> = plan.deletes.iter().cloned()
                .chain(plan.updates.iter().map(|update| update.name.clone()))
                .chain(plan.creates.iter().map(ResourceExt::name_any))
                .collect();
            let carrier = written.iter().filter(|name| **name != its_own).count();
            // The first node carries what no node covers, until it is gone or out of reach.
            // Ours reads a malformed endpoint of Kilo's as none: the node has a peer all the same.
            let must = *target != format!("c{c}") && i == 0 && (gone || endpoint < 2);
            prop_assert_eq!(carrier, usize::from(must), "{}: {:?}", target, written);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// With gateways alone: whatever the nodes, only gateways are peers elsewhere, each node is one in its own
    /// cluster, with nothing to be sent, and turning it off leaves no trace.
    #[test]
    fn gateways_alone_are_peers_elsewhere_and_every_node_is_one_at_home(
        clusters in nodes(), with in 0usize..4,
    ) {
        let plain = mesh(clusters.len(), DataPlane::Wireguard);
        let mut mesh = plain.clone();
        let with = with % clusters.len();
        mesh.spec.clusters[with].topology = objects::kinds::Topology::Gateways;
        let home = format!("c{with}");
        let mut observations = observations(&clusters);
        apply(&planned(&mesh, &observations), &mut observations);
        let again = planned(&mesh, &observations);
        prop_assert!(again.is_empty(), "{again:#?}");
        let skipped = again.skipped[&home].len();
        let mut elsewhere = BTreeSet::new();
        for (target, observation) in &observations {
            let own: Vec<Peer> = peers(observation).into_iter()
                .filter(|peer| peer.labels()[label::CLUSTER] == home).collect();
            if *target == home {
                prop_assert_eq!(own.len(), clusters[with].len() - skipped);
                prop_assert!(own.iter().all(|it| it.spec.allowed_ips.is_empty() && it.spec.within.is_some()));
            } else {
                prop_assert!(own.len() <= 2);
                prop_assert!(own.iter().all(|it| it.spec.endpoint.is_some() && it.spec.within.is_none()));
                elsewhere.extend(own.iter().map(ResourceExt::name_any));
            }
        }
        let gateways: BTreeSet<String> = peers(&observations[&home]).into_iter()
            .filter(|it| it.spec.within.as_ref().is_some_and(|it| it.gateway))
            .map(|it| it.name_any()).collect();
        prop_assert_eq!(elsewhere, gateways);
        // Back to every node a peer: as if it had never been.
        for _ in 0..2 {
            apply(&planned(&plain, &observations), &mut observations);
        }
        prop_assert!(planned(&plain, &observations).is_empty());
        prop_assert!(observations.values().all(|it| peers(it).iter().all(|it| it.spec.within.is_none())));
    }
}

/// The peers of machines outside of clusters, by target.
fn external(observations: &Observations) -> BTreeMap<String, Vec<(String, Vec<String>)>> {
    let of = |observation: &Observation| {
        let outside =
            |peer: &Peer| peer.labels().get(label::CLUSTER).is_some_and(|it| it == "External");
        let all = peers(observation).into_iter().filter(outside);
        all.map(|peer| (peer.name_any(), peer.spec.allowed_ips.clone())).collect()
    };
    observations.iter().map(|(name, observation)| (name.clone(), of(observation))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_machine_outside_is_a_peer_in_every_cluster_until_it_is_revoked(
        clusters in nodes(), plane in planes()
    ) {
        let mut mesh = mesh(clusters.len(), plane);
        mesh.spec.external_networks = vec!["10.250.0.0/24".to_owned()];
        mesh.spec.external_peers = vec![serde_json::from_value(json!({
            "name": "laptop", "publicKey": "laptop", "addresses": ["10.250.0.1"], "networks": ["172.20.0.0/24"],
        })).unwrap()];
        let mut observations = observations(&clusters);
        for _ in 0..2 {
            apply(&planned(&mesh, &observations), &mut observations);
        }
        prop_assert!(planned(&mesh, &observations).is_empty());
        let routes = vec!["10.250.0.1/32".to_owned(), "172.20.0.0/24".to_owned()];
        let expected = vec![("m--external--laptop".to_owned(), routes)];
        for (target, found) in external(&observations) {
            prop_assert_eq!(&found, &expected, "{}", target);
            disjoint(&peers(&observations[&target]));
        }
        // What is sent to a machine that is revoked is refused by our own data plane.
        let ranges = match plane {
            DataPlane::Kilo => Vec::new(),
            DataPlane::Wireguard => mesh.spec.external_networks.clone(),
        };
        let have_ranges = |observations: &BTreeMap<String, Observation>, ranges: &[String]| {
            let mut all = observations.values().flat_map(peers);
            all.all(|peer| peer.spec.external_networks == ranges)
        };
        prop_assert!(have_ranges(&observations, &ranges));
        // A new key is written in place.
        mesh.spec.external_peers[0].public_key = "another".to_owned();
        let plan = planned(&mesh, &observations);
        prop_assert!(plan.targets.values().all(|it| it.creates.is_empty() && it.updates.len() == 1));
        apply(&plan, &mut observations);
        mesh.spec.external_peers.clear();
        apply(&planned(&mesh, &observations), &mut observations);
        prop_assert!(external(&observations).values().all(Vec::is_empty));
        prop_assert!(planned(&mesh, &observations).is_empty());
        prop_assert!(have_ranges(&observations, &ranges));
        mesh.spec.external_networks.clear();
        apply(&planned(&mesh, &observations), &mut observations);
        prop_assert!(have_ranges(&observations, &[]) && planned(&mesh, &observations).is_empty());
    }
}

/// Ten clusters of a hundred nodes with our own data plane: every node is a peer in the nine others.
#[test]
fn a_thousand_nodes_with_our_own_data_plane_converge_and_one_change_is_written_nine_times() {
    const CLUSTERS: usize = 10;
    const NODES: usize = 100;
    let mesh = mesh(CLUSTERS, DataPlane::Wireguard);
    let node = |c: usize, i: usize, endpoint: &str| {
        let said = WireguardNodeSpec {
            node: format!("n{i}"),
            public_key: format!("key-{c}-{i}"),
            next_public_key: None,
            port: 51821,
            encrypts_pods: false,
        };
        let node = serde_json::from_value(json!({
            "metadata": {"name": format!("n{i}"),
                         "annotations": {"fairlead.dev/wireguard-endpoint": endpoint}},
            "spec": {"podCIDRs": [format!("10.{c}.{i}.0/24")]},
            "status": {"addresses": [{"type": "InternalIP", "address": format!("192.168.{c}.{i}")}]},
        }))
        .unwrap();
        with_wireguard(node, Some(&WireguardNode::new(&format!("n{i}"), said)), [])
    };
    let observation = |c: usize| {
        let nodes = (0..NODES).map(|i| node(c, i, &format!("198.51.100.{i}:51821")));
        let peers = Observed::Known(PeerIndex::default());
        (format!("c{c}"), Observation { nodes: Observed::Known(index(nodes)), peers })
    };
    let mut observations: Observations = (0..CLUSTERS).map(observation).collect();
    let first = planned(&mesh, &observations);
    for target in first.targets.values() {
        assert_eq!(target.creates.len(), (CLUSTERS - 1) * NODES);
        assert!(target.creates.iter().all(|peer| peer.kind == "WireguardPeer"));
    }
    apply(&first, &mut observations);
    assert!(planned(&mesh, &observations).is_empty());
    // Every pair of 900 peers would take a while: no network comes twice.
    for observation in observations.values() {
        let routes: Vec<String> =
            peers(observation).into_iter().flat_map(|it| it.spec.allowed_ips).collect();
        assert_eq!(routes.len(), routes.iter().collect::<BTreeSet<_>>().len());
    }
    known(&mut observations.get_mut("c7").unwrap().nodes)
        .insert("n3".into(), Arc::new(node(7, 3, "198.51.100.250:51821")));
    let change = planned(&mesh, &observations);
    let updates: usize = change.targets.values().map(|target| target.updates.len()).sum();
    let others = change.targets.values().any(|it| !it.creates.is_empty() || !it.deletes.is_empty());
    assert!(updates == CLUSTERS - 1 && !others, "{updates} updates");
}
