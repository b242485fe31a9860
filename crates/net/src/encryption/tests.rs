#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use objects::kinds::Overlay;
use wireguard::{Implementation, PrivateKey};

use super::*;

fn block(node: &str, network: &str, via: &str) -> RoutedBlock {
    RoutedBlock {
        node: node.to_owned(),
        networks: vec![network.parse().unwrap()],
        via: vec![via.parse().unwrap()],
        overlay: Overlay::Direct,
    }
}

#[test]
fn blocks_of_a_node_are_one_node() {
    let own = [block("a", "10.64.0.0/27", "192.0.2.1")].map(Arc::new);
    let others = [
        block("b", "10.64.0.64/27", "192.0.2.2"),
        block("c", "10.64.0.96/27", "192.0.2.3"),
        block("b", "10.64.0.32/27", "192.0.2.2"),
    ]
    .map(Arc::new);
    let network = pod_network(Vec::new(), &own, &others, &Pools::default(), true);
    assert_eq!(network.own, ["10.64.0.0/27".parse().unwrap()].into());
    let expected = NodeNetworks {
        networks: ["10.64.0.32/27", "10.64.0.64/27"].map(|it| it.parse().unwrap()).into(),
        addresses: vec!["192.0.2.2".parse().unwrap()],
    };
    assert_eq!(network.nodes["b"], expected);
    assert_eq!(network.nodes.len(), 2);
}

#[test]
fn a_node_without_a_handshake_is_named() {
    let key = Some(PrivateKey::generate().unwrap().public());
    let connected = Some(Duration::from_secs(3));
    let nodes = [
        ("b", ClusterTunnel { key, routed: true, last_handshake: connected, ..Default::default() }),
        ("c", ClusterTunnel { key, ..Default::default() }),
        ("d", ClusterTunnel::default()),
    ];
    let nodes = nodes.map(|(name, way)| (name.to_owned(), way)).into();
    let tunnels =
        ClusterTunnels { implementation: Some(Implementation::Userspace), mtu: 1420, nodes };
    let mut encryption = PodEncryption {
        mode: Encryption::Preferred,
        interface: "flwg0".to_owned(),
        port: 51821,
        mtu: 1420,
        network: Snapshot::default(),
        tunnels: Snapshot::new(tunnels),
        guarded: Snapshot::default(),
    };
    let named = |encryption: &PodEncryption| -> Vec<String> {
        encryption.faults().into_iter().map(|(what, why)| format!("{what}: {why}")).collect()
    };
    let faults = named(&encryption);
    assert_eq!(faults.len(), 2);
    assert!(
        faults[0]
            .starts_with("node c: packets to its pods are not encrypted: there was no handshake")
    );
    assert!(faults[0].contains("UDP port 51821"), "{faults:?}");
    assert!(
        faults[1].starts_with("node d: packets to its pods are not encrypted: it has said no key")
    );
    let ways: Vec<_> = encryption.rows().iter().map(|row| row["way"].clone()).collect();
    assert_eq!(ways, ["encrypted", "clear", "clear"]);
    encryption.mode = Encryption::Required;
    assert!(named(&encryption)[1].starts_with("node d: its pods are not reached: "));
    assert_eq!(encryption.rows()[2]["way"], "refused");
    encryption.tunnels.publish(ClusterTunnels::default());
    let faults = named(&encryption);
    assert!(
        faults[0].starts_with("encryption: there is no WireGuard interface flwg0"),
        "{faults:?}"
    );
}
