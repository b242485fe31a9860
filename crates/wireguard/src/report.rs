//! `Report`: what a node says of its tunnels in the status of its `WireguardNode`.
//!
//! Contract: it is written when something changed that somebody would act on, at most every [`SOONEST`];
//! and every [`REFRESH`] for the sake of counters. It lists at most [`MOST_TUNNELS`] tunnels: those
//! that do not answer first, then those that share networks, then the others by name;
//! of the nodes of its own cluster only those that do not answer or have not connected.
//!
//! Cost: a tunnel takes about 250 bytes, so a status 16 kB at most. A thousand nodes write 3.3 statuses a
//! second, at most 53 kB/s, and keep at most 16 MB.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use objects::kinds::{MOST_TUNNELS, WireguardNodeStatus, WireguardPathState, WireguardTunnel};
use tokio::time::Instant;

use crate::claims::Claims;
use crate::key::PublicKey;
use crate::path::PathStatus;
use crate::peer::PeerStatus;
use crate::tunnel::TunnelStatus;

pub(crate) const SOONEST: Duration = Duration::from_secs(10);
const REFRESH: Duration = Duration::from_secs(300);

/// Makes the status of a node.
pub(crate) fn report(
    tunnel: &TunnelStatus,
    claims: &Claims,
    paths: &BTreeMap<PublicKey, PathStatus>,
    now: SystemTime,
) -> WireguardNodeStatus {
    let mut tunnels: Vec<WireguardTunnel> = claims
        .names
        .iter()
        .map(|(key, name)| {
            let heard = tunnel.peers.get(key).cloned().unwrap_or_default();
            let carries = claims.sharing.get(key).copied();
            one(name, &heard, paths.get(key), carries, now)
        })
        .collect();
    let is_down = |it: &WireguardTunnel| it.state == WireguardPathState::Down;
    let unreachable = tunnels.iter().filter(|it| is_down(it)).count();
    tunnels.sort_by_key(|it| (!is_down(it), it.carries.is_none(), it.peer.clone()));
    // Every agent of the cluster is sent this: of the nodes of its own cluster it lists those to act on.
    let of_cluster = |it: &WireguardTunnel| claims.cluster.contains_key(&it.peer);
    tunnels.retain(|it| !of_cluster(it) || is_down(it) || it.last_handshake.is_none());
    tunnels.truncate(MOST_TUNNELS);
    WireguardNodeStatus {
        implementation: tunnel.implementation.to_string(),
        mtu: tunnel.mtu,
        peers: claims.names.len() as u32,
        unreachable: unreachable as u32,
        observed: Some(time(now)),
        tunnels,
        gateway: claims.gateway.as_ref().map(|gateway| match tunnel.lost.contains(&gateway.name) {
            false => gateway.name.clone(),
            true => format!(
                "{}, to which no way is known: this node has no route to its pods but the default \
                 route, and is not in its subnet",
                gateway.name
            ),
        }),
        moves: claims.moving.report(&claims.peers, &tunnel.kept),
    }
}

fn one(
    name: &str,
    heard: &PeerStatus,
    path: Option<&PathStatus>,
    carries: Option<bool>,
    now: SystemTime,
) -> WireguardTunnel {
    let path = path.cloned().unwrap_or_default();
    let state = match path.loss {
        _ if path.down => WireguardPathState::Down,
        Some(_) if path.round_trip.is_some() => WireguardPathState::Up,
        _ => WireguardPathState::Unknown,
    };
    let handshake = heard.last_handshake.and_then(|ago| now.checked_sub(ago));
    let micros = |it: Duration| u32::try_from(it.as_micros()).unwrap_or(u32::MAX);
    WireguardTunnel {
        peer: name.to_owned(),
        state,
        endpoint: heard.endpoint.map(|endpoint| endpoint.to_string()),
        last_handshake: handshake.map(time),
        received_bytes: heard.received_bytes,
        sent_bytes: heard.sent_bytes,
        loss_percent: path.loss,
        round_trip_micros: path.round_trip.map(micros),
        mtu: path.mtu,
        carries,
    }
}

fn time(at: SystemTime) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or_default();
    jiff::Timestamp::from_second(seconds).unwrap_or_default().to_string()
}

/// What somebody would act on.
fn material(status: &WireguardNodeStatus) -> WireguardNodeStatus {
    let mut status = WireguardNodeStatus { observed: None, ..status.clone() };
    for tunnel in &mut status.tunnels {
        let connected = tunnel.last_handshake.as_ref().map(|_| String::new());
        (tunnel.last_handshake, tunnel.received_bytes, tunnel.sent_bytes) = (connected, 0, 0);
        (tunnel.loss_percent, tunnel.round_trip_micros) = (None, None);
    }
    status
}

/// What was written last.
#[derive(Debug, Default)]
pub(crate) struct Written {
    last: Option<(WireguardNodeStatus, Instant)>,
}

/// When a status is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Now,
    After(Duration),
    Later,
}

impl Written {
    pub(crate) fn due(&self, status: &WireguardNodeStatus, now: Instant) -> Due {
        let Some((before, at)) = &self.last else { return Due::Now };
        let age = now - *at;
        match material(before) != material(status) {
            true if age >= SOONEST => Due::Now,
            true => Due::After(SOONEST - age),
            false if age >= REFRESH => Due::Now,
            false => Due::Later,
        }
    }

    pub(crate) fn wrote(&mut self, status: WireguardNodeStatus, now: Instant) {
        self.last = Some((status, now));
    }
}

#[cfg(test)]
mod tests;
