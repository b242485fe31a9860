//! The TUN interface as `gotatun` reads and writes it: as many packets at a time as there are.

use std::io;
use std::sync::Arc;

use gotatun::packet::{Ip, Packet, PacketBufPool};
use gotatun::tun::{IpRecv, IpSend, MtuWatcher};
use kernel::tun::Tun;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// How many packets are read before other work on the same thread has its turn.
const BATCH: usize = 64;

/// One interface, read by one task and written by another.
#[derive(Clone, Debug)]
pub(crate) struct TunQueue {
    tun: Arc<AsyncFd<Tun>>,
    mtu: u16,
}

impl TunQueue {
    /// Must be called in the runtime that will use it.
    pub(crate) fn new(tun: Tun, mtu: u16) -> io::Result<Self> {
        #[expect(
            deprecated,
            reason = "its replacement is unsafe to call; a Tun has one descriptor all its life"
        )]
        let tun = AsyncFd::with_interest(tun, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self { tun: Arc::new(tun), mtu })
    }
}

impl IpSend for TunQueue {
    async fn send(&mut self, packet: Packet<Ip>) -> io::Result<()> {
        let packet = packet.into_bytes();
        self.tun.async_io(Interest::WRITABLE, |tun| tun.write(&packet)).await
    }
}

impl IpRecv for TunQueue {
    async fn recv<'a>(
        &'a mut self,
        pool: &mut PacketBufPool,
    ) -> io::Result<impl Iterator<Item = Packet<Ip>> + Send + 'a> {
        let mut packets = Vec::new();
        loop {
            let mut ready = self.tun.readable().await?;
            while packets.len() < BATCH {
                let mut packet = pool.get();
                match ready.try_io(|tun| tun.get_ref().read(&mut packet)) {
                    Ok(Ok(length)) => {
                        packet.truncate(length);
                        // What is no IP packet goes nowhere.
                        packets.extend(packet.try_into_ip().ok());
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
