use super::*;

/// The attributes of an interface. What was read and is set again is read as the same.
pub fn wireguard(bytes: &[u8]) {
    let mut found = Device::default();
    read_device(bytes, &mut found);
    let peers = found.peers.iter().map(|peer| SetPeer {
        public_key: peer.public_key,
        remove: false,
        preshared_key: None,
        endpoint: peer.endpoint,
        keepalive: Some(peer.keepalive),
        allowed_ips: Some(peer.allowed_ips.clone()),
    });
    let wanted = SetDevice {
        private_key: None,
        listen_port: Some(found.listen_port),
        peers: peers.collect(),
    };
    let mut again = Device::default();
    for message in set_messages(CONTROL, "wg0", &wanted) {
        for raw in messages(&message) {
            read_device(&raw.payload()[4..], &mut again);
        }
    }
    assert_eq!(again.listen_port, found.listen_port);
    assert_eq!(again.peers.len(), found.peers.len());
    for (again, found) in again.peers.iter().zip(&found.peers) {
        assert_eq!(again.public_key, found.public_key);
        assert_eq!(again.endpoint, found.endpoint);
        assert_eq!(again.keepalive, found.keepalive);
        let found: Vec<_> = found.allowed_ips.iter().map(IpNet::trunc).collect();
        assert_eq!(again.allowed_ips, found);
    }
}
