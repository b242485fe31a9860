//! WireGuard in this process: `gotatun` on a runtime and threads of its own, over a TUN interface.
//!
//! Contract:
//! - Nothing else runs on its threads, and it runs on no other: packets wait for none of the process' work,
//!   and a flood of packets takes no thread from it.
//! - `gotatun` bounds its queues at 4,000 packets each; what has no room is dropped, as on any network.
//! - Every call here blocks its caller for at most [`ANSWERED_WITHIN`].
//! - The interface is gone when this is dropped or the process ends.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gotatun::device::configure::{DeviceWrite, PeerMut};
use gotatun::device::{Device, DeviceBuilder, Error, Peer as DevicePeer};
use gotatun::x25519;
use ipnet::IpNet;
use ipnetwork::IpNetwork;
use kernel::netns::Namespace;
use kernel::tun::Tun;
use stallproof::Tasks;
use tokio::runtime::{Builder, Runtime};
use tracing::subscriber::NoSubscriber;
use tracing::warn;

use crate::device::DeviceError;
use crate::key::{PrivateKey, PublicKey};
use crate::peer::{Change, Delta, Peer, PeerStatus, Peers};
use crate::tun_queue::{self, TunReader, TunWriter};
use crate::uapi::{self, UapiSocket};
use crate::udp::Sockets;

/// A change is a few map operations under a lock that packets hold for microseconds.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// How many threads encrypt, decrypt, read and write. `gotatun` has four busy tasks.
const THREADS: usize = 4;
/// `gotatun` reads packets into buffers of 4,096 bytes, of which WireGuard takes up to 80.
pub(crate) const LARGEST_MTU: u32 = 4_000;

/// How many peers change before packets have their turn: for each `gotatun` looks at the networks of all.
const CHANGES_AT_ONCE: usize = 16;

type Transports = (Sockets, TunWriter, TunReader);
pub(crate) type UserspaceDevice = Device<Transports>;

