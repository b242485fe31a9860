//! Which replicas answer: each one that this node sends to is asked four times a second.
//!
//! A TCP connection to the replica's pod is answered by its kernel, whether the process there listens or
//! not: what counts is whether the pod and the way to it are there. A replica that never answered is not
//! called silent: something else than its end keeps the answer away.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::StreamExt;
use stallproof::{Snapshot, Stop};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};

use super::READY_PORT;

const EVERY: Duration = Duration::from_millis(250);
/// How long an answer may take: on any network that pods are on it takes a few milliseconds. With two
/// misses a replica is silent within a second.
const WAIT: Duration = Duration::from_millis(300);
/// So many unanswered in a row, and a replica is silent.
const MISSES: u8 = 2;
/// Asked at the same time.
const AT_ONCE: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    answered: bool,
    misses: u8,
}

/// Asks the replicas, and publishes those that are silent, until the process stops.
pub async fn follow(
    replicas: Snapshot<BTreeSet<IpAddr>>,
    silent: Snapshot<BTreeSet<IpAddr>>,
    stop: Stop,
) {
    let mut heard: BTreeMap<IpAddr, Heard> = BTreeMap::new();
    let mut changes = replicas.subscribe();
    let mut next = Instant::now();
    loop {
        let asked = replicas.load();
        heard.retain(|address, _| asked.contains(address));
        if asked.is_empty() {
            silent.update(|silent| !std::mem::take(silent).is_empty());
            if stop.bound(changes.changed()).await.is_none() {
                return;
            }
            continue;
        }
        next = (next + EVERY).max(Instant::now());
        let round = futures::stream::iter(asked.iter().copied())
            .map(|address| async move { (address, answers(address).await) })
            .buffer_unordered(AT_ONCE)
            .collect::<Vec<_>>();
        let Some(round) = stop.bound(round).await else { return };
        for (address, answered) in round {
            take(heard.entry(address).or_default(), answered);
        }
        let now: BTreeSet<IpAddr> =
            heard.iter().filter(|(_, heard)| is_silent(**heard)).map(|(it, _)| *it).collect();
        silent.update(|silent| {
            let changed = *silent != now;
            *silent = now;
            changed
        });
        if stop.bound(sleep_until(next)).await.is_none() {
            return;
        }
    }
}

fn take(heard: &mut Heard, answered: bool) {
    *heard = match answered {
        true => Heard { answered: true, misses: 0 },
        false => Heard { misses: heard.misses.saturating_add(1), ..*heard },
    };
}

fn is_silent(heard: Heard) -> bool {
    heard.answered && heard.misses >= MISSES
}

async fn answers(address: IpAddr) -> bool {
    match timeout(WAIT, TcpStream::connect(SocketAddr::new(address, READY_PORT))).await {
        Ok(Ok(_)) => true,
        Ok(Err(error)) => error.kind() == ErrorKind::ConnectionRefused,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests;
