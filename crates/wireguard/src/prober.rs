//! Sends probes through the tunnel and publishes what they find.
//!
//! Contract: a peer that shares networks with another is probed every [`FAST`], so that another can take
//! over; so is one of which something is to be found out. The others are probed in turn, [`A_SECOND`] of them
//! a second, each at most every [`SOONEST`] and at least every [`LATEST`]. At most [`MOST_A_TICK`] probes are
//! sent a tick, whoever is left has its turn at the next.
//!
//! Cost: fifty echoes of a hundred bytes and their answers a second, up to 1,500 peers; two for sixty of more.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kernel::echo;
use kernel::netns::Namespace;
use stallproof::{Snapshot, Stop};
use tokio::net::UdpSocket;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{info, warn};

use crate::key::PublicKey;
use crate::path::{Path, PathStatus, address};

const TICK: Duration = Duration::from_millis(100);
/// With three that are missed, and a second for the last, another peer takes over after three and a half
/// seconds at most.
const FAST: Duration = Duration::from_millis(750);
/// Of peers that nobody takes over from.
const A_SECOND: u32 = 50;
const SOONEST: Duration = Duration::from_secs(5);
const LATEST: Duration = Duration::from_secs(30);
/// How long an answer is waited for.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);
const MOST_A_TICK: usize = 200;
const REOPEN: Duration = Duration::from_secs(5);
/// How often statistics are published.
const PUBLISH: Duration = Duration::from_secs(1);

/// Who is to be probed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Targets {
    /// The address of the interface; none while there is no interface.
    pub(crate) from: Option<Ipv6Addr>,
    pub(crate) mtu: u32,
    /// Whether each shares networks with another.
    pub(crate) peers: BTreeMap<PublicKey, bool>,
}

/// What follows for the interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdicts {
    /// The peers that do not answer.
    pub(crate) down: BTreeSet<PublicKey>,
    /// The peers that have answered, and do.
    pub(crate) up: BTreeSet<PublicKey>,
    /// The peers on whose way only smaller packets fit.
    pub(crate) narrow: BTreeMap<PublicKey, u32>,
}

/// Where a prober hears of its targets and says what it found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probes {
    pub(crate) targets: Snapshot<Targets>,
    pub(crate) verdicts: Snapshot<Verdicts>,
    pub(crate) paths: Snapshot<BTreeMap<PublicKey, PathStatus>>,
}

struct Pending {
    key: PublicKey,
    sent: Instant,
    /// Of a large one.
    size: Option<u32>,
}

struct Target {
    path: Path,
    shares: bool,
    next: Instant,
}

pub(crate) struct Prober {
    namespace: Arc<Namespace>,
    probes: Probes,
    socket: Option<UdpSocket>,
    from: Option<Ipv6Addr>,
    /// What each probe begins with: replies to others are none of ours.
    mark: [u8; 8],
    sequence: u16,
    pending: HashMap<u16, Pending>,
    targets: BTreeMap<PublicKey, Target>,
    reopened: Option<Instant>,
    published: Instant,
    is_complained: bool,
}

impl Prober {
    pub(crate) fn new(namespace: Arc<Namespace>, probes: Probes) -> io::Result<Self> {
        let mut mark = [0; 8];
        getrandom::fill(&mut mark).map_err(io::Error::other)?;
        Ok(Self {
            namespace,
            probes,
            socket: None,
            from: None,
            mark,
            sequence: 0,
            pending: HashMap::new(),
            targets: BTreeMap::new(),
            reopened: None,
            published: Instant::now(),
            is_complained: false,
        })
    }

    pub(crate) async fn run(mut self, stop: Stop) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut buffer = vec![0; 1 << 16];
        while !stop.is_stopped() {
            let heard = async {
                match &self.socket {
                    Some(socket) => socket.recv_from(&mut buffer).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                heard = heard => match heard {
                    Ok((length, from)) => self.hear(&buffer[..length], from),
                    Err(_) => self.socket = None,
                },
                _ = ticks.tick() => self.tick(),
                () = stop.stopped() => {}
            }
        }
    }

    fn hear(&mut self, packet: &[u8], from: SocketAddr) {
        let Some((sequence, content)) = echo::reply(packet) else { return };
        let is_ours = |pending: &Pending| from.ip() == IpAddr::from(address(pending.key));
        if !content.starts_with(&self.mark) || !self.pending.get(&sequence).is_some_and(is_ours) {
            return;
        }
        let Some(Pending { key, sent, size }) = self.pending.remove(&sequence) else { return };
        let Some(target) = self.targets.get_mut(&key) else { return };
        match size {
            Some(size) => target.path.large_answered(size, Instant::now()),
            None => target.path.answered(sent.elapsed()),
        }
    }

