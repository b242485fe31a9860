#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use objects::kinds::{WireguardRouting, WireguardWithin};
use proptest::option::of;
use proptest::prelude::*;

use super::*;

/// As it is usually written, nearly so, and as nobody should.
fn networks() -> impl Strategy<Value = Vec<String>> {
    let one = prop_oneof![
        (any::<[u8; 4]>(), 0..=32u8).prop_map(|(ip, n)| format!("{}/{n}", IpAddr::from(ip))),
        (any::<[u8; 16]>(), 0..=128u8).prop_map(|(ip, n)| format!("{}/{n}", IpAddr::from(ip))),
        Just("10.01.0.0/16".to_owned()),
        Just("FD00::/8".to_owned()),
        Just("::ffff:10.1.0.0/112".to_owned()),
        ".{0,20}",
    ];
    prop::collection::vec(one, 0..5)
}

fn keys() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<[u8; 32]>().prop_map(|key| BASE64_STANDARD.encode(key)),
        any::<[u8; 31]>().prop_map(|key| BASE64_STANDARD.encode(key)),
        // The last bits of the last letter are nobody's.
        Just("b8a8LyxAlV0vKMcV8jcW5x7JG3l9Tss5g5WgqcSSOTl=".to_owned()),
        ".{0,50}",
    ]
}

fn endpoints() -> impl Strategy<Value = PeerEndpoint> {
    let ips = prop_oneof![
        any::<[u8; 4]>().prop_map(|ip| IpAddr::from(ip).to_string()),
        any::<[u8; 16]>().prop_map(|ip| IpAddr::from(ip).to_string()),
        ".{0,20}",
    ];
    (of(".{0,20}"), of(ips), any::<u32>())
        .prop_map(|(dns, ip, port)| PeerEndpoint { dns_or_ip: DnsOrIp { dns, ip }, port })
}

fn within() -> impl Strategy<Value = Option<WireguardWithin>> {
    of((any::<bool>(), networks()))
        .prop_map(|it| it.map(|(gateway, networks)| WireguardWithin { gateway, networks }))
}

proptest! {
    #[test]
    fn a_peer_is_unpacked_as_it_was_packed(
        version in of(".{0,200}"), labels in prop::collection::vec(of(".{0,20}"), 5),
        allowed_ips in networks(), endpoint in of(endpoints()), persistent_keepalive: u32,
        public_key in keys(), next_public_key in of(keys()), within in within(),
        is_standby: bool, external_networks in networks(),
    ) {
        let routing = if is_standby { WireguardRouting::Standby } else { WireguardRouting::Always };
        let mut peer = Peer {
            spec: PeerSpec {
                allowed_ips, endpoint, persistent_keepalive, public_key, next_public_key, within,
                routing, external_networks,
            },
            ..Peer::default()
        };
        peer.metadata.name = Some("a".to_owned());
        peer.metadata.resource_version = version;
        let labels: BTreeMap<String, String> = LABELS.into_iter().zip(labels)
            .filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
        peer.metadata.labels = Some(labels);
        prop_assert_eq!(PackedPeer::pack(&peer).unpack("a"), peer);
    }
}

#[test]
fn a_usual_peer_takes_a_hundred_bytes() {
    let peer: Peer = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "prod--c12--n03", "resourceVersion": "1000003", "labels": {
            label::MESH: "prod", label::NAMESPACE: "fairlead", label::CLUSTER: "c12"}},
        "spec": {
            "allowedIPs": ["10.12.3.0/24", "10.12.255.3/32", "192.168.12.3/32"],
            "endpoint": {"dnsOrIP": {"ip": "198.51.100.3"}, "port": 51820},
            "publicKey": "b8a8LyxAlV0vKMcV8jcW5x7JG3l9Tss5g5WgqcSSOTk=",
        },
    }))
    .unwrap();
    let PackedPeer(bytes) = PackedPeer::pack(&peer);
    assert!(bytes.len() <= 100, "{} bytes", bytes.len());
}
