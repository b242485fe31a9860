//! `docs/mesh-vectors.md`, row by row.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use mesh::{Observation, Observed, Peer, PeerIndex, index, plan, with_wireguard};
use objects::kinds::{AddressBlock, ClusterMesh, WireguardNode, WireguardNodeSpec};
use serde_json::{Value, json};

fn rows(section: &str) -> Vec<Vec<String>> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mesh-vectors.md");
    let text = std::fs::read_to_string(file).unwrap();
    let section = text.split("\n## ").find(|part| part.starts_with(section)).unwrap();
    let table = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let cell = |cell: &str| cell.trim().trim_matches('`').to_owned();
    table.map(|line| line.trim_matches('|').split('|').map(cell).collect()).collect()
}

fn words(cell: &str) -> BTreeMap<&str, &str> {
    cell.split_whitespace().map(|word| word.split_once('=').unwrap_or((word, ""))).collect()
}

fn list(text: &str) -> Vec<&str> {
    text.split(',').filter(|item| !item.is_empty()).collect()
}

fn node(name: &str, words: &BTreeMap<&str, &str>) -> Node {
    let mut annotations = serde_json::Map::new();
    let mut annotate = |key: &str, value: &str| {
        if !value.is_empty() {
            annotations.insert(format!("kilo.squat.ai/{key}"), value.into());
        }
    };
    annotate("key", words.get("key").unwrap_or(&"K"));
    annotate("wireguard-ip", words.get("wg").unwrap_or(&"10.4.0.1/32"));
    annotate("clustermesh-endpoint", words.get("mesh-endpoint").unwrap_or(&""));
    annotate("force-endpoint", words.get("force-endpoint").unwrap_or(&""));
    annotate("discovered-endpoints", words.get("discovered").unwrap_or(&""));
    let address = |kind: &str| {
        let key = kind.trim_end_matches("IP").to_lowercase();
        let found = list(words.get(key.as_str()).unwrap_or(&""));
        found.into_iter().map(|ip| json!({"type": kind, "address": ip})).collect::<Vec<_>>()
    };
    let addresses = [address("ExternalIP"), address("InternalIP")].concat();
    serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"podCIDRs": list(words.get("pods").unwrap_or(&"10.1.0.0/24"))},
        "status": {"addresses": addresses},
    }))
    .unwrap()
}

fn said(peer: &Peer, asked: &str) -> String {
    let spec = &peer.spec;
    match asked {
        "allowedIPs" => spec.allowed_ips.join(","),
        "next" => spec.next_public_key.clone().unwrap_or_else(|| "none".to_owned()),
        "keepalive" => spec.persistent_keepalive.to_string(),
        "endpoint" => spec.endpoint.as_ref().map_or("none".to_owned(), |endpoint| {
            let host = &endpoint.dns_or_ip;
            let ip = host.ip.as_deref().map(|ip| match ip.contains(':') {
                true => format!("[{ip}]"),
                false => ip.to_owned(),
            });
            format!("{}:{}", ip.or(host.dns.clone()).unwrap(), endpoint.port)
        }),
        asked => panic!("{asked}?"),
    }
}

