//! One forwarded connection, between a program on this machine and the server.
//!
//! Contract:
//! - A program that closes its end, or is gone, ends the connection at once: its slot here and in
//!   the server is given back.
//! - One that only writes no more (`nc -N`) still gets its answer. It gives its slot back and may go
//!   on beside the open ones, as long as few do so.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::peer;
use crate::cli::client::{CHUNK, ClientResult, FrameReceiver, FrameSender};
use crate::output::Failure;

/// Connections at once: a browser opens six to a host, a pool of a test some ten; each costs a
/// stream in the server.
pub(super) const AT_ONCE: usize = 64;
/// Connections that only wait for an answer, beside those.
const HALF_CLOSED: usize = 64;
/// How often the kernel is asked whether a program that writes no more has closed: soon at first,
/// since it says so a moment before it has.
const LOOK_FIRST: Duration = Duration::from_millis(1);
const LOOK_LAST: Duration = Duration::from_secs(1);

/// The slots of one listener.
#[derive(Debug)]
pub(super) struct Slots {
    open: Arc<Semaphore>,
    half_closed: Arc<Semaphore>,
}

/// A slot among the open connections, or among those that wait for an answer.
#[derive(Debug)]
pub(super) struct Slot {
    half_closed: Arc<Semaphore>,
    permit: OwnedSemaphorePermit,
}

impl Slots {
    pub(super) fn new() -> Self {
        let [open, half_closed] = [AT_ONCE, HALF_CLOSED].map(|most| Arc::new(Semaphore::new(most)));
        Self { open, half_closed }
    }

    pub(super) fn take(&self) -> Option<Slot> {
        let permit = self.open.clone().try_acquire_owned().ok()?;
        Some(Slot { half_closed: self.half_closed.clone(), permit })
    }
}

impl Slot {
    /// Moves the connection to those that only wait for an answer. False if too many do.
    fn half_close(&mut self) -> bool {
        if Arc::ptr_eq(self.permit.semaphore(), &self.half_closed) {
            return true;
        }
        let permit = self.half_closed.clone().try_acquire_owned();
        permit.map(|permit| self.permit = permit).is_ok()
    }
}

/// Carries bytes until either side ends it.
pub(super) async fn carry(
    mut local: TcpStream,
    mut sender: FrameSender,
    mut receiver: FrameReceiver,
    slot: Slot,
) -> ClientResult<()> {
    local.set_nodelay(true)?;
    let ends = (local.local_addr()?, local.peer_addr()?);
    let (read, write) = local.split();
    // Whether the program was told that no more will come.
    let ended = AtomicBool::new(false);
    let result = tokio::select! {
        result = upload(read, &mut sender, slot, ends, &ended) => result,
        result = download(write, &mut receiver, &ended) => result,
    };
    sender.close(receiver).await;
    Ok(result?)
}

/// Sends what the program writes, until it has closed its end.
async fn upload(
    mut local: ReadHalf<'_>,
    sender: &mut FrameSender,
    mut slot: Slot,
    (here, there): (SocketAddr, SocketAddr),
    ended: &AtomicBool,
) -> Result<(), Failure> {
    loop {
        let mut frame = vec![0; CHUNK];
        // A connection that was reset has ended.
        let Ok(count) = local.read(&mut frame).await else { return Ok(()) };
        frame.truncate(count);
        if count == 0 {
            break;
        }
        sender.send(frame).await?;
    }
    if ended.load(Ordering::Relaxed) || peer::has_closed(here, there) || !slot.half_close() {
        return Ok(());
    }
    // An empty frame says that no more will be written.
    sender.send(Vec::new()).await?;
    let mut look = LOOK_FIRST;
    while !ended.load(Ordering::Relaxed) && !peer::has_closed(here, there) {
        tokio::time::sleep(look).await;
        look = (look * 2).min(LOOK_LAST);
    }
    Ok(())
}

/// Passes on what the server sends, until it has closed its end.
async fn download(
    mut local: WriteHalf<'_>,
    receiver: &mut FrameReceiver,
    ended: &AtomicBool,
) -> Result<(), Failure> {
    while let Some(bytes) = receiver.next().await? {
        // A program that has gone needs no more.
        if bytes.is_empty() {
            ended.store(true, Ordering::Relaxed);
            let _ = local.shutdown().await;
        } else if local.write_all(&bytes).await.is_err() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
