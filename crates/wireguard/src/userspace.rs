//! WireGuard in this process: a device of our own on threads of its own, over a TUN interface. `gotatun` has
//! the protocol: handshakes, keys, timers, cookies.
//!
//! ```text
//! interface ──► outgoing: cut, encrypt ──► UDP socket
//! interface ◄── incoming: join, check, decrypt ◄── UDP socket
//!                  timers: keepalives, new keys ──► UDP socket
//! changes ──► peers, published ◄── all three look there
//! ```
//!
//! Contract:
//! - Nothing else runs on its threads, and it runs on no other: packets wait for none of the process' work,
//!   and a flood of packets takes no thread from it.
//! - There are no queues but the kernel's: a thread that has read a packet sends it on itself. What has no room
//!   is dropped, as on any network.
//! - A change is made while packets pass, and costs what it touches.
//! - The interface is gone when this is dropped or the process ends.

mod allowed;
mod incoming;
mod inner;
mod outgoing;
mod peers;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use kernel::netns::Namespace;
use kernel::tun::Tun;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use stallproof::Tasks;
use tracing::subscriber::NoSubscriber;
use tracing::warn;

use crate::device::DeviceError;
use crate::key::{PrivateKey, PublicKey};
use crate::peer::{Delta, PeerStatus};
use crate::uapi::{self, UapiSocket};
use crate::udp::Socket;
use peers::DevicePeers;
pub(crate) use peers::PeerView;

/// `gotatun` has packets in buffers of 4,096 bytes, of which WireGuard takes up to 80.
pub(crate) const LARGEST_MTU: u32 = 4_000;
/// How often timers are looked at; the shortest of them has a second.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
/// How long a socket is waited for that takes no more. Packets wait in the interface's queue meanwhile.
const WRITABLE_WITHIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// What the threads of a device share.
pub(crate) struct Shared {
    peers: DevicePeers,
    tun: Tun,
    socket: Socket,
    mtu: u16,
    /// Readable, and never read, from the moment at which the device stops.
    stop: OwnedFd,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    Ready,
    Stopped,
}

impl Shared {
    fn wait_for_tun(&self) -> Woken {
        self.wait(Some((self.tun.as_fd(), PollFlags::IN)), None)
    }

    fn wait_for_socket(&self) -> Woken {
        self.wait(Some((self.socket.as_fd(), PollFlags::IN)), None)
    }

    /// Waits until the socket takes more, and returns whether to send on.
    fn wait_until_writable(&self) -> bool {
        let socket = (self.socket.as_fd(), PollFlags::OUT);
        self.wait(Some(socket), Some(&WRITABLE_WITHIN)) == Woken::Ready
    }

