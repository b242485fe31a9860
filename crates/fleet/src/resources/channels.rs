//! `Channels`: the WebSocket of exec and port-forward, which has numbered channels.
//!
//! Contract:
//! - It works while it is polled, in both directions at once, and starts no task. Dropping it closes the
//!   connection.
//! - A peer that does not answer is [`Lost`] within [`PING_EVERY`] + [`ANSWER_WITHIN`], also when nothing
//!   is sent. Every message counts as an answer. There is one exception: an API server does not read,
//!   and so does not answer, while the process in the pod does not read its input. So a peer that was
//!   sent more than [`UNREAD`] bytes since its last message is lost only when TCP gives up.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::{Sink, Stream};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_tungstenite::tungstenite::{self, Bytes, Message};

pub(crate) const PING_EVERY: Duration = Duration::from_secs(10);
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// The buffer of a terminal for a program that does not read.
const UNREAD: usize = 4096;

/// A WebSocket over any transport.
pub(crate) trait Socket:
    Stream<Item = Result<Message, tungstenite::Error>>
    + Sink<Message, Error = tungstenite::Error>
    + Send
{
}

impl<T> Socket for T where
    T: Stream<Item = Result<Message, tungstenite::Error>>
        + Sink<Message, Error = tungstenite::Error>
        + Send
{
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Lost {
    #[error("the connection broke")]
    Broke(#[source] Box<tungstenite::Error>),
    #[error("nothing was heard for {} s", ANSWER_WITHIN.as_secs())]
    Silent,
}

impl From<tungstenite::Error> for Lost {
    fn from(error: tungstenite::Error) -> Self {
        Self::Broke(Box::new(error))
    }
}

pub(crate) struct Channels {
    socket: Pin<Box<dyn Socket>>,
    tick: Interval,
    /// When the first ping since the last message, or our close frame, was sent.
    asked: Option<Instant>,
    sent_since_heard: usize,
    /// Whether our close frame was sent, after which nothing more may be sent.
    closing: bool,
}

impl Channels {
    pub(crate) fn new(socket: impl Socket + 'static) -> Self {
        let mut tick = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { socket: Box::pin(socket), tick, asked: None, sent_since_heard: 0, closing: false }
    }

    /// Receives the next message with its channel; `None` once the peer has closed.
    pub(crate) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<(u8, Bytes)>, Lost>> {
        // Messages are read first, so that a late poll does not take the peer for silent.
        while let Poll::Ready(next) = self.socket.as_mut().poll_next(cx) {
            let Some(message) = next.transpose()? else { return Poll::Ready(Ok(None)) };
            // After our close frame a message is not the answer yet, but a sign of life.
            self.asked = self.closing.then(Instant::now);
            self.sent_since_heard = 0;
            match message {
                Message::Binary(mut bytes) if !bytes.is_empty() => {
                    let channel = bytes.split_to(1)[0];
                    return Poll::Ready(Ok(Some((channel, bytes))));
                }
                Message::Close(_) => return Poll::Ready(Ok(None)),
                _ => {}
            }
        }
        while self.tick.poll_tick(cx).is_ready() {
            let silent = self.asked.is_some_and(|asked| asked.elapsed() >= ANSWER_WITHIN);
            if silent && self.sent_since_heard <= UNREAD {
                return Poll::Ready(Err(Lost::Silent));
            }
            // Without room for a ping there is enough that the peer has not answered.
            if !self.closing
                && let Poll::Ready(room) = self.socket.as_mut().poll_ready(cx)
            {
                room?;
                self.socket.as_mut().start_send(Message::Ping(Bytes::new()))?;
                self.asked.get_or_insert_with(Instant::now);
            }
        }
        // Sends pings, and the answers to the peer's pings.
        if !self.closing
            && let Poll::Ready(Err(error)) = self.socket.as_mut().poll_flush(cx)
        {
            return Poll::Ready(Err(error.into()));
        }
        Poll::Pending
    }

    /// Whether there is room for one [`send`](Self::send).
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        Poll::Ready(Ok(ready!(self.socket.as_mut().poll_ready(cx))?))
    }

    pub(crate) fn send(&mut self, channel: u8, bytes: &[u8]) -> Result<(), Lost> {
        let mut frame = Vec::with_capacity(1 + bytes.len());
        frame.push(channel);
        frame.extend_from_slice(bytes);
        self.sent_since_heard = self.sent_since_heard.saturating_add(bytes.len());
        Ok(self.socket.as_mut().start_send(Message::binary(frame))?)
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        Poll::Ready(Ok(ready!(self.socket.as_mut().poll_flush(cx))?))
    }

    /// Sends a close frame. Messages that are under way can still be received.
    pub(crate) fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        self.closing = true;
        self.asked.get_or_insert_with(Instant::now);
        Poll::Ready(Ok(ready!(self.socket.as_mut().poll_close(cx))?))
    }
}

#[cfg(test)]
pub(super) mod tests;
