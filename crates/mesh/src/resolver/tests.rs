use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use objects::kinds::ClusterMesh;
use proptest::prelude::*;
use serde_json::json;

use super::{Resolver, Surroundings, reference};
use crate::context::MeshContext;
use crate::source::{Candidate, Candidates, CrossClusterIndex, SourceCluster};

const CLUSTERS: usize = 3;

/// How the first cluster has gateways.
#[derive(Clone, Copy, Debug)]
enum Gateways {
    /// With Kilo there are none.
    Kilo,
    None,
    Some(u32),
    Only(u32),
}

fn context(gateways: Gateways) -> MeshContext {
    let plane = if matches!(gateways, Gateways::Kilo) { "kilo" } else { "wireguard" };
    let mut clusters: Vec<_> = (0..CLUSTERS)
        .map(|i| {
            let networks = [format!("10.{i}.0.0/16"), format!("172.16.{i}.0/24"), format!("192.168.{i}.0/28")];
            json!({"name": format!("c{i}"), "clusterRef": format!("c{i}"), "allowedNetworks": networks})
        })
        .collect();
    match gateways {
        Gateways::Kilo | Gateways::None => {}
        Gateways::Some(count) => clusters[0]["gateways"] = count.into(),
        Gateways::Only(count) => {
            clusters[0]["gateways"] = count.into();
            clusters[0]["topology"] = "gateways".into();
        }
    }
    let mesh: ClusterMesh = serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh",
        "metadata": {"name": "m", "namespace": "x"},
        "spec": {"dataPlane": plane, "clusters": clusters},
    }))
    .unwrap();
    MeshContext::new(&mesh, &[], mesh.spec.main_data_plane(), &BTreeMap::new())
}

/// What may happen to a node, as small numbers: the fewer there are, the more they clash.
#[derive(Clone, Debug)]
struct Event {
    cluster: usize,
    node: usize,
    /// None: the node goes.
    says: Option<[u8; 6]>,
}

fn event() -> impl Strategy<Value = Event> {
    let says = (0u8..9, 0u8..5, 0u8..8, 0u8..6, 0u8..9, 0u8..6);
    let says = says.prop_map(|(key, pods, width, address, internal, extra)| {
        [key, pods, width, address, internal, extra]
    });
    (0..CLUSTERS, 0usize..7, proptest::option::weighted(0.8, says))
        .prop_map(|(cluster, node, says)| Event { cluster, node, says })
}

fn made(cluster: usize, node: usize, says: [u8; 6]) -> Node {
    let [key, pods, width, address, internal, extra] = says;
    let mut annotations = json!({
        "kilo.squat.ai/wireguard-ip": format!("10.{cluster}.{}.{address}/16", if address < 2 { pods } else { 255 }),
    });
    if key > 0 {
        annotations["kilo.squat.ai/key"] = format!("key-{key}").into();
        annotations["wireguard.fairlead.dev/key"] = format!("key-{key}").into();
    }
    if extra > 1 {
        let endpoint = format!("198.51.100.{node}:{}", 1000 + u16::from(address));
        annotations["kilo.squat.ai/force-endpoint"] = endpoint.clone().into();
        annotations["fairlead.dev/wireguard-endpoint"] = endpoint.into();
    }
    if extra > 4 {
        annotations["fairlead.dev/mesh-gateway"] = "true".into();
    }
    // Networks that are each other's, within another and around several.
    let length = [24, 24, 24, 24, 25, 25, 22, 17][usize::from(width)];
    let mut networks =
        vec![format!("10.{cluster}.{pods}.{}/{length}", if width == 5 { 128 } else { 0 })];
    if width == 3 {
        networks.push(format!("172.16.{cluster}.0/24"));
    }
    let internal = match internal {
        0 => "10.1.0.7".to_owned(),
        1 => format!("10.{cluster}.{pods}.9"),
        2 => format!("192.168.{cluster}.{node}"),
        n => format!("192.168.9.{n}"),
    };
    let addresses = [internal, format!("203.0.113.{}", cluster * 10 + node)];
    let addresses = addresses.map(|address| json!({"type": "InternalIP", "address": address}));
    serde_json::from_value(json!({
        "metadata": {"name": format!("n{node}"), "annotations": annotations},
        "spec": {"podCIDRs": networks},
        "status": {"addresses": addresses},
    }))
    .unwrap()
}

