//! The TUN interface as `gotatun` reads and writes it: as many packets at a time as there are, and TCP in
//! packets of up to 64 kB.

use std::io;
use std::sync::Arc;

use gotatun::packet::{Ip, Packet, PacketBufPool};
use gotatun::tun::{IpRecv, IpSend, MtuWatcher};
use kernel::tun::{LARGEST, Tun};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use crate::offload::{self, Cut, Joined};

/// How many packets are read before other work on the same thread has its turn.
const BATCH: usize = 64;
/// How many packets wait to be written: a few times what is joined to one. Whoever has more waits.
const WAITING: usize = 256;

/// The two ends of an interface, each for one task. Must be called in the runtime that will use them.
pub(crate) fn ends(tun: Tun, mtu: u16) -> io::Result<(TunWriter, TunReader)> {
    #[expect(
        deprecated,
        reason = "its replacement is unsafe to call; a Tun has one descriptor all its life"
    )]
    let tun = Arc::new(AsyncFd::with_interest(tun, Interest::READABLE | Interest::WRITABLE)?);
    let (queue, waiting) = mpsc::channel(WAITING);
    // It ends with the writer.
    tokio::spawn(write(Arc::clone(&tun), waiting));
    Ok((TunWriter { queue }, TunReader { tun, mtu, room: vec![0; LARGEST].into() }))
}

/// Where packets for the interface are put.
#[derive(Debug)]
pub(crate) struct TunWriter {
    queue: mpsc::Sender<Packet<[u8]>>,
}

impl IpSend for TunWriter {
    async fn send(&mut self, packet: Packet<Ip>) -> io::Result<()> {
        self.queue.send(packet.into_bytes()).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Writes what waits, joined as far as it can be.
async fn write(tun: Arc<AsyncFd<Tun>>, mut waiting: mpsc::Receiver<Packet<[u8]>>) {
    let mut packets = Vec::with_capacity(WAITING);
    let mut joined: Vec<Joined<_>> = Vec::with_capacity(WAITING);
    while waiting.recv_many(&mut packets, WAITING).await > 0 {
        offload::join(packets.drain(..), &mut joined);
        for mut packet in joined.drain(..) {
            let write = |tun: &Tun| packet.write(|offload, parts| tun.write_parts(offload, parts));
            // What the interface does not take is lost, as on any network. That it is gone is what its
            // reader finds.
            let _ = tun.async_io(Interest::WRITABLE, write).await;
        }
    }
}

/// What the interface sends.
#[derive(Debug)]
pub(crate) struct TunReader {
    tun: Arc<AsyncFd<Tun>>,
    mtu: u16,
    /// For one packet of the kernel.
    room: Box<[u8]>,
}

impl IpRecv for TunReader {
    async fn recv<'a>(
        &'a mut self,
        pool: &mut PacketBufPool,
    ) -> io::Result<impl Iterator<Item = Packet<Ip>> + Send + 'a> {
        let mut packets = Vec::new();
        loop {
            let mut ready = self.tun.readable().await?;
            while packets.len() < BATCH {
                match ready.try_io(|tun| tun.get_ref().read(&mut self.room)) {
                    Ok(Ok((offload, length))) => {
                        let packet = &mut self.room[..length];
                        match offload.segments {
                            Some((kind, size)) => {
                                let Some(mut cut) = Cut::new(kind, size, packet) else { continue };
                                packets.extend(filled(pool, |room| cut.next_into(room)));
                            }
                            None if offload::finish(&offload, packet) => {
                                let mut once = Some(packet);
                                packets.extend(filled(pool, |room| {
                                    let packet = once.take()?;
                                    room.get_mut(..packet.len())?.copy_from_slice(packet);
                                    Some(packet.len())
                                }));
                            }
                            None => {}
                        }
                    }
                    Ok(Err(error)) => return Err(error),
                    Err(_would_block) => break,
                }
            }
            if !packets.is_empty() {
                return Ok(packets.into_iter());
            }
        }
    }

    fn mtu(&self) -> MtuWatcher {
        MtuWatcher::new(self.mtu)
    }
}

/// Packets from the pool for as long as they are filled. What is no IP packet goes nowhere.
fn filled(
    pool: &PacketBufPool,
    mut fill: impl FnMut(&mut [u8]) -> Option<usize>,
) -> impl Iterator<Item = Packet<Ip>> {
    let next = move || {
        let mut packet = pool.get();
        let length = fill(&mut packet)?;
        packet.truncate(length);
        Some(packet)
    };
    std::iter::from_fn(next).filter_map(|packet| packet.try_into_ip().ok())
}
