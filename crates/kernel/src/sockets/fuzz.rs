use super::*;

/// A datagram of sockets, or one message of it.
pub fn sockets(bytes: &[u8]) {
    let payloads = messages(bytes).map(|raw| raw.payload().to_vec());
    for payload in payloads.chain([bytes.to_vec()]) {
        let _ = decode(&payload);
    }
}