    fn tick(&mut self) {
        let now = Instant::now();
        self.follow(now);
        self.expire(now);
        self.send_due(now);
        self.publish(now);
    }

    /// Takes in who is to be probed.
    fn follow(&mut self, now: Instant) {
        let wanted = self.probes.targets.load();
        if self.from != wanted.from || self.socket.is_none() {
            self.reopen(wanted.from, now);
        }
        let mtu = wanted.mtu;
        self.targets.retain(|key, _| wanted.peers.contains_key(key));
        for (key, shares) in &wanted.peers {
            let new = || Target { path: Path::new(mtu, now), shares: *shares, next: now };
            self.targets.entry(*key).or_insert_with(new).shares = *shares;
        }
    }

    fn reopen(&mut self, from: Option<Ipv6Addr>, now: Instant) {
        let changed = self.from != from;
        if !changed && self.reopened.is_some_and(|last| now - last < REOPEN) {
            return;
        }
        (self.from, self.reopened, self.socket) = (from, Some(now), None);
        self.pending.clear();
        let Some(from) = from else { return };
        let opened = self.namespace.run_in(|| echo::socket(from)).and_then(|made| made);
        match opened.and_then(UdpSocket::from_std) {
            Ok(socket) => {
                if std::mem::take(&mut self.is_complained) {
                    info!("peers are probed again");
                }
                self.socket = Some(socket);
            }
            Err(error) if !self.is_complained => {
                self.is_complained = true;
                warn!(%error, %from, "peers cannot be probed: the node needs IPv6, and its agent CAP_NET_RAW");
            }
            Err(_) => {}
        }
    }

    fn expire(&mut self, now: Instant) {
        let targets = &mut self.targets;
        self.pending.retain(|_, pending| {
            if now - pending.sent < ANSWERED_WITHIN {
                return true;
            }
            if let Some(target) = targets.get_mut(&pending.key) {
                match pending.size {
                    Some(size) => target.path.large_missed(size, now),
                    None => target.path.missed(),
                }
            }
            false
        });
    }

    fn send_due(&mut self, now: Instant) {
        let Some(socket) = &self.socket else { return };
        let in_turn = in_turn(self.targets.len());
        let due = self.targets.iter_mut().filter(|(_, target)| now >= target.next);
        for (key, target) in due.take(MOST_A_TICK) {
            let is_fast = target.shares || target.path.is_urgent(now);
            target.next = now + if is_fast { FAST } else { in_turn };
            let large = target.path.large(now).map(Some);
            for size in [None].into_iter().chain(large) {
                self.sequence = self.sequence.wrapping_add(1);
                let length = size.map_or(self.mark.len(), |size| (size - echo::OVERHEAD) as usize);
                let packet = echo::request(self.sequence, &self.mark, length);
                // What is not sent is not answered.
                let _ = socket.try_send_to(&packet, (address(*key), 0).into());
                self.pending.insert(self.sequence, Pending { key: *key, sent: now, size });
            }
        }
    }

    fn publish(&mut self, now: Instant) {
        let narrow = |(key, target): (&PublicKey, &Target)| Some((*key, target.path.narrow()?));
        let keys = |is: fn(&Path) -> bool| {
            let those = self.targets.iter().filter(move |(_, it)| is(&it.path));
            those.map(|(key, _)| *key).collect()
        };
        let verdicts = Verdicts {
            down: keys(Path::is_down),
            up: keys(Path::is_up),
            narrow: self.targets.iter().filter_map(narrow).collect(),
        };
        let changed = self.probes.verdicts.publish(verdicts);
        if changed || now - self.published >= PUBLISH {
            self.published = now;
            let paths = self.targets.iter().map(|(key, target)| (*key, target.path.status()));
            self.probes.paths.publish(paths.collect());
        }
    }
}

/// How often each of so many peers has its turn.
fn in_turn(peers: usize) -> Duration {
    let peers = u32::try_from(peers).unwrap_or(u32::MAX);
    (Duration::from_secs(1) / A_SECOND).saturating_mul(peers).clamp(SOONEST, LATEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_that_ends_is_found_within_seconds_and_many_cost_no_more_than_a_few() {
        let seconds = [0, 1, 250, 1_000, 1_500, 1_000_000].map(|peers| in_turn(peers).as_secs());
        assert_eq!(seconds, [5, 5, 5, 20, 30, 30]);
    }
}