fn follow(
    gateways: Gateways,
    events: &[Event],
    step: usize,
    most: usize,
) -> Result<(), TestCaseError> {
    let context = context(gateways);
    let names: Vec<Arc<str>> = (0..CLUSTERS).map(|i| format!("c{i}").into()).collect();
    let mut all_clusters = CrossClusterIndex::default();
    let mut candidates: Vec<Candidates> = vec![Candidates::default(); CLUSTERS];
    let mut resolvers: Vec<(Resolver, SourceCluster)> =
        (0..CLUSTERS).map(|_| Default::default()).collect();
    for (turn, event) in events.iter().enumerate() {
        let cluster = &names[event.cluster];
        let name: Arc<str> = format!("n{}", event.node).into();
        let node_ref = (Arc::clone(cluster), Arc::clone(&name));
        let mut sharing = Vec::new();
        if let Some(before) = candidates[event.cluster].remove(&name) {
            all_clusters.remove(&node_ref, &before);
            sharing.extend(all_clusters.sharing(&before).cloned());
            resolvers[event.cluster].0.remove(&name);
        }
        if let Some(says) = event.says {
            let node = made(event.cluster, event.node, says);
            let candidate = Candidate::read(&context, context.cluster(cluster).unwrap(), &node);
            sharing.extend(all_clusters.sharing(&candidate).cloned());
            all_clusters.insert(&node_ref, &candidate);
            resolvers[event.cluster].0.insert(&name, candidate.clone());
            candidates[event.cluster].insert(name, candidate);
        }
        for (cluster, node) in sharing {
            let place = names.iter().position(|it| *it == cluster).unwrap();
            resolvers[place].0.compare_again(&node);
        }
        // Several events may be seen as one, and work may go on between two of them.
        for (place, cluster) in names.iter().enumerate() {
            let (resolver, source) = &mut resolvers[place];
            let around = Surroundings { context: &context, cluster, all_clusters: &all_clusters };
            resolver.settle(around, source, most);
            if turn % step != 0 && turn + 1 < events.len() {
                continue;
            }
            while !resolver.is_settled() {
                resolver.settle(around, source, most);
            }
            let truth = reference::resolve(&context, cluster, &candidates[place], &all_clusters);
            prop_assert_eq!(&*source, &truth, "{} after {:#?}", cluster, &events[..=turn]);
        }
    }
    // What is kept is what is needed.
    for (resolver, source) in &resolvers {
        let kept = resolver.accepted.len();
        prop_assert_eq!(kept, source.peered.len().max(source.inside.len()));
        let routes: usize = resolver.accepted.values().map(|ips| ips.len()).sum();
        prop_assert!(resolver.within.len() + resolver.outside.len() <= routes);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn a_resolver_that_followed_every_change_says_what_comparing_all_at_once_says(
        events in proptest::collection::vec(event(), 1..70),
        gateways in prop_oneof![
            Just(Gateways::Kilo),
            Just(Gateways::None),
            (0u32..4).prop_map(Gateways::Some),
            (2u32..4).prop_map(Gateways::Only),
        ],
        step in 1usize..4,
        most in prop_oneof![1usize..4, Just(usize::MAX)],
    ) {
        follow(gateways, &events, step, most)?;
    }
}

#[test]
fn a_node_that_shares_nothing_is_compared_alone() {
    let context = context(Gateways::Kilo);
    let all_clusters = CrossClusterIndex::default();
    let around = Surroundings { context: &context, cluster: "c0", all_clusters: &all_clusters };
    let (mut resolver, mut source) = (Resolver::default(), SourceCluster::default());
    let insert = |resolver: &mut Resolver, i: usize, port: u8| {
        let node = made(0, i, [i as u8 + 1, i as u8, 0, port, 2, 2]);
        let candidate = Candidate::read(&context, context.cluster("c0").unwrap(), &node);
        resolver.insert(&format!("n{i}").into(), candidate);
    };
    (0..7).for_each(|i| insert(&mut resolver, i, 2 + i as u8));
    resolver.settle(around, &mut source, usize::MAX);
    assert_eq!(source.peered.len(), 7, "{:?}", source.skipped);
    insert(&mut resolver, 3, 20);
    let (compared, changed) = resolver.settle(around, &mut source, usize::MAX);
    // Once for what it claims, once for its routes.
    assert_eq!((compared, changed.len()), (2, 1));
}
