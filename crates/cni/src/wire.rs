//! What the plugin, the command line and the daemon say to each other: one request and one reply per
//! connection.
//!
//! A frame is its length (four bytes, little-endian) and that much JSON, [`LARGEST`] at most. The
//! container's network namespace travels beside the request as a file descriptor, so the daemon
//! needs no path to it, and a path cannot be changed under it.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::spec::{Error, Success};

/// The largest frame: a GC that names ten thousand attachments fits.
pub const LARGEST: usize = 1 << 20;
/// The length in front of a frame.
pub const HEADER: usize = 4;

/// Which attachment: one interface of one container.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Name {
    pub container: String,
    pub ifname: String,
}

/// The pod that a Kubernetes runtime names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// For how long the answer is worth having.
    pub wait_ms: u64,
    pub ask: Ask,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ask {
    /// The namespace's descriptor comes with it.
    Add {
        name: Name,
        network: String,
        netns: String,
        pod: Option<Pod>,
        pool: Option<String>,
    },
    Delete {
        name: Name,
        network: String,
    },
    /// The namespace's descriptor comes with it; `addresses` are those that it must have.
    Check {
        name: Name,
        network: String,
        addresses: Vec<IpAddr>,
    },
    /// All attachments of `network` but the `valid` ones are to go.
    Collect {
        network: String,
        valid: Vec<Name>,
    },
    Status,
    Show(Show),
}

/// What the command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Show {
    Pools,
    Blocks,
    Addresses,
    /// What is not as it should be on this node.
    Faults,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reply {
    Added(Success),
    Done,
    Shown(serde_json::Value),
    Failed(Error),
}

impl Request {
    /// With what is left until `deadline`.
    pub fn within(deadline: Instant, ask: Ask) -> Self {
        let mut request = Self { wait_ms: 0, ask };
        request.wait_until(deadline);
        request
    }

    /// Says anew how long the answer is worth having.
    pub fn wait_until(&mut self, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now());
        self.wait_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
    }

    pub fn wait(&self) -> Duration {
        Duration::from_millis(self.wait_ms)
    }
}

/// Asks the daemon and waits for its answer until `deadline`, then fails with `TimedOut`. Blocks.
pub fn call(
    socket: &Path,
    request: &Request,
    namespace: Option<BorrowedFd<'_>>,
    deadline: Instant,
) -> io::Result<Reply> {
    let mut stream = connect(socket, deadline)?;
    let frame = frame(request)?;
    match send_all(&mut stream, &frame, namespace, deadline) {
        // A daemon that refuses at once answers without listening.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        sent => sent?,
    }
    let mut header = [0; HEADER];
    fill(&mut stream, &mut header, deadline)?;
    let mut body = vec![0; length(header)?];
    fill(&mut stream, &mut body, deadline)?;
    parse(&body)
}

/// A frame around `message`.
pub fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; HEADER];
    serde_json::to_writer(&mut frame, message)?;
    let length = frame.len() - HEADER;
    if length > LARGEST {
        return Err(too_large(length));
    }
    frame[..HEADER].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(frame)
}

/// The length that a header announces, unless no frame is that long.
pub fn length(header: [u8; HEADER]) -> io::Result<usize> {
    let length = u32::from_le_bytes(header) as usize;
    if length > LARGEST { Err(too_large(length)) } else { Ok(length) }
}

pub fn parse<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    serde_json::from_slice(body).map_err(|e| io::Error::new(ErrorKind::InvalidData, e))
}

/// Reads what has come, and the descriptor beside it if there is one; of several, one is kept and the
/// kernel closes the others.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(buffer)];
    let read = rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut kept = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            kept = descriptors.last().or(kept);
        }
    }
    Ok((read.bytes, kept))
}

fn send_all(
    stream: &mut UnixStream,
    frame: &[u8],
    beside: Option<BorrowedFd<'_>>,
    deadline: Instant,
) -> io::Result<()> {
    let sent = send(stream.as_fd(), frame, beside).map_err(in_time)?;
    let mut rest = &frame[sent..];
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        let sent = stream.write(rest).map_err(in_time)?;
        rest = &rest[sent..];
    }
    Ok(())
}

fn send(socket: BorrowedFd<'_>, bytes: &[u8], beside: Option<BorrowedFd<'_>>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = beside.into_iter().collect();
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let parts = [IoSlice::new(bytes)];
    Ok(rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL)?)
}

/// The standard library's `connect` waits for ever when a daemon is stuck with a full backlog; the
/// kernel bounds it by the send timeout.
pub fn connect(path: &Path, deadline: Instant) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(left(deadline)?))?;
    rustix::net::connect(&socket, &address).map_err(|e| in_time(e.into()))?;
    Ok(UnixStream::from(socket))
}

fn fill(stream: &mut UnixStream, mut buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !buffer.is_empty() {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => buffer = &mut buffer[read..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(in_time(error)),
        }
    }
    Ok(())
}

/// What is left; never zero, which a socket would take for "no limit".
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(ErrorKind::TimedOut.into())
    } else {
        Ok(left.max(Duration::from_millis(1)))
    }
}

/// A socket's timeout shows as "would block".
fn in_time(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::WouldBlock { ErrorKind::TimedOut.into() } else { error }
}

fn too_large(length: usize) -> io::Error {
    let message = format!("a message of {length} bytes is longer than any can be ({LARGEST})");
    io::Error::new(ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests;