#[test]
fn a_nodes_peer() {
    let rows = rows("A node's peer");
    assert!(rows.len() > 40);
    for row in rows {
        let [what, given, expected] = &row[..] else { panic!("{row:?}") };
        let given = words(given);
        let number = |key: &str, or: u16| given.get(key).map_or(or, |n| n.parse().unwrap());
        let networks = given.get("networks").unwrap_or(&"10.1.0.0/16,10.4.0.0/16");
        let mesh: ClusterMesh = serde_json::from_value(json!({
            "apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh",
            "metadata": {"name": "m", "namespace": "fairlead"},
            "spec": {"clusters": [
                {"name": "a", "local": true, "allowedNetworks": list(networks),
                 "wireguardPort": number("port", 51820),
                 "persistentKeepalive": number("keepalive", 0)},
                {"name": "b", "clusterRef": "b", "allowedNetworks": ["10.2.0.0/16"],
                 "persistentKeepalive": number("other-keepalive", 0)},
            ]},
        }))
        .unwrap();
        let mut nodes = vec![node("n", &given)];
        if let Some(before) = given.get("before") {
            let (name, what) = before.split_once(':').unwrap();
            let mut first = words("key=KA wg=10.4.0.9/32 pods=10.1.9.0/24");
            first.extend(words(what));
            nodes.push(node(name, &first));
        }
        let seen = given.get("seen").map(|seen| {
            let (ip, port) = seen.rsplit_once(':').unwrap();
            let port: u16 = port.parse().unwrap();
            json!({"K": {"IP": ip.trim_matches(['[', ']']), "Port": port, "Zone": ""}}).to_string()
        });
        let mut other = words("key=KB wg=10.2.255.1/32 pods=10.2.0.0/24");
        other.insert("discovered", seen.as_deref().unwrap_or("not JSON"));
        let observation = |nodes| Observation {
            nodes: Observed::Known(index(nodes)),
            peers: Observed::Known(PeerIndex::default()),
        };
        let clusters = [("a", observation(nodes)), ("b", observation(vec![node("b", &other)]))];
        let clusters = clusters.map(|(name, observation)| (name.to_owned(), observation)).into();
        let plan = plan(&mesh, &[], &clusters);
        let skipped = plan.skipped["a"].iter().find(|skipped| skipped.node == "n");
        let peer = plan.targets["b"].creates.iter().find(|p| p.spec.public_key == "K");
        if let Some(skipped) = skipped {
            assert_eq!(&skipped.reason.to_string(), expected, "{what}: {}", skipped.message);
            let transient = expected.starts_with("NodeNo");
            assert_eq!(skipped.reason.is_transient(), transient, "{what}");
            continue;
        }
        let peer = peer.unwrap_or_else(|| panic!("{what}: {plan:#?}"));
        assert!(expected.contains('='), "{what}: was to be skipped, and is {:?}", peer.spec);
        for (asked, expected) in words(expected) {
            assert_eq!(said(peer, asked), expected, "{what}");
        }
    }
}

/// A node of a cluster with our own data plane, as its objects have it.
fn wireguard_node(name: &str, words: &BTreeMap<&str, &str>) -> Node {
    let mut kilo = words.clone();
    kilo.extend([("key", ""), ("wg", "")]);
    let mut node = node(name, &kilo);
    let annotations = node.metadata.annotations.get_or_insert_default();
    let put = [
        ("endpoint", "fairlead.dev/wireguard-endpoint"),
        ("annotated", "wireguard.fairlead.dev/key"),
    ];
    for (word, annotation) in put {
        annotations
            .extend(words.get(word).map(|value| (annotation.to_owned(), (*value).to_owned())));
    }
    let said_by = words.get("said-by").copied().unwrap_or(name);
    let key = words.get("key").copied().unwrap_or("K");
    let key = if said_by == name { key } else { "K" };
    let said = (!key.is_empty()).then(|| {
        let spec = WireguardNodeSpec {
            node: said_by.to_owned(),
            public_key: key.to_owned(),
            next_public_key: words.get("next").map(|next| (*next).to_owned()),
            port: words.get("port").map_or(51821, |port| port.parse().unwrap()),
            encrypts_pods: false,
        };
        WireguardNode::new(name, spec)
    });
    let blocks = |word: &str, of: &str| -> Vec<AddressBlock> {
        let networks = list(words.get(word).unwrap_or(&"")).into_iter().enumerate();
        networks
            .map(|(index, ipv4)| {
                let spec = json!({"pool": "p", "index": index, "node": of, "ipv4": ipv4});
                serde_json::from_value(json!({
                    "apiVersion": "fairlead.dev/v1alpha1", "kind": "AddressBlock",
                    "metadata": {"name": format!("p-{index}")}, "spec": spec,
                }))
                .unwrap()
            })
            .collect()
    };
    let blocks = [blocks("blocks", name), blocks("other-blocks", "other")].concat();
    with_wireguard(node, said.as_ref(), &blocks)
}

