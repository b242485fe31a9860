//! A netlink socket that is read and written as bytes.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{
    Timeout, set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, set_socket_timeout,
};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

/// The receive timeout. The kernel answers during the request, or as soon as the buffer is read, so a
/// longer wait is a fault.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// The most that the kernel puts into one datagram of a listing.
const DATAGRAM: usize = 32 << 10;

/// Opens a socket in the network namespace of the calling thread that listens to `groups`, a bit for each.
pub(crate) fn open(protocol: Protocol, groups: u32) -> io::Result<OwnedFd> {
    let (kind, protocol) = (SocketType::RAW, Some(protocol));
    let family = AddressFamily::NETLINK;
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(ANSWERED_WITHIN))?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

pub(crate) fn buffer() -> Vec<u8> {
    Vec::with_capacity(DATAGRAM)
}

/// Enlarges the receive buffer, beyond the machine's limit if this process may, else up to it.
pub(crate) fn enlarge(socket: &OwnedFd, bytes: usize) -> io::Result<()> {
    if set_socket_recv_buffer_size_force(socket, bytes).is_err() {
        set_socket_recv_buffer_size(socket, bytes)?;
    }
    Ok(())
}

pub(crate) fn send(socket: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    rustix::io::retry_on_intr(|| rustix::net::send(socket, bytes, SendFlags::empty()))?;
    Ok(())
}

pub(crate) fn receive(socket: &OwnedFd, into: &mut Vec<u8>) -> io::Result<()> {
    receive_with(socket, into, RecvFlags::TRUNC)
}

/// Receives without waiting; says whether there was anything.
pub(crate) fn receive_now(socket: &OwnedFd, into: &mut Vec<u8>) -> io::Result<bool> {
    match receive_with(socket, into, RecvFlags::TRUNC | RecvFlags::DONTWAIT) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

fn receive_with(socket: &OwnedFd, into: &mut Vec<u8>, flags: RecvFlags) -> io::Result<()> {
    into.clear();
    let (_, whole) = rustix::io::retry_on_intr(|| {
        rustix::net::recv(socket, rustix::buffer::spare_capacity(into), flags)
    })?;
    if whole > into.len() {
        return Err(io::Error::other("a message was longer than any should be"));
    }
    Ok(())
}

/// Reads an NLMSG_ERROR: success where it acknowledges, else the error.
pub(crate) fn acknowledged(payload: &[u8]) -> io::Result<()> {
    match payload.first_chunk::<4>().map(|code| i32::from_ne_bytes(*code)) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(code.saturating_neg())),
        None => Err(io::Error::other("an answer was cut short")),
    }
}

/// Reads an NLMSG_ERROR where an acknowledgement is no answer either.
pub(crate) fn refusal(payload: &[u8]) -> io::Error {
    let unasked = || io::Error::other("acknowledged instead of answered");
    acknowledged(payload).err().unwrap_or_else(unasked)
}
