//! The device's UDP sockets.
//!
//! Packets of one size to one peer are handed to the kernel at once (`UDP_SEGMENT`), and received so
//! (`UDP_GRO`, which `gotatun` turns on). Where the kernel or the network card refuses that, they go one by
//! one.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gotatun::packet::Packet;
use gotatun::udp::socket::{UdpSocket, UdpSocketFactory};
use gotatun::udp::{UdpSend, UdpTransportFactory, UdpTransportFactoryParams};
use kernel::datagrams;
use rustix::io::Errno;
use rustix::net::sockopt;
use stallproof::Deadline;
use tokio::io::Interest;

/// How long a port is waited for that the device's own last socket still has: its tasks are told to end,
/// and are not waited for.
const PORT_FREE_WITHIN: Duration = Duration::from_secs(8);
const PORT_RETRY: Duration = Duration::from_millis(2);
/// What the kernel keeps for a socket each way: as much as passes in some tens of milliseconds, in which a
/// busy machine may not run us.
const BUFFER: usize = 4 << 20;

/// Makes the device's sockets.
#[derive(Debug, Default)]
pub(crate) struct Sockets(UdpSocketFactory);

impl UdpTransportFactory for Sockets {
    type Send = UdpSender;
    type Recv = UdpSocket;

    async fn bind(
        &mut self,
        params: &UdpTransportFactoryParams,
    ) -> io::Result<(UdpSender, UdpSocket)> {
        let deadline = Deadline::after(PORT_FREE_WITHIN);
        let (socket, receiver) = loop {
            match self.0.bind(params).await {
                Err(error)
                    if error.kind() == io::ErrorKind::AddrInUse && !deadline.has_passed() =>
                {
                    tokio::time::sleep(PORT_RETRY).await;
                }
                bound => break bound?,
            }
        };
        // Who may not do so has the kernel's default.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER);
        let _ = sockopt::set_socket_send_buffer_size_force(&socket, BUFFER);
        Ok((UdpSender { socket, one_by_one: Arc::default() }, receiver))
    }
}

#[derive(Clone)]
pub(crate) struct UdpSender {
    socket: UdpSocket,
    /// Whether sums are made by nobody but us, so that packets cannot go together.
    one_by_one: Arc<AtomicBool>,
}

type Addressed = (Packet, SocketAddr);

impl UdpSend for UdpSender {
    type SendManyBuf = <UdpSocket as UdpSend>::SendManyBuf;

    async fn send_to(&self, packet: Packet, destination: SocketAddr) -> io::Result<()> {
        self.socket.send_to(packet, destination).await
    }

    fn max_number_of_packets_to_send(&self) -> usize {
        self.socket.max_number_of_packets_to_send()
    }

    async fn send_many_to(
        &self,
        buffer: &mut Self::SendManyBuf,
        packets: &mut Vec<Addressed>,
    ) -> io::Result<()> {
        let mut sent = 0;
        while !self.one_by_one.load(Ordering::Relaxed) && sent < packets.len() {
            let run = run(&packets[sent..]);
            match self.send_run(&packets[sent..sent + run]).await {
                Ok(()) => sent += run,
                // What is larger than the path is cut by IP, which it is for a packet that goes alone.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::IO) => {
                    self.one_by_one.store(true, Ordering::Relaxed);
                }
                Err(_) => {
                    let mut alone: Vec<_> = packets.drain(..sent + run).skip(sent).collect();
                    sent = 0;
                    self.socket.send_many_to(buffer, &mut alone).await?;
                }
            }
        }
        packets.drain(..sent);
        if packets.is_empty() {
            return Ok(());
        }
        self.socket.send_many_to(buffer, packets).await
    }

    fn local_addr(&self) -> io::Result<Option<SocketAddr>> {
        UdpSend::local_addr(&self.socket)
    }

    fn set_fwmark(&self, mark: u32) -> io::Result<()> {
        self.socket.set_fwmark(mark)
    }
}

impl UdpSender {
    /// Sends packets to one peer, of one size.
    async fn send_run(&self, packets: &[Addressed]) -> io::Result<()> {
        let Some(((first, to), socket)) = packets.first().zip(Some(self.socket.socket())) else {
            return Ok(());
        };
        let size = u16::try_from(first.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let send = || {
            let mut parts = [IoSlice::new(&[]); datagrams::MOST];
            let parts = &mut parts[..packets.len()];
            for (part, (packet, _)) in parts.iter_mut().zip(packets) {
                *part = IoSlice::new(packet);
            }
            datagrams::send(socket.as_fd(), *to, parts, size)
        };
        socket.async_io(Interest::WRITABLE, send).await
    }
}

/// How many of the packets, from the first on, can go together: those of one size, so that one which does not
/// fit on the way takes no other with it.
fn run(packets: &[Addressed]) -> usize {
    let Some((first, to)) = packets.first() else { return 0 };
    let most = (datagrams::LARGEST / first.len().max(1)).clamp(1, datagrams::MOST);
    let is_like = |(packet, other): &&Addressed| other == to && packet.len() == first.len();
    packets.iter().take(most).take_while(is_like).count()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use gotatun::packet::PacketBufPool;
    use tokio::net::UdpSocket as Receiver;

    use super::*;

    fn packets(pool: &PacketBufPool, of: &[(usize, SocketAddr)]) -> Vec<Addressed> {
        let packet = |(number, (length, to)): (usize, &(usize, SocketAddr))| {
            let mut packet = pool.get();
            packet.truncate(*length);
            packet.fill(number as u8);
            (packet, *to)
        };
        of.iter().enumerate().map(packet).collect()
    }

    #[test]
    fn what_goes_together_is_of_one_size_and_for_one_peer() {
        let (a, b) = ("192.0.2.1:1".parse().unwrap(), "192.0.2.2:1".parse().unwrap());
        let pool = PacketBufPool::new(1);
        let run = |of: &[(usize, SocketAddr)]| run(&packets(&pool, of));
        assert_eq!(run(&[]), 0);
        assert_eq!(run(&[(100, a), (100, a), (100, b)]), 2);
        assert_eq!(run(&[(100, a), (100, a), (60, a), (100, a)]), 2);
        assert_eq!(run(&[(100, a), (101, a)]), 1);
        assert_eq!(run(&[(100, a); 100]), datagrams::MOST);
        assert_eq!(run(&[(1_452, a); 60]), 45, "what one packet of IP holds");
    }

    #[tokio::test]
    async fn packets_arrive_in_their_order_together_or_one_by_one() {
        let params = UdpTransportFactoryParams { addr: None, port: 0, fwmark: None };
        let receiver = Receiver::bind("127.0.0.1:0").await.unwrap();
        let to = receiver.local_addr().unwrap();
        let pool = PacketBufPool::new(1);
        let (sender, _receives) = Sockets::default().bind(&params).await.unwrap();
        let sizes = [900, 900, 200, 900, 300, 300, 300, 1, 40];
        for one_by_one in [false, true] {
            sender.one_by_one.store(one_by_one, Ordering::Relaxed);
            let mut sent = packets(&pool, &sizes.map(|size| (size, to)));
            sender.send_many_to(&mut Default::default(), &mut sent).await.unwrap();
            assert!(sent.is_empty());
            for (number, size) in sizes.into_iter().enumerate() {
                let mut datagram = [0; 2_000];
                let length = receiver.recv(&mut datagram).await.unwrap();
                assert_eq!((length, datagram[0]), (size, number as u8));
            }
        }
    }
}