#[test]
fn a_nodes_peer_with_our_own_data_plane() {
    let rows = rows("A node's peer, with our own data plane");
    assert!(rows.len() > 20);
    for row in rows {
        let [what, given, expected] = &row[..] else { panic!("{row:?}") };
        let given = words(given);
        let number = |key: &str| given.get(key).map_or(0, |n| n.parse::<u16>().unwrap());
        let networks = list(given.get("networks").unwrap_or(&"10.1.0.0/16"));
        let mesh: ClusterMesh = serde_json::from_value(json!({
            "apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh",
            "metadata": {"name": "m", "namespace": "fairlead"},
            "spec": {"dataPlane": "wireguard", "clusters": [
                {"name": "a", "local": true, "allowedNetworks": networks,
                 "persistentKeepalive": number("keepalive")},
                {"name": "b", "clusterRef": "b", "allowedNetworks": ["10.2.0.0/16"],
                 "persistentKeepalive": number("other-keepalive")},
            ]},
        }))
        .unwrap();
        let mut nodes = vec![wireguard_node("n", &given)];
        if let Some(before) = given.get("before") {
            let (name, what) = before.split_once(':').unwrap();
            let mut first = words("key=KA pods=10.1.9.0/24");
            first.extend(words(what));
            nodes.push(wireguard_node(name, &first));
        }
        let other = wireguard_node("b", &words("key=KB pods=10.2.0.0/24"));
        let observation = |nodes| Observation {
            nodes: Observed::Known(index(nodes)),
            peers: Observed::Known(PeerIndex::default()),
        };
        let clusters = [("a", observation(nodes)), ("b", observation(vec![other]))];
        let clusters = clusters.map(|(name, observation)| (name.to_owned(), observation)).into();
        let plan = plan(&mesh, &[], &clusters);
        if let Some(skipped) = plan.skipped["a"].iter().find(|skipped| skipped.node == "n") {
            assert_eq!(&skipped.reason.to_string(), expected, "{what}: {}", skipped.message);
            continue;
        }
        let peer = plan.targets["b"].creates.iter().find(|p| p.spec.public_key == "K");
        let peer = peer.unwrap_or_else(|| panic!("{what}: {plan:#?}"));
        assert_eq!(
            (peer.api_version.as_str(), peer.kind.as_str()),
            ("fairlead.dev/v1alpha1", "WireguardPeer")
        );
        assert!(expected.contains('='), "{what}: was to be skipped, and is {:?}", peer.spec);
        for (asked, expected) in words(expected) {
            assert_eq!(said(peer, asked), expected, "{what}");
        }
    }
}

#[test]
fn gateways_alone() {
    let rows = rows("Gateways alone");
    assert!(rows.len() >= 4);
    for row in rows {
        let [what, nodes, elsewhere, short] = &row[..] else { panic!("{row:?}") };
        let mesh: ClusterMesh = serde_json::from_value(json!({
            "apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh",
            "metadata": {"name": "m", "namespace": "fairlead"},
            "spec": {"dataPlane": "wireguard", "clusters": [
                {"name": "a", "local": true, "allowedNetworks": ["10.1.0.0/16"], "topology": "gateways"},
                {"name": "b", "clusterRef": "b", "allowedNetworks": ["10.2.0.0/16"]},
            ]},
        }))
        .unwrap();
        let made = words(nodes).into_iter().map(|(name, marks)| {
            let i = &name[1..];
            let given = [
                ("key", format!("K{i}")),
                ("pods", format!("10.1.{i}.0/24")),
                ("internal", format!("192.168.0.{i}")),
                (
                    "endpoint",
                    if marks.contains('e') { format!("192.0.2.{i}:51821") } else { String::new() },
                ),
            ];
            let given: BTreeMap<&str, &str> = given.iter().map(|(k, v)| (*k, v.as_str())).collect();
            let mut node = wireguard_node(name, &given);
            if marks.contains('!') {
                let annotations = node.metadata.annotations.get_or_insert_default();
                annotations.insert("fairlead.dev/mesh-gateway".to_owned(), "true".to_owned());
            }
            node
        });
        let observation = |nodes: Vec<Node>| Observation {
            nodes: Observed::Known(index(nodes)),
            peers: Observed::Known(PeerIndex::default()),
        };
        let other = wireguard_node("b", &words("key=KB pods=10.2.0.0/24"));
        let clusters = [("a", observation(made.collect())), ("b", observation(vec![other]))];
        let clusters = clusters.map(|(name, observation)| (name.to_owned(), observation)).into();
        let plan = plan(&mesh, &[], &clusters);
        let of_a = plan.targets["b"].creates.iter().map(|peer| {
            let name = peer.metadata.name.as_deref().unwrap().trim_start_matches("m--a--");
            format!("{name}:{}", peer.spec.allowed_ips.join(","))
        });
        assert_eq!(of_a.collect::<Vec<_>>().join(" "), *elsewhere, "{what}");
        let gateways: Vec<&str> =
            elsewhere.split_whitespace().map(|it| it.split(':').next().unwrap()).collect();
        // In the cluster itself: its own nodes, and those of the other.
        let inside: Vec<&Peer> =
            plan.targets["a"].creates.iter().filter(|it| it.spec.within.is_some()).collect();
        assert_eq!(inside.len(), words(nodes).len(), "{what}");
        assert_eq!(plan.targets["a"].creates.len(), inside.len() + 1, "{what}");
        for peer in inside {
            let name = peer.metadata.name.as_deref().unwrap().trim_start_matches("m--a--");
            let within = peer.spec.within.as_ref().unwrap();
            assert_eq!(within.gateway, gateways.contains(&name), "{what}: {name}");
            assert!(peer.spec.allowed_ips.is_empty(), "{what}: {name}");
            let own = [format!("10.1.{}.0/24", &name[1..]), format!("192.168.0.{}/32", &name[1..])];
            assert_eq!(within.networks, own, "{what}: {name}");
            assert_eq!(said(peer, "endpoint"), format!("192.168.0.{}:51821", &name[1..]), "{what}");
        }
        let why = plan.status.clusters[0].why.clone().unwrap_or_default();
        let is_short = why.contains(&format!("waiting for {short} of 2 gateways"));
        assert_eq!(is_short, short != "0", "{what}: {why}");
    }
}

