//! Many datagrams of one size to or from one address in one call. Those that are sent (`UDP_SEGMENT`) take one
//! way through the kernel's layers together, and are cut at the last, or not at all if the receiver is on the
//! same machine and takes them together (`UDP_GRO`).
//!
//! Contract: no call waits. A network card that cannot make sums refuses with `EIO`, and a size that does not
//! fit the path with `EINVAL` or `EMSGSIZE`: datagrams are to be sent one by one then.

use std::io::{self, IoSlice};
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::net::addr::SocketAddrArg;

/// How many datagrams go at once at most; the kernel's own limit since there is any.
pub const MOST: usize = 64;
/// How many bytes they have at most: what one packet of IPv4 holds.
pub const LARGEST: usize = 65_507;

/// `UDP_SEGMENT`.
const SEGMENT: libc::c_int = 103;
/// `UDP_GRO`.
const COALESCE: libc::c_int = 104;

/// `struct cmsghdr` with the size of a datagram.
#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    size: u16,
    /// Headers are aligned.
    rest: [u8; 6],
}

/// Sends what `parts` have, cut into datagrams of this size; the last may be smaller.
pub fn send(
    socket: BorrowedFd<'_>,
    to: SocketAddr,
    parts: &[IoSlice<'_>],
    size: u16,
) -> io::Result<()> {
    let mut control = Control {
        header: libc::cmsghdr {
            cmsg_len: mem::offset_of!(Control, size) + mem::size_of::<u16>(),
            cmsg_level: libc::SOL_UDP,
            cmsg_type: SEGMENT,
        },
        size,
        rest: [0; 6],
    };
    let mut sent = |address: *const libc::c_void, length: libc::socklen_t| {
        let message = libc::msghdr {
            msg_name: address.cast_mut(),
            msg_namelen: length,
            // An `IoSlice` is a `struct iovec`, by its documentation.
            msg_iov: parts.as_ptr().cast_mut().cast(),
            msg_iovlen: parts.len(),
            msg_control: (&raw mut control).cast(),
            msg_controllen: mem::size_of::<Control>(),
            msg_flags: 0,
        };
        // SAFETY: the kernel reads the address, the parts and the control message, whose lengths are said and
        // which outlive the call; it writes to none of them.
        unsafe {
            libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
        }
    };
    // SAFETY: the pointer is used within the call alone.
    let sent = unsafe { to.with_sockaddr(|address, length| sent(address.cast(), length)) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Datagrams that came together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    pub from: SocketAddr,
    /// How many bytes they have together.
    pub length: usize,
    /// How many bytes each has; the last may have fewer.
    pub size: usize,
}

/// Has the kernel hand over datagrams of one sender together.
pub fn coalesce(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the kernel reads one number, whose size is said and which outlives the call.
    let set = unsafe {
        let length = mem::size_of_val(&on) as libc::socklen_t;
        let value = (&raw const on).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, COALESCE, value, length)
    };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `struct cmsghdr` with the size that the kernel says, which is a number of four bytes.
#[repr(C)]
struct SizeControl {
    header: libc::cmsghdr,
    size: libc::c_int,
    /// Headers are aligned.
    rest: [u8; 4],
}

/// Receives datagrams of one sender; `WouldBlock` if there are none. What does not fit is lost.
pub fn receive(socket: BorrowedFd<'_>, room: &mut [u8]) -> io::Result<Received> {
    // SAFETY: both are plain numbers, for which zero is a value.
    let (mut address, mut control) =
        unsafe { mem::zeroed::<(libc::sockaddr_storage, SizeControl)>() };
    let mut part = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    let mut message = libc::msghdr {
        msg_name: (&raw mut address).cast(),
        msg_namelen: mem::size_of_val(&address) as libc::socklen_t,
        msg_iov: &raw mut part,
        msg_iovlen: 1,
        msg_control: (&raw mut control).cast(),
        msg_controllen: mem::size_of_val(&control),
        msg_flags: 0,
    };
    // SAFETY: the kernel writes to the address, the part and the control message, whose lengths are said and
    // which outlive the call.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    let is_size = message.msg_controllen >= mem::offset_of!(SizeControl, rest)
        && control.header.cmsg_level == libc::SOL_UDP
        && control.header.cmsg_type == COALESCE;
    let size = usize::try_from(control.size).ok().filter(|size| is_size && *size > 0);
    let from = sender(&address).ok_or(io::ErrorKind::InvalidData)?;
    Ok(Received { from, length, size: size.unwrap_or(length) })
}

/// Reads an address; one of IPv4 is written as one, whatever the socket's family is.
fn sender(address: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(address.ss_family) {
        libc::AF_INET => {
            // SAFETY: a storage has room for any address, and its family says that it is this one.
            let it = unsafe { &*(&raw const *address).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(it.sin_addr.s_addr.to_ne_bytes());
            Some((ip, u16::from_be(it.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let it = unsafe { &*(&raw const *address).cast::<libc::sockaddr_in6>() };
            let (ip, port) = (Ipv6Addr::from(it.sin6_addr.s6_addr), u16::from_be(it.sin6_port));
            Some(match ip.to_ipv4_mapped() {
                Some(ip) => (ip, port).into(),
                // Addresses of one link are of no use without that link.
                None => SocketAddrV6::new(ip, port, 0, it.sin6_scope_id).into(),
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
