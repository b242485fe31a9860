//! Sockets that speak with addresses that are not this machine's (transparent proxies).
//!
//! Contract: all sockets are of the network namespace of the calling thread and do not block. They need
//! `CAP_NET_ADMIN`. Reading is total: what is no address gives none.

use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Connections that wait to be accepted.
const WAITING: i32 = 64;

/// A datagram, of which the bytes are in the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    pub length: usize,
    pub from: SocketAddr,
    /// To whom it was sent.
    pub to: SocketAddr,
}

/// `mark` is that of the packets it sends; zero is none.
fn socket(at: SocketAddr, kind: SocketType, mark: u32) -> io::Result<OwnedFd> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, kind, flags, None)?;
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    match at {
        SocketAddr::V4(_) => switch_on(&socket, libc::SOL_IP, libc::IP_TRANSPARENT)?,
        SocketAddr::V6(_) => {
            rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
            switch_on(&socket, libc::SOL_IPV6, libc::IPV6_TRANSPARENT)?;
        }
    }
    if mark != 0 {
        set(&socket, libc::SOL_SOCKET, libc::SO_MARK, mark.cast_signed())?;
    }
    rustix::net::bind(&socket, &at)?;
    Ok(socket)
}

fn switch_on(socket: &OwnedFd, level: libc::c_int, option: libc::c_int) -> io::Result<()> {
    set(socket, level, option, 1)
}

fn set(
    socket: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the option is an int, and `value` outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            mem::size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A datagram socket with any address, whose packets have this mark; zero is none.
pub fn udp(at: SocketAddr, mark: u32) -> io::Result<UdpSocket> {
    Ok(socket(at, SocketType::DGRAM, mark)?.into())
}

/// A stream socket with any address, to be connected.
pub fn tcp(at: SocketAddr) -> io::Result<OwnedFd> {
    socket(at, SocketType::STREAM, 0)
}

/// Accepts connections to other addresses; the local address of each is whom the peer meant. What is sent
/// on them has this mark.
pub fn tcp_listener(at: SocketAddr, mark: u32) -> io::Result<TcpListener> {
    let socket = socket(at, SocketType::STREAM, mark)?;
    rustix::net::listen(&socket, WAITING)?;
    Ok(socket.into())
}

/// Receives datagrams for other addresses; [`receive`] says for which.
pub fn udp_listener(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = socket(at, SocketType::DGRAM, 0)?;
    match at {
        SocketAddr::V4(_) => switch_on(&socket, libc::SOL_IP, libc::IP_RECVORIGDSTADDR)?,
        SocketAddr::V6(_) => switch_on(&socket, libc::SOL_IPV6, libc::IPV6_RECVORIGDSTADDR)?,
    }
    Ok(socket.into())
}

/// Receives a datagram of a [`udp_listener`], if there is one: an error of the kind `WouldBlock` says that
/// there is none.
pub fn receive(socket: impl AsFd, into: &mut [u8]) -> io::Result<Datagram> {
    // SAFETY: all-zero structures of these types are valid.
    let (mut name, mut header): (libc::sockaddr_storage, libc::msghdr) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    // Aligned as control messages have to be.
    let mut control = [0u64; 16];
    let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    header.msg_name = (&raw mut name).cast();
    header.msg_namelen = mem::size_of_val(&name) as libc::socklen_t;
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = mem::size_of_val(&control);
    // SAFETY: everything that the header points at has the lengths it says, and outlives the call.
    let length =
        unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    let (family, mut to) = (name.ss_family, None);
    // SAFETY: the kernel has filled the header, whose control buffer is still there.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    while !message.is_null() {
        // SAFETY: the message lies within the control buffer; its data may be unaligned, and is read
        // as such; a socket address fits, because the kernel wrote one for these two kinds.
        unsafe {
            let data = libc::CMSG_DATA(message);
            match ((*message).cmsg_level, (*message).cmsg_type) {
                (libc::SOL_IP, libc::IP_ORIGDSTADDR) => {
                    to = Some(v4(data.cast::<libc::sockaddr_in>().read_unaligned()));
                }
                (libc::SOL_IPV6, libc::IPV6_ORIGDSTADDR) => {
                    to = Some(v6(data.cast::<libc::sockaddr_in6>().read_unaligned()));
                }
                _ => {}
            }
            message = libc::CMSG_NXTHDR(&raw const header, message);
        }
    }
    let name = &raw const name;
    let from = match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: the family says that the storage, which is larger, holds this kind of address.
            let address = unsafe { name.cast::<libc::sockaddr_in>().read() };
            Some(v4(address))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let address = unsafe { name.cast::<libc::sockaddr_in6>().read() };
            Some(v6(address))
        }
        _ => None,
    };
    let (Some(from), Some(to)) = (from, to) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a datagram has no addresses"));
    };
    Ok(Datagram { length, from, to })
}

fn v4(address: libc::sockaddr_in) -> SocketAddr {
    let ip = u32::from_be(address.sin_addr.s_addr).into();
    SocketAddrV4::new(ip, u16::from_be(address.sin_port)).into()
}

fn v6(address: libc::sockaddr_in6) -> SocketAddr {
    let (ip, port) = (address.sin6_addr.s6_addr.into(), u16::from_be(address.sin6_port));
    SocketAddrV6::new(ip, port, 0, address.sin6_scope_id).into()
}

/// An address with a port that the kernel chooses.
pub fn any_port(address: IpAddr) -> SocketAddr {
    SocketAddr::new(address, 0)
}