pub(crate) struct Userspace {
    /// Taken when it is dropped.
    runtime: Option<Runtime>,
    device: Arc<UserspaceDevice>,
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
        let failed = |error: io::Error| DeviceError::Userspace(Error::IoError(error));
        let mtu = u16::try_from(mtu.min(LARGEST_MTU)).unwrap_or(u16::MAX);
        // Threads are in the namespace of the thread that starts them, and so are their sockets.
        let make = || -> io::Result<_> { Ok((runtime()?, Tun::create(name)?)) };
        let (runtime, tun) = namespace.run_in(make).and_then(|made| made).map_err(failed)?;
        let tasks = Tasks::new("wireguard");
        let secret = key.secret().clone();
        let building = async move {
            let (writer, reader) = tun_queue::ends(tun, mtu).map_err(Error::IoError)?;
            let device = DeviceBuilder::new()
                .with_udp(Sockets::default())
                .with_ip_pair(writer, reader)
                .with_private_key(secret)
                .with_listen_port(port)
                .build()
                .await?;
            // A device without peers does not listen, and one that gets its first does not begin to. To
            // take all peers away makes it begin.
            device.clear_peers().await?;
            Ok(Arc::new(device))
        };
        let device = match inside(&runtime, building) {
            Ok(device) => device,
            Err(error) => {
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let userspace = Self { runtime: Some(runtime), device, tasks };
        if let Err(error) = userspace.serve_uapi(name, socket_directory) {
            let directory = socket_directory.display();
            warn!(%error, %directory, "`wg show` cannot ask this interface");
        }
        Ok(userspace)
    }

    /// Serves the socket that `wg show` asks.
    fn serve_uapi(&self, name: &str, directory: &Path) -> io::Result<()> {
        let Some(runtime) = &self.runtime else { return Ok(()) };
        let _inside = runtime.enter();
        let socket = UapiSocket::bind(directory, name)?;
        let (device, tasks) = (Arc::clone(&self.device), self.tasks.clone());
        runtime.spawn(async move { uapi::serve(socket, &device, &tasks).await });
        Ok(())
    }

    /// Makes the changes in their order. Packets wait while a peer's networks change, and have their turn
    /// after every [`CHANGES_AT_ONCE`].
    pub(crate) fn apply(&mut self, delta: &Delta) -> Result<(), DeviceError> {
        let removed = delta.removed.iter().map(|key| Step::Remove(*key));
        let released = delta.released.iter().map(|(key, kept)| Step::Release(*key, kept));
        let added = delta.added.iter().map(|(key, peer)| Step::Add(*key, peer));
        let changed = delta.changed.iter().map(|(key, change)| Step::Change(*key, change));
        let steps: Vec<_> = removed.chain(released).chain(added).chain(changed).collect();
        for some in steps.chunks(CHANGES_AT_ONCE) {
            let device = &self.device;
            let made = self.call(device.write(async |device| {
                for step in some {
                    step.make(device).await;
                }
            }));
            made?.map_err(DeviceError::Userspace)?;
        }
        Ok(())
    }

    pub(crate) fn set_key(&mut self, key: &PrivateKey, peers: &Peers) -> Result<(), DeviceError> {
        let Some(runtime) = &self.runtime else { return Ok(()) };
        let (device, secret) = (Arc::clone(&self.device), key.secret().clone());
        inside(runtime, async move { device.set_private_key(secret).await })?;
        // Sessions ended with the key. Peers that are silent would not notice, so each is called.
        for key in peers.keys() {
            let (device, key) = (Arc::clone(&self.device), public(*key));
            runtime.spawn(async move {
                // A peer without an endpoint, or one that is away, connects when it comes.
                let _ = tokio::time::timeout(ANSWERED_WITHIN, device.force_handshake(&key)).await;
            });
        }
        Ok(())
    }

    pub(crate) fn status(&mut self) -> Result<BTreeMap<PublicKey, PeerStatus>, DeviceError> {
        let peers = self.call(self.device.peers())?;
        let status = |of: gotatun::device::configure::PeerStats| {
            let status = PeerStatus {
                endpoint: of.peer.endpoint,
                last_handshake: of.stats.last_handshake,
                received_bytes: of.stats.rx_bytes as u64,
                sent_bytes: of.stats.tx_bytes as u64,
            };
            (PublicKey(of.peer.public_key.to_bytes()), status)
        };
        Ok(peers.into_iter().map(status).collect())
    }

    fn call<T>(&self, work: impl Future<Output = T>) -> Result<T, DeviceError> {
        match &self.runtime {
            Some(runtime) => bounded(runtime, work),
            None => Err(DeviceError::TooLate(Duration::ZERO)),
        }
    }
}

/// One part of a [`Delta`].
enum Step<'d> {
    Remove(PublicKey),
    Release(PublicKey, &'d [IpNet]),
    Add(PublicKey, &'d Peer),
    Change(PublicKey, &'d Change),
}

impl Step<'_> {
    async fn make(&self, device: &mut DeviceWrite<'_, Transports>) {
        match self {
            Self::Remove(key) => {
                device.remove_peer(&public(*key)).await;
            }
            Self::Release(key, kept) => {
                let release = |peer: &mut PeerMut| {
                    peer.clear_allowed_ips();
                    peer.add_allowed_ips(kept.iter().map(network));
                };
                device.modify_peer(&public(*key), release).await;
            }
            Self::Add(key, peer) => {
                device.add_peer(device_peer(*key, peer));
            }
            Self::Change(key, Change { allowed_ips, endpoint, keepalive, preshared_key }) => {
                let change = |peer: &mut PeerMut| {
                    if let Some(ips) = allowed_ips {
                        peer.clear_allowed_ips();
                        peer.add_allowed_ips(ips.iter().map(network));
                    }
                    if endpoint.is_some() {
                        peer.set_endpoint(*endpoint);
                    }
                    if let Some(seconds) = keepalive {
                        peer.set_keepalive(*seconds);
                    }
                    if let Some(key) = preshared_key {
                        peer.set_preshared_key(key.as_ref().map(|key| key.0));
                    }
                };
                device.modify_peer(&public(*key), change).await;
            }
        }
    }
}

impl Drop for Userspace {
    fn drop(&mut self) {
        self.tasks.stop("the interface is closed");
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn bounded<T>(runtime: &Runtime, work: impl Future<Output = T>) -> Result<T, DeviceError> {
    let bounded = async { tokio::time::timeout(ANSWERED_WITHIN, work).await };
    // The library has a line for each peer that comes or goes.
    let quiet = || runtime.block_on(bounded);
    let done = tracing::subscriber::with_default(NoSubscriber::new(), quiet);
    done.map_err(|_| DeviceError::TooLate(ANSWERED_WITHIN))
}

/// Runs work that opens sockets: on a thread of the runtime, which is in the interface's namespace.
fn inside<T: Send + 'static>(
    runtime: &Runtime,
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, DeviceError> {
    let done = bounded(runtime, runtime.spawn(work))?;
    done.unwrap_or_else(|broken| Err(Error::IoError(io::Error::other(broken))))
        .map_err(DeviceError::Userspace)
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(THREADS)
        .max_blocking_threads(1)
        .thread_name("wireguard")
        // The library logs some faults once a packet; a flood of packets must be none of the log.
        .on_thread_start(|| std::mem::forget(tracing::subscriber::set_default(NoSubscriber::new())))
        .enable_all()
        .build()
}

fn public(key: PublicKey) -> x25519::PublicKey {
    key.0.into()
}

fn network(network: &IpNet) -> IpNetwork {
    match network.trunc() {
        IpNet::V4(it) => IpNetwork::new(it.addr().into(), it.prefix_len()),
        IpNet::V6(it) => IpNetwork::new(it.addr().into(), it.prefix_len()),
    }
    .expect("an IpNet's prefix fits its address")
}

fn device_peer(key: PublicKey, peer: &Peer) -> DevicePeer {
    let mut made = DevicePeer::new(public(key));
    made.endpoint = peer.endpoint;
    made.allowed_ips = peer.allowed_ips.iter().map(network).collect();
    made.preshared_key = peer.preshared_key.as_ref().map(|key| key.0);
    made.keepalive = peer.keepalive;
    made
}
