//! The socket on which the plugin and the command line ask: one request and one reply a connection.
//!
//! Contract:
//! - Only root and the agent's own user are heard: the socket's mode says so, and the peer's
//!   credentials are looked at again.
//! - At most [`Bounds::connections`] are served at once; one more is told at once to come back.
//! - A request must have arrived within [`Bounds::arrival`], and is not larger than a frame may be.
//! - The socket of an agent that is gone is replaced, at no moment leaving none; that of one that
//!   runs is not.
//! - An agent that ends does not tell anybody to come back: it ends the connection without an answer,
//!   by which the plugin knows that the next agent is the one to ask.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cni::spec::{Code, Error};
use cni::wire::{self, HEADER, Reply, Request};
use stallproof::{Deadline, Stop, Tasks};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tracing::{debug, warn};

/// How much is served at once, and how slowly a request may come.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub connections: usize,
    pub arrival: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            // A burst of 500 pods is 500 of these; each costs a task and a few kilobytes.
            connections: 2048,
            // The plugin writes its request at once. What takes longer is not the plugin.
            arrival: Duration::from_secs(5),
        }
    }
}

/// How long an answer may wait to be read.
const DEPARTURE: Duration = Duration::from_secs(5);
/// After an error of `accept`, which is a lack of file descriptors or of memory.
const PAUSE: Duration = Duration::from_millis(100);

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
    match wire::connect(path, Instant::now() + Duration::from_secs(1)) {
        Err(error) if error.kind() != ErrorKind::TimedOut => {}
        _ => return Err(ListenError::Taken(path.to_owned())),
    }
    bind(path).map_err(|source| ListenError::Io { path: path.to_owned(), source })
}

/// Under another name first: from the moment it can be found, it has its mode.
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
pub async fn serve<H, F>(listener: UnixListener, handle: H, bounds: Bounds, tasks: Tasks)
where
    H: Fn(Request, Option<OwnedFd>) -> F + Send + Sync + 'static,
    F: Future<Output = Reply> + Send + 'static,
{
    let stop = tasks.stopping();
    let handle = Arc::new(handle);
    let places = Arc::new(Semaphore::new(bounds.connections));
    while let Some(accepted) = stop.bound(listener.accept()).await {
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        if let Err(why) = heard(&stream) {
            warn!(why, "a connection was refused");
            continue;
        }
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            refuse(&stream, bounds.connections);
            continue;
        };
        let (handle, stop) = (Arc::clone(&handle), stop.clone());
        tasks.spawn("cni-connection", async move {
            if let Err(error) = exchange(stream, &*handle, bounds.arrival, &stop).await {
                debug!(%error, "a connection broke");
            }
            drop(place);
        });
    }
}

fn heard(stream: &UnixStream) -> Result<(), String> {
    let peer = stream.peer_cred().map_err(|error| error.to_string())?;
    let own = rustix::process::geteuid().as_raw();
    if peer.uid() == 0 || peer.uid() == own {
        return Ok(());
    }
    Err(format!("user {} is neither root nor the agent's own", peer.uid()))
}

/// Without waiting: what does not fit is not said.
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
        return Err(io::Error::other("the agent ends; the next one is to be asked"));
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