    fn is_stopped(&self) -> bool {
        self.wait(None, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Woken::Stopped
    }

    fn wait(&self, on: Option<(BorrowedFd<'_>, PollFlags)>, within: Option<&Timespec>) -> Woken {
        let stop = PollFd::new(&self.stop, PollFlags::IN);
        let result = match on {
            Some((file, flags)) => {
                let mut both = [stop, PollFd::from_borrowed_fd(file, flags)];
                poll(&mut both, within).map(|_| both[0].revents())
            }
            None => {
                let mut one = [stop];
                poll(&mut one, within).map(|_| one[0].revents())
            }
        };
        // A signal wakes too, and whoever waits looks again.
        match result {
            Ok(stopped) if !stopped.is_empty() => Woken::Stopped,
            _ => Woken::Ready,
        }
    }

    /// Looks at every peer's timers, again and again.
    fn keep_time(&self) {
        let mut due = Vec::new();
        while self.wait(None, Some(&TICK)) == Woken::Ready {
            // Without a peer nobody else forgets who has shaken hands.
            self.peers.identity().limiter.try_reset_count();
            for peer in self.peers.table().iter() {
                let mut state = peer.state.lock();
                let Some(endpoint) = state.endpoint else { continue };
                // A peer that did not answer for long has no timers until there is something to send.
                let packet = state.tunnel.update_timers().ok().flatten();
                self.peers.forget_stale(peer, &mut state);
                if let Some(packet) = packet {
                    self.peers.register(&packet, peer, &mut state);
                    due.push((packet.into(), endpoint));
                }
            }
            self.socket.send_all(&mut due, || false);
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.socket.port()
    }

    pub(crate) fn private_key(&self) -> [u8; 32] {
        self.peers.identity().secret.to_bytes()
    }

    pub(crate) fn views(&self) -> Vec<PeerView> {
        self.peers.views()
    }
}

pub(crate) struct Userspace {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Of the socket that `wg show` asks.
    tasks: Tasks,
}

impl fmt::Debug for Userspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Userspace").finish_non_exhaustive()
    }
}

impl Userspace {
    /// Makes the interface in a namespace, with threads and sockets there.
    pub(crate) fn open(
        namespace: &Namespace,
        name: &str,
        port: u16,
        mtu: u32,
        key: &PrivateKey,
        socket_directory: &Path,
    ) -> Result<Self, DeviceError> {
        let mtu = u16::try_from(mtu.min(LARGEST_MTU)).unwrap_or(u16::MAX);
        let peers = DevicePeers::new(key.secret().clone());
        // Threads are in the namespace of the thread that starts them, and so are their sockets.
        let opened = namespace.run_in(|| {
            let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let (tun, socket) = (Tun::create(name)?, Socket::bind(port)?);
            let shared = Arc::new(Shared { peers, tun, socket, mtu, stop });
            let (tasks, threads) = (Tasks::new("wireguard"), Vec::new());
            // Threads that were started end if a later one cannot be.
            let mut device = Self { shared, threads, tasks };
            device.start("wireguard-out", outgoing::run)?;
            device.start("wireguard-in", incoming::run)?;
            device.start("wireguard-timer", Shared::keep_time)?;
            if let Err(error) = device.serve_uapi(name, socket_directory) {
                let directory = socket_directory.display();
                warn!(%error, %directory, "`wg show` cannot ask this interface");
            }
            Ok(device)
        });
        opened.and_then(|opened| opened).map_err(DeviceError::Userspace)
    }

    fn start(&mut self, name: &str, run: impl FnOnce(&Shared) + Send + 'static) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        // The library has a line for some packets; a flood of packets must be none of the log.
        let quiet = move || tracing::subscriber::with_default(NoSubscriber::new(), || run(&shared));
        self.threads.push(thread::Builder::new().name(name.to_owned()).spawn(quiet)?);
        Ok(())
    }

    /// Serves the socket that `wg show` asks.
    fn serve_uapi(&mut self, name: &str, directory: &Path) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let socket = {
            let _inside = runtime.enter();
            UapiSocket::bind(directory, name)?
        };
        let tasks = self.tasks.clone();
        let shared = Arc::clone(&self.shared);
        let serve = move || runtime.block_on(uapi::serve(socket, &shared, &tasks));
        let started = thread::Builder::new().name("wireguard-uapi".to_owned()).spawn(serve)?;
        self.threads.push(started);
        Ok(())
    }

    /// Makes the changes in their order. Packets pass meanwhile, and see either none of them or all.
    pub(crate) fn apply(&mut self, delta: &Delta) {
        self.shared.peers.apply(delta);
    }

    pub(crate) fn set_key(&mut self, key: &PrivateKey) {
        let calls = self.shared.peers.set_key(key.secret().clone()).into_iter();
        let mut calls = calls.map(|(packet, to)| (packet.into(), to)).collect();
        self.shared.socket.send_all(&mut calls, || false);
    }

    pub(crate) fn status(&self) -> BTreeMap<PublicKey, PeerStatus> {
        let status = |of: PeerView| {
            let status = PeerStatus {
                endpoint: of.endpoint,
                last_handshake: of.last_handshake,
                received_bytes: of.received_bytes,
                sent_bytes: of.sent_bytes,
            };
            (of.key, status)
        };
        self.shared.views().into_iter().map(status).collect()
    }
}

impl Drop for Userspace {
    fn drop(&mut self) {
        self.tasks.stop("the interface is closed");
        // It cannot be full.
        let _ = rustix::io::write(&self.shared.stop, &1u64.to_ne_bytes());
        // Each is woken, and waits for nothing but a packet's encryption.
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
