use super::*;

/// A datagram of connections, or one message of it: both ends of a direction are of one family.
pub fn conntrack(bytes: &[u8]) {
    let payloads = messages(bytes).map(|raw| raw.payload().to_vec());
    for payload in payloads.chain([bytes.to_vec()]) {
        let Some(entry) = decode::entry(&payload) else { continue };
        for tuple in [entry.original, entry.reply] {
            assert_eq!(tuple.source.is_ipv4(), tuple.destination.is_ipv4());
        }
    }
}
