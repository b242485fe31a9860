//! `accept`: the one accept loop of every listener.
//!
//! Contract:
//! - At most [`ConnectionLimits::total`] connections are open at once, and at most
//!   [`ConnectionLimits::per_address`] of one peer address (of one /64 network, for IPv6). One more
//!   is handed to `refuse`, which must not wait; or, with [`WhenFull::CutOldest`], it is served and an
//!   older one is cut off.
//! - Each connection is a task of the group. It holds a [`Place`] until it drops it, which it may do
//!   before it ends: a connection that has proved who it is can move on to limits of its own.
//! - An `accept` that fails because the process has no file descriptor or memory left is tried again
//!   after 100 ms, then after twice as long, up to a second. One connection's own failure costs no time.
//! - When the group stops, nothing more is accepted; the connections see the same [`Stop`] and end
//!   when they have answered. The group's shutdown bounds how long they take.
//!
//! Deadlines on handshakes, headers and idle time are the protocol's business, hence the connection's.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Notify;
use tracing::{debug, warn};

use crate::{Stop, Tasks};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How many connections one listener may have open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    pub total: usize,
    /// The most of one peer address. A Unix socket's peers have none, and are not counted.
    pub per_address: usize,
    pub when_full: WhenFull,
}

/// What happens to a connection beyond the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    Refuse,
    /// It is served, and the oldest of its address is cut off if that has too many, or else the oldest
    /// of the address that has most. For a listener whose answers take milliseconds, and whose newest
    /// caller must be answered whoever holds connections.
    CutOldest,
}

impl ConnectionLimits {
    /// No other limit than `total`.
    pub const fn total(total: usize) -> Self {
        Self { total, per_address: total, when_full: WhenFull::Refuse }
    }

    /// One address has at most half of `total`.
    pub const fn shared(total: usize) -> Self {
        Self { per_address: total.div_ceil(2), ..Self::total(total) }
    }
}

/// A connection that was accepted, with its place among those that may be open.
#[derive(Debug)]
pub struct Connection<S> {
    pub stream: S,
    /// None for a Unix socket. An IPv4 address is written as one, whatever the socket's family is.
    pub peer: Option<SocketAddr>,
    pub place: Place,
    pub stop: Stop,
}

/// A socket that connections come to.
pub trait Listener: Send + Sync + 'static {
    type Stream: Send + 'static;

    fn accept(&self)
    -> impl Future<Output = io::Result<(Self::Stream, Option<SocketAddr>)>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, Option<SocketAddr>)> {
        let (stream, peer) = Self::accept(self).await?;
        Ok((stream, Some(SocketAddr::new(peer.ip().to_canonical(), peer.port()))))
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, Option<SocketAddr>)> {
        Ok((Self::accept(self).await?.0, None))
    }
}

/// Accepts connections until `tasks` stops, and runs `serve` for each as a task called `name`.
pub async fn accept<L: Listener, F>(
    listener: L,
    name: &'static str,
    limits: ConnectionLimits,
    tasks: &Tasks,
    serve: impl Fn(Connection<L::Stream>) -> F,
    refuse: impl Fn(L::Stream),
) where
    F: Future<Output = ()> + Send + 'static,
{
    let stop = tasks.stopping();
    let places = Arc::new(Places { limits, taken: Mutex::default() });
    let mut pause = FIRST_PAUSE;
    while let Some(accepted) = stop.bound(listener.accept()).await {
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_of_one_connection(&error) => continue,
            Err(error) => {
                warn!(%error, listener = name, "cannot accept a connection");
                stop.bound(tokio::time::sleep(pause)).await;
                pause = (2 * pause).min(LONGEST_PAUSE);
                continue;
            }
        };
        pause = FIRST_PAUSE;
        match places.take(peer) {
            Some(place) => {
                let (stop, cut) = (stop.clone(), place.cut.clone());
                let serving = serve(Connection { stream, peer, place, stop });
                let Some(cut) = cut else {
                    tasks.spawn(name, serving);
                    continue;
                };
                tasks.spawn(name, async move {
                    tokio::select! {
                        () = serving => {}
                        () = cut.notified() => debug!(?peer, "cut off for a newer connection"),
                    }
                });
            }
            None => refuse(stream),
        }
    }
}

/// The peer has gone between its connect and our accept.
fn is_of_one_connection(error: &io::Error) -> bool {
    use ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

#[derive(Debug)]
struct Places {
    limits: ConnectionLimits,
    /// Written by the accept loop and by connections that end.
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// The number of the next connection.
    next: u64,
    /// By number, hence the oldest first.
    open: BTreeMap<u64, Open>,
    by_address: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct Open {
    address: Option<IpAddr>,
    /// Ends the connection's task; none where connections are not cut off.
    cut: Option<Arc<Notify>>,
}

/// A connection's place among those that may be open; dropping it gives it to the next.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    number: u64,
    cut: Option<Arc<Notify>>,
}

impl Places {
    fn take(self: &Arc<Self>, peer: Option<SocketAddr>) -> Option<Place> {
        let address = peer.map(|peer| counted_as(peer.ip()));
        let cuts = self.limits.when_full == WhenFull::CutOldest;
        let mut taken = self.taken.lock();
        let crowding = taken.crowding(address, self.limits);
        if let Some(crowding) = crowding {
            if !cuts {
                return None;
            }
            let oldest = taken.open.iter().find(|(_, open)| open.address == crowding);
            let oldest = oldest.map(|(number, _)| *number)?;
            if let Some(cut) = taken.remove(oldest).and_then(|open| open.cut) {
                cut.notify_one();
            }
        }
        let cut = cuts.then(Arc::default);
        let number = taken.next;
        taken.next += 1;
        taken.open.insert(number, Open { address, cut: cut.clone() });
        if let Some(address) = address {
            *taken.by_address.entry(address).or_default() += 1;
        }
        drop(taken);
        Some(Place { places: Arc::clone(self), number, cut })
    }
}

impl Taken {
    /// The address that has too many connections for one more from `address`; none if there is room.
    fn crowding(
        &self,
        address: Option<IpAddr>,
        limits: ConnectionLimits,
    ) -> Option<Option<IpAddr>> {
        let open = address.and_then(|address| self.by_address.get(&address)).copied();
        if open.unwrap_or_default() >= limits.per_address {
            return Some(address);
        }
        let full = self.open.len() >= limits.total;
        full.then(|| self.by_address.iter().max_by_key(|(_, open)| **open).map(|(most, _)| *most))
    }

    fn remove(&mut self, number: u64) -> Option<Open> {
        let removed = self.open.remove(&number)?;
        if let Some(address) = removed.address
            && let Some(open) = self.by_address.get_mut(&address)
        {
            *open -= 1;
            if *open == 0 {
                self.by_address.remove(&address);
            }
        }
        Some(removed)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // One that was cut off is not there any more.
        self.places.taken.lock().remove(self.number);
    }
}

/// The address that stands for a peer: one customer of an IPv6 network has a /64 of addresses.
pub fn counted_as(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(six) => IpAddr::V6((six.to_bits() >> 64 << 64).into()),
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
