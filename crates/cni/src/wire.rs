//! The protocol between the plugin or the command line and the agent: one request and one reply per
//! connection.
//!
//! A frame is a length (four bytes, little-endian) and that much JSON, [`LARGEST`] at most. The
//! container's network namespace travels beside the request as a file descriptor, so the agent
//! needs no path to it, and nobody can change a path under it.

use std::fmt;
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

/// CNI's own key of an attachment: one interface of one container.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AttachmentKey {
    pub container: String,
    pub ifname: String,
}

impl fmt::Display for AttachmentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.container, self.ifname)
    }
}

/// The pod that a Kubernetes runtime names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// How long the caller waits for the reply.
    pub wait_ms: u64,
    #[serde(rename = "ask")]
    pub operation: Operation,
}

/// What the agent is asked to do. The JSON names are older than the Rust names, and stay: a node's
/// plugin and agent are replaced one after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Operation {
    /// The network namespace's descriptor comes with it.
    Add(AddRequest),
    #[serde(rename = "delete")]
    Del {
        #[serde(rename = "name")]
        key: AttachmentKey,
        network: String,
    },
    /// The network namespace's descriptor comes with it; the attachment must have these `addresses`.
    Check {
        #[serde(rename = "name")]
        key: AttachmentKey,
        network: String,
        addresses: Vec<IpAddr>,
    },
    /// Every attachment of `network` that is not `valid` is to be removed.
    #[serde(rename = "collect")]
    Gc {
        network: String,
        valid: Vec<AttachmentKey>,
    },
    Status,
    Show(Show),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddRequest {
    #[serde(rename = "name")]
    pub key: AttachmentKey,
    /// The `name` of the network configuration.
    pub network: String,
    /// The path by which the runtime reaches the network namespace.
    pub netns: String,
    pub pod: Option<Pod>,
    /// The pool that the network configuration names; it goes before the namespace's choice.
    pub pool: Option<String>,
    /// What the pod, or whoever runs it, chose itself.
    #[serde(default, skip_serializing_if = "Fixed::is_none")]
    pub fixed: Fixed,
}

/// Addresses that are chosen beforehand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fixed {
    /// At most one of each family; none: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// The hardware address of the pod's interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<[u8; 6]>,
}

impl Fixed {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The listings of `fairlead net`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Show {
    Pools,
    Blocks,
    Addresses,
    /// Everything on this node that is not as it should be.
    Faults,
    /// Egresses, and who of this node uses them.
    Egresses,
    /// The encrypted ways from this node to the others.
    Nodes,
    /// The way from this node to the one of that name, looked at with packets.
    Towards(String),
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
    /// Makes a request whose caller waits until `deadline`.
    pub fn within(deadline: Instant, operation: Operation) -> Self {
        let mut request = Self { wait_ms: 0, operation };
        request.wait_until(deadline);
        request
    }

    /// Sets anew how long the caller waits.
    pub fn wait_until(&mut self, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now());
        self.wait_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
    }

    pub fn wait(&self) -> Duration {
        Duration::from_millis(self.wait_ms)
    }
}

/// Sends a request to the agent and waits for its reply until `deadline`, then fails with `TimedOut`.
/// Blocks.
pub fn call(
    socket: &Path,
    request: &Request,
    namespace: Option<BorrowedFd<'_>>,
    deadline: Instant,
) -> io::Result<Reply> {
    let mut stream = dial(socket, deadline)?;
    let frame = frame(request)?;
    match send_all(&mut stream, &frame, namespace, deadline) {
        // An agent that refuses at once replies without reading the request.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        sent => sent?,
    }
    let mut header = [0; HEADER];
    fill(&mut stream, &mut header, deadline)?;
    let mut body = vec![0; length(header)?];
    fill(&mut stream, &mut body, deadline)?;
    parse(&body)
}

/// Encodes `message` as a frame.
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

/// Returns the length that a header announces, unless no frame is that long.
pub fn length(header: [u8; HEADER]) -> io::Result<usize> {
    let length = u32::from_le_bytes(header) as usize;
    if length > LARGEST { Err(too_large(length)) } else { Ok(length) }
}

pub fn parse<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    serde_json::from_slice(body).map_err(|e| io::Error::new(ErrorKind::InvalidData, e))
}

/// Reads the bytes that have arrived, and the descriptor beside them if there is one; of several, one
/// is kept and the kernel closes the others.
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
    let sent = send(stream.as_fd(), frame, beside).map_err(timed_out)?;
    let mut rest = &frame[sent..];
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        let sent = stream.write(rest).map_err(timed_out)?;
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

/// Opens a connection to the agent's socket. The standard library's `connect` waits for ever when an
/// agent is stuck with a full backlog; the kernel bounds this one by the send timeout.
pub fn dial(path: &Path, deadline: Instant) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(left(deadline)?))?;
    rustix::net::connect(&socket, &address).map_err(|e| timed_out(e.into()))?;
    Ok(UnixStream::from(socket))
}

fn fill(stream: &mut UnixStream, mut buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !buffer.is_empty() {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => buffer = &mut buffer[read..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(timed_out(error)),
        }
    }
    Ok(())
}

/// Returns the time left; never zero, which a socket would take for "no limit".
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(ErrorKind::TimedOut.into())
    } else {
        Ok(left.max(Duration::from_millis(1)))
    }
}

/// Turns "would block", which is how a socket's timeout shows, into `TimedOut`.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::WouldBlock { ErrorKind::TimedOut.into() } else { error }
}

fn too_large(length: usize) -> io::Error {
    let message = format!("a message of {length} bytes is longer than any can be ({LARGEST})");
    io::Error::new(ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests;
