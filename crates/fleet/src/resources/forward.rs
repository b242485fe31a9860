//! A connection to a port of a pod, through its API server.
//!
//! Contract:
//! - Each [`forward`] is one connection to one port, with a WebSocket of its own, so that a slow one
//!   holds up no other. It works while it is read or written, and starts no task. Dropping it ends it.
//! - The protocol has no half-close: shutting down the writing side sends a close frame, after which
//!   the reading side ends as soon as the kubelet has received it.
//! - A refusal of the kubelet (nothing listens on the port) is the error of the next read. A connection
//!   whose API server is gone ends within half a minute, by the pings of [`Channels`], as long as it is
//!   read.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::{fmt, io};

use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::core::Request;
use stallproof::{Deadline, sentence};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::tungstenite::Bytes;

use super::channels::{Channels, Lost};
use super::check_segment;
use crate::{Connection, Error};

const DATA: usize = 0;
const ERROR: usize = 1;
/// The largest frame.
const FRAME: usize = 32 * 1024;

/// A connection to a port of a pod.
pub struct Forward {
    channels: Channels,
    /// Each channel begins with a frame that repeats the port.
    begun: [bool; 2],
    /// Received and not yet read.
    unread: Bytes,
    _connection: Connection,
}

/// Connects to a port of a pod. The deadline is for opening the connection.
pub async fn forward(
    connection: &Connection,
    namespace: &str,
    pod: &str,
    port: u16,
    deadline: Deadline,
) -> Result<Forward, Error> {
    check_segment("namespace", namespace)?;
    check_segment("pod", pod)?;
    let pods = Request::new(Pod::url_path(&(), Some(namespace)));
    let opened = connection
        .call("connecting to a port of a pod", deadline, |client| async move {
            let request = pods.portforward(pod, &[port]).map_err(kube::Error::BuildRequest)?;
            client.connect(request).await
        })
        .await?;
    Ok(Forward {
        channels: Channels::new(opened.into_stream()),
        begun: [false; 2],
        unread: Bytes::new(),
        _connection: connection.clone(),
    })
}

impl AsyncRead for Forward {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.unread.is_empty() {
            let Some((channel, bytes)) =
                ready!(this.channels.poll_receive(cx)).map_err(|lost| broken(&lost))?
            else {
                return Poll::Ready(Ok(()));
            };
            let Some(begun) = this.begun.get_mut(usize::from(channel)) else { continue };
            match usize::from(channel) {
                _ if !*begun => *begun = true,
                DATA => this.unread = bytes,
                ERROR if !bytes.is_empty() => {
                    let why = String::from_utf8_lossy(&bytes).into_owned();
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionRefused, why)));
                }
                _ => {}
            }
        }
        let take = this.unread.len().min(buf.remaining());
        buf.put_slice(&this.unread.split_to(take));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Forward {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        // An empty write would send a frame without data.
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(self.channels.poll_ready(cx)).map_err(|lost| broken(&lost))?;
        let frame = &buf[..buf.len().min(FRAME)];
        self.channels.send(DATA as u8, frame).map_err(|lost| broken(&lost))?;
        Poll::Ready(Ok(frame.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.channels.poll_flush(cx).map_err(|lost| broken(&lost))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.channels.poll_close(cx).map_err(|lost| broken(&lost))
    }
}

fn broken(lost: &Lost) -> io::Error {
    let kind = match lost {
        Lost::Silent => io::ErrorKind::TimedOut,
        Lost::Broke(_) => io::ErrorKind::ConnectionReset,
    };
    io::Error::new(kind, sentence(lost))
}

impl fmt::Debug for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forward").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
