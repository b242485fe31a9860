//! The socket on which the plugin and the command line ask: one request and one reply a connection.
//!
//! Contract:
//! - Only root and the agent's own user are served: the socket's mode says so, and the peer's
//!   credentials are checked again.
//! - At most [`ServerLimits::connections`] are served at once; one more is asked at once to come back.
//! - A request must have arrived within [`ServerLimits::arrival`], and is not larger than a frame may be.
//! - The socket of an agent that is gone is replaced, and at no moment is there none; that of a running
//!   agent is not.
//! - An agent that ends asks nobody to come back: it ends the connection without a reply, by which the
//!   plugin knows that the next agent is the one to ask.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cni::spec::{Code, Error};
use cni::wire::{self, HEADER, Reply, Request};
use stallproof::accept::{Connection, ConnectionLimits, accept};
use stallproof::{Deadline, Stop, Tasks};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::{UnixListener, UnixStream};
use tracing::{debug, warn};

#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// How many connections are served at once.
    pub connections: usize,
    /// How long a request may take to arrive.
    pub arrival: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            // A burst of 500 pods is 500 connections; each costs a task and a few kilobytes.
            connections: 2048,
            // The plugin writes its request at once. A slower caller is not the plugin.
            arrival: Duration::from_secs(5),
        }
    }
}

/// How long a reply may wait to be read.
const DEPARTURE: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("another agent listens on {}; stop it, or choose another socket with --net-socket", .0.display())]
    Taken(PathBuf),
    #[error("the socket {} cannot be made", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Takes the socket. Needs the runtime that will serve it.
pub fn listen(path: &Path) -> Result<UnixListener, ListenError> {
    match wire::dial(path, Instant::now() + Duration::from_secs(1)) {
        Err(error) if error.kind() != ErrorKind::TimedOut => {}
        _ => return Err(ListenError::Taken(path.to_owned())),
    }
    bind(path).map_err(|source| ListenError::Io { path: path.to_owned(), source })
}

/// Binds under another name first: from the moment the socket can be found, it has its mode.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let mut name = path.file_name().ok_or(ErrorKind::InvalidInput)?.to_owned();
    name.push(".new");
    let new = dir.join(name);
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&new)?;
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&new, path)?;
    Ok(listener)
}

/// Serves until `tasks` stops; then nothing more is accepted, and what is being served may finish.
pub async fn serve<H, F>(listener: UnixListener, handle: H, limits: ServerLimits, tasks: Tasks)
where
    H: Fn(Request, Option<OwnedFd>) -> F + Send + Sync + 'static,
    F: Future<Output = Reply> + Send + 'static,
{
    let handle = Arc::new(handle);
    let serve = |connection: Connection<UnixStream>| {
        let handle = Arc::clone(&handle);
        async move {
            let Connection { stream, place, stop, .. } = connection;
            if let Err(why) = check_peer(&stream) {
                return warn!(why, "a connection was refused");
            }
            if let Err(error) = exchange(stream, &*handle, limits.arrival, &stop).await {
                debug!(%error, "a connection broke");
            }
            drop(place);
        }
    };
    let refuse = |stream: UnixStream| refuse(&stream, limits.connections);
    let connections = ConnectionLimits::total(limits.connections);
    accept(listener, "cni-connection", connections, &tasks, serve, refuse).await;
}

fn check_peer(stream: &UnixStream) -> Result<(), String> {
    let peer = stream.peer_cred().map_err(|error| error.to_string())?;
    let own = rustix::process::geteuid().as_raw();
    if peer.uid() == 0 || peer.uid() == own {
        return Ok(());
    }
    Err(format!("user {} is neither root nor the agent's own", peer.uid()))
}

/// Replies without waiting: what does not fit into the socket's buffer is not sent.
fn refuse(stream: &UnixStream, served: usize) {
    let msg = format!("{served} requests are being served, and more cannot be");
    let error = Error::new(Code::TryAgainLater, msg).details("the runtime tries again");
    if let Ok(frame) = wire::frame(&Reply::Failed(error)) {
        let _ = stream.try_write(&frame);
    }
}

async fn exchange<F: Future<Output = Reply>>(
    mut stream: UnixStream,
    handle: &(impl Fn(Request, Option<OwnedFd>) -> F + Sync),
    arrival: Duration,
    stop: &Stop,
) -> io::Result<()> {
    let arrived = Deadline::after(arrival).bound(receive(&stream)).await;
    let (request, descriptor) = arrived.map_err(|_| io::Error::from(ErrorKind::TimedOut))??;
    let reply = handle(request, descriptor).await;
    if stop.is_stopped() && matches!(&reply, Reply::Failed(e) if e.code == Code::TryAgainLater) {
        return Err(io::Error::other("the agent ends; the next agent is the one to ask"));
    }
    let frame = match wire::frame(&reply) {
        Ok(frame) => frame,
        // A listing that outgrew a frame.
        Err(error) => wire::frame(&Reply::Failed(Error::new(Code::Io, error.to_string())))?,
    };
    let written = Deadline::after(DEPARTURE).bound(stream.write_all(&frame)).await;
    written.map_err(|_| io::Error::from(ErrorKind::TimedOut))?
}

async fn receive(stream: &UnixStream) -> io::Result<(Request, Option<OwnedFd>)> {
    let mut descriptor = None;
    let mut header = [0; HEADER];
    fill(stream, &mut header, &mut descriptor).await?;
    let mut body = vec![0; wire::length(header)?];
    fill(stream, &mut body, &mut descriptor).await?;
    Ok((wire::parse(&body)?, descriptor))
}

async fn fill(
    stream: &UnixStream,
    mut buffer: &mut [u8],
    descriptor: &mut Option<OwnedFd>,
) -> io::Result<()> {
    while !buffer.is_empty() {
        let read = || wire::receive(stream.as_fd(), buffer);
        let (read, beside) = stream.async_io(Interest::READABLE, read).await?;
        if read == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        *descriptor = beside.or(descriptor.take());
        buffer = &mut buffer[read..];
    }
    Ok(())
}

#[cfg(test)]
mod tests;
