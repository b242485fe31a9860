use serde_json::Value;

use super::peer_crd;
use crate::{DnsOrIp, Peer, PeerEndpoint, PeerSpec};

/// Every field of `value` must be in the schema: an API server drops other fields silently.
fn has_fields(value: &Value, schema: &Value) {
    for (field, value) in value.as_object().into_iter().flatten() {
        let schema = &schema["properties"][field];
        assert!(schema.is_object(), "{field} is not in the definition");
        has_fields(value, schema);
    }
}

#[test]
fn every_field_that_is_written_is_in_the_definition() {
    let host = DnsOrIp { dns: Some("a.example.com".to_owned()), ip: Some("192.0.2.1".to_owned()) };
    let spec = PeerSpec {
        allowed_ips: vec!["10.0.0.0/24".to_owned()],
        endpoint: Some(PeerEndpoint { dns_or_ip: host, port: 51820 }),
        persistent_keepalive: 25,
        public_key: "K".to_owned(),
        ..PeerSpec::default()
    };
    let peer = serde_json::to_value(Peer::new(objects::kinds::DataPlane::Kilo, "p", spec)).unwrap();
    let definition = peer_crd();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    has_fields(&peer["spec"], &schema["properties"]["spec"]);
    assert_eq!(definition["spec"]["group"], "kilo.squat.ai");
}