#[test]
fn names() {
    let long = |text: &str| -> String {
        let Some((before, rest)) = text.split_once('*') else { return text.to_owned() };
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let times: usize = rest[..digits].parse().unwrap();
        let (before, letter) = before.split_at(before.len() - 1);
        format!("{before}{}{}", letter.repeat(times), &rest[digits..])
    };
    let rows = rows("Names");
    assert!(rows.len() >= 6);
    for row in rows {
        let row: Vec<_> = row.iter().map(|cell| long(cell)).collect();
        let [mesh, cluster, node, expected] = &row[..] else { panic!("{row:?}") };
        assert_eq!(&mesh::plain_name(mesh, cluster, node), expected);
        assert!(expected.len() <= 253);
    }
}

#[test]
fn networks_that_overlap() {
    let rows = rows("Networks that overlap");
    assert!(rows.len() >= 8);
    for row in rows {
        let [one, another, expected] = &row[..] else { panic!("{row:?}") };
        let mesh = |name: &str, clusters: Value| -> ClusterMesh {
            serde_json::from_value(json!({
                "apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh",
                "metadata": {"name": name, "namespace": "fairlead"},
                "spec": {"clusters": clusters},
            }))
            .unwrap()
        };
        let one = json!({"name": "a", "clusterRef": "a", "allowedNetworks": list(one)});
        let another = json!({"name": "b", "clusterRef": "b", "allowedNetworks": list(another)});
        let shared = json!({"name": "s", "local": true, "allowedNetworks": ["172.31.0.0/16"]});
        let yes = expected == "yes";
        // In one mesh, and in two that share a cluster.
        let both = mesh("m", json!([one, another]));
        assert_eq!(!mesh::overlaps(&both, &[]).is_empty(), yes, "{row:?}");
        let (first, second) =
            (mesh("m", json!([shared, one])), mesh("n", json!([shared, another])));
        let found = mesh::overlaps(&first, std::slice::from_ref(&second));
        assert_eq!(found.iter().any(|overlap| overlap.cluster == "a"), yes, "{row:?}");
        assert!(found.iter().all(|overlap| overlap.cluster != "s"), "{found:?}");
        // Two that share none are not each other's business.
        let apart = mesh("n", json!([another]));
        assert!(mesh::overlaps(&mesh("m", json!([one])), &[apart]).is_empty());
    }
}
