//! A peer's new key takes over from its old one.
//!
//! A node that rotates its key says the new public half first, and uses it later. Its peers know both
//! then: the new one without networks, so that it may connect and is sent nothing. When it has connected,
//! the networks move to it. No second interface is needed for that, hence no second port that a firewall
//! would have to let through; and until the new key is heard of, all goes on with the old one.

use std::collections::BTreeMap;

use crate::key::PublicKey;
use crate::peer::{PeerStatus, Peers};

/// The peers as the device should have them: where a successor has connected, it has the networks of
/// its predecessor, which keeps none.
pub(crate) fn effective(wanted: &Peers, heard: &BTreeMap<PublicKey, PeerStatus>) -> Peers {
    let mut peers = wanted.clone();
    for (key, peer) in wanted {
        let Some(before) = peer.successor_of.filter(|before| before != key) else { continue };
        let connected = heard.get(key).is_some_and(|status| status.last_handshake.is_some());
        if !connected {
            continue;
        }
        let networks = peers.get_mut(&before).map(|old| std::mem::take(&mut old.allowed_ips));
        if let (Some(networks), Some(new)) = (networks, peers.get_mut(key)) {
            new.allowed_ips.extend(networks);
        }
    }
    peers
}

/// Returns whether a successor is waited for.
pub(crate) fn is_pending(wanted: &Peers) -> bool {
    wanted.values().any(|peer| peer.successor_of.is_some())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::time::Duration;

    use super::*;
    use crate::peer::Peer;

    #[test]
    fn networks_move_when_the_successor_has_connected_and_not_before() {
        let (old, new) = (PublicKey([1; 32]), PublicKey([2; 32]));
        let networks: Vec<_> = vec!["10.0.0.0/24".parse().unwrap()];
        let wanted: Peers = [
            (old, Peer { allowed_ips: networks.clone(), ..Peer::default() }),
            (new, Peer { successor_of: Some(old), ..Peer::default() }),
        ]
        .into();
        let mut heard: BTreeMap<_, _> =
            [(old, PeerStatus { last_handshake: Some(Duration::ZERO), ..PeerStatus::default() })]
                .into();
        assert_eq!(effective(&wanted, &heard), wanted);
        heard.insert(new, PeerStatus::default());
        assert_eq!(effective(&wanted, &heard), wanted, "it is known, and has not connected");
        heard.get_mut(&new).unwrap().last_handshake = Some(Duration::from_secs(1));
        let moved = effective(&wanted, &heard);
        assert_eq!(moved[&new].allowed_ips, networks);
        assert_eq!(moved[&old].allowed_ips, []);
    }

    #[test]
    fn a_successor_of_nobody_takes_nothing() {
        let (gone, new) = (PublicKey([1; 32]), PublicKey([2; 32]));
        let of = |before| Peer { successor_of: Some(before), ..Peer::default() };
        let connected =
            PeerStatus { last_handshake: Some(Duration::ZERO), ..PeerStatus::default() };
        for before in [gone, new] {
            let wanted: Peers = [(new, of(before))].into();
            assert_eq!(effective(&wanted, &[(new, connected.clone())].into()), wanted);
        }
    }
}
