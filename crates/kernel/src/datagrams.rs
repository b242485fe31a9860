//! Many datagrams of one size to one address, handed to the kernel at once (`UDP_SEGMENT`): they take one
//! way through its layers together, and are cut at the last, or not at all if the receiver is on the same
//! machine and takes them together.
//!
//! Contract: the call does not wait. A network card that cannot make sums refuses with `EIO`, and a size that
//! does not fit the path with `EINVAL` or `EMSGSIZE`: datagrams are to be sent one by one then.

use std::io::{self, IoSlice};
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::net::addr::SocketAddrArg;

/// How many datagrams go at once at most; the kernel's own limit since there is any.
pub const MOST: usize = 64;
/// How many bytes they have at most: what one packet of IPv4 holds.
pub const LARGEST: usize = 65_507;

/// `UDP_SEGMENT`.
const SEGMENT: libc::c_int = 103;

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

#[cfg(test)]
mod tests;
