//! The device's UDP socket, for IPv6 and IPv4 at once.
//!
//! Packets of one size to one peer are handed to the kernel at once (`UDP_SEGMENT`), and received so
//! (`UDP_GRO`). Where the kernel or the network card refuses that, they go one by one.

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use gotatun::packet::Packet;
use kernel::datagrams::{self, Received};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// What the kernel keeps for a socket each way: as much as passes in some tens of milliseconds, in which a
/// busy machine may not run us.
const BUFFER: usize = 4 << 20;

pub(crate) type Addressed = (Packet, SocketAddr);

/// A socket that waits for nothing.
#[derive(Debug)]
pub(crate) struct Socket {
    socket: UdpSocket,
    port: u16,
    /// Whether sums are made by nobody but us, so that packets cannot go together.
    one_by_one: AtomicBool,
}

impl Socket {
    /// Opens a socket of both families in the namespace of the calling thread; of IPv4 alone where there is no
    /// IPv6. Port 0 takes any.
    pub(crate) fn bind(port: u16) -> io::Result<Self> {
        let socket = match open((Ipv6Addr::UNSPECIFIED, port).into()) {
            Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => {
                open((Ipv4Addr::UNSPECIFIED, port).into())?
            }
            opened => opened?,
        };
        // Who may not do so has the kernel's default.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER);
        let _ = sockopt::set_socket_send_buffer_size_force(&socket, BUFFER);
        // A kernel that does not hands them over one by one.
        let _ = datagrams::coalesce(socket.as_fd());
        let port = socket.local_addr()?.port();
        Ok(Self { socket, port, one_by_one: AtomicBool::new(false) })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Receives what came together; `WouldBlock` if nothing did.
    pub(crate) fn receive(&self, room: &mut [u8]) -> io::Result<Received> {
        datagrams::receive(self.socket.as_fd(), room)
    }

    /// Sends all packets in their order, and leaves none. While the socket takes no more, `wait` is called;
    /// what it does not wait for is lost, as is what nobody can be sent.
    pub(crate) fn send_all(&self, packets: &mut Vec<Addressed>, mut wait: impl FnMut() -> bool) {
        let mut rest = &packets[..];
        while !rest.is_empty() {
            let run = if self.one_by_one.load(Ordering::Relaxed) { 1 } else { run(rest) };
            let (first, others) = rest.split_at(run);
            match self.send_run(first) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && wait() => continue,
                Err(error) if first.len() > 1 => {
                    if Errno::from_io_error(&error) == Some(Errno::IO) {
                        self.one_by_one.store(true, Ordering::Relaxed);
                    }
                    // What is larger than the path is cut by IP, which it is for a packet that goes alone.
                    for packet in first {
                        let _ = self.send_run(std::slice::from_ref(packet));
                    }
                }
                _ => {}
            }
            rest = others;
        }
        packets.clear();
    }

    /// Sends packets to one peer, of one size.
    fn send_run(&self, packets: &[Addressed]) -> io::Result<()> {
        match packets {
            [] => Ok(()),
            [(packet, to)] => self.socket.send_to(packet, to).map(drop),
            [(first, to), ..] => {
                let size = u16::try_from(first.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
                let mut parts = [IoSlice::new(&[]); datagrams::MOST];
                let parts = &mut parts[..packets.len()];
                for (part, (packet, _)) in parts.iter_mut().zip(packets) {
                    *part = IoSlice::new(packet);
                }
                datagrams::send(self.socket.as_fd(), *to, parts, size)
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn open(address: SocketAddr) -> rustix::io::Result<UdpSocket> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    rustix::net::bind(&socket, &address)?;
    Ok(socket.into())
}

/// How many of the packets, from the first on, can go together: those of one size for one peer. One that is
/// smaller could end them, but what goes together is dropped together where the first does not fit.
fn run(packets: &[Addressed]) -> usize {
    let Some((first, to)) = packets.first() else { return 0 };
    let most = (datagrams::LARGEST / first.len().max(1)).clamp(1, datagrams::MOST);
    let is_like = |(packet, other): &&Addressed| other == to && packet.len() == first.len();
    packets.iter().take(most).take_while(is_like).count()
}

#[cfg(test)]
mod tests;
