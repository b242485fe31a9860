//! A stranger's connection, read no faster than enrolling takes.
//!
//! Frames of HTTP/2 are small and each takes a core's time: whoever may send them at the speed of the
//! network has the workers to itself. Contract: of the stream [`AT_ONCE`] bytes are read as they come, and
//! then [`EACH`] bytes every [`EVERY`]; what is written is not held up.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// More than a request to enrol has.
const AT_ONCE: usize = 16 << 10;
const EACH: usize = 256;
const EVERY: Duration = Duration::from_millis(250);

pub(super) struct Paced<S> {
    stream: S,
    /// How many bytes may be read before `more`.
    left: usize,
    more: Pin<Box<Sleep>>,
}

impl<S> Paced<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, left: AT_ONCE, more: Box::pin(sleep(EVERY)) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.left == 0 {
            ready!(this.more.as_mut().poll(cx));
            this.left = EACH;
            this.more.as_mut().reset(Instant::now() + EVERY);
        }
        let most = this.left.min(buf.remaining());
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(most));
        ready!(Pin::new(&mut this.stream).poll_read(cx, &mut part))?;
        let read = part.filled().len();
        this.left -= read;
        buf.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
