use traffic::conversations::told_by_bytes;

use super::*;

/// The first bytes of a connection, from either side, over TCP and UDP: every name is one that can be told.
pub fn first_bytes(bytes: &[u8]) {
    for protocol in [Protocol::TCP, Protocol::UDP] {
        for sender in [Sender::Client, Sender::Server] {
            if let Some(name) = application(protocol, sender, bytes) {
                assert_eq!(told_by_bytes(name), Some(name));
            }
        }
    }
}
