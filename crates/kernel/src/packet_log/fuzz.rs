use super::*;

/// A datagram of logged packets, or one message of it: nothing is carried that the packet had not, nor any part
/// of the headers.
pub fn packet_log(bytes: &[u8]) {
    let payloads = messages(bytes).map(|raw| raw.payload().to_vec());
    for payload in payloads.chain([bytes.to_vec()]) {
        let Some(logged) = logged(&payload) else { continue };
        assert_eq!(logged.source.is_ipv4(), logged.destination.is_ipv4());
        let network = if logged.source.is_ipv4() { 20 } else { 40 };
        let transport = if logged.protocol == 6 { 20 } else { 8 };
        if !logged.carried.is_empty() {
            assert!(logged.carried.len() + network + transport <= payload.len());
        }
    }
}
