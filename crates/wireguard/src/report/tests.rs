#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::Implementation;

fn key(byte: u8) -> PublicKey {
    PublicKey([byte; 32])
}

fn status(down: &[u8], bytes: u64) -> WireguardNodeStatus {
    let names = (0..100).map(|of| (key(of), format!("m--b--n{of:02}"))).collect();
    let claims = Claims { names, sharing: [(key(70), true)].into(), ..Claims::default() };
    let heard = PeerStatus {
        last_handshake: Some(Duration::from_secs(60)),
        received_bytes: bytes,
        ..PeerStatus::default()
    };
    let path = |of: u8| PathStatus {
        down: down.contains(&of),
        loss: Some(3),
        round_trip: Some(Duration::from_millis(7)),
        mtu: Some(1420),
    };
    let tunnel = TunnelStatus {
        implementation: Implementation::Userspace,
        public_key: key(200),
        mtu: 1420,
        peers: (0..100).map(|of| (key(of), heard.clone())).collect(),
        unrouted: std::collections::BTreeSet::new(),
        kept: std::collections::BTreeSet::new(),
        lost: std::collections::BTreeSet::new(),
    };
    let paths = (0..100).map(|of| (key(of), path(of))).collect();
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(86_400);
    report(&tunnel, &claims, &paths, now)
}

#[test]
fn what_does_not_answer_comes_first_and_the_list_is_bounded() {
    let status = status(&[90, 80], 5);
    assert_eq!((status.peers, status.unreachable, status.tunnels.len()), (100, 2, MOST_TUNNELS));
    let names: Vec<_> = status.tunnels.iter().take(4).map(|it| it.peer.as_str()).collect();
    assert_eq!(names, ["m--b--n80", "m--b--n90", "m--b--n70", "m--b--n00"]);
    let first = &status.tunnels[0];
    assert_eq!((first.state, first.loss_percent), (WireguardPathState::Down, Some(3)));
    assert_eq!(first.last_handshake.as_deref(), Some("1970-01-01T23:59:00Z"));
    assert_eq!(first.round_trip_micros, Some(7_000));
    assert!(serde_json::to_vec(&status).unwrap().len() < 17_000);
}

#[test]
fn a_change_is_written_soon_and_counters_seldom() {
    let (mut written, now) = (Written::default(), Instant::now());
    assert_eq!(written.due(&status(&[], 1), now), Due::Now);
    written.wrote(status(&[], 1), now);
    assert_eq!(written.due(&status(&[], 2), now + SOONEST), Due::Later, "only bytes");
    assert_eq!(written.due(&status(&[], 2), now + REFRESH), Due::Now);
    let second = Duration::from_secs(1);
    assert_eq!(written.due(&status(&[4], 1), now + second), Due::After(SOONEST - second));
    assert_eq!(written.due(&status(&[4], 1), now + SOONEST), Due::Now);
}
