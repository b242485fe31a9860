//! `Channels`: the WebSocket on which an API server carries exec and port-forward, with numbered
//! channels in it.
//!
//! Contract:
//! - It works while it is polled, in both directions at once, and starts no task; dropped, the
//!   connection is closed.
//! - A peer that does not answer is [`Lost`] within [`PING_EVERY`] + [`ANSWER_WITHIN`], also when
//!   nobody has anything to say. Anything heard counts as an answer. One exception: an API server
//!   reads no further, and so answers nothing, while the process in the pod does not take what it was
//!   sent; so a peer that was sent more than [`UNREAD`] bytes since it was last heard is given the
//!   benefit of the doubt, and TCP's own patience ends it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::{Sink, Stream};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_tungstenite::tungstenite::{self, Bytes, Message};

pub(crate) const PING_EVERY: Duration = Duration::from_secs(10);
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// What a terminal holds for a program that does not read.
const UNREAD: usize = 4096;

/// A WebSocket, whatever it runs over.
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
    /// Since when an answer is due: to the first ping since anything was heard, or to our goodbye.
    asked: Option<Instant>,
    sent_since_heard: usize,
    /// We have said goodbye, after which one says nothing more.
    closing: bool,
}

impl Channels {
    pub(crate) fn new(socket: impl Socket + 'static) -> Self {
        let mut tick = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { socket: Box::pin(socket), tick, asked: None, sent_since_heard: 0, closing: false }
    }

    /// What came, and on which channel; `None` once the peer has closed.
    pub(crate) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<(u8, Bytes)>, Lost>> {
        // First what is there to be heard: who polls late must not think the peer silent.
        while let Poll::Ready(next) = self.socket.as_mut().poll_next(cx) {
            let Some(message) = next.transpose()? else { return Poll::Ready(Ok(None)) };
            // After our goodbye, what comes is not the answer yet, but a sign of life.
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
            // No room for a ping means that there is plenty unanswered already.
            if !self.closing
                && let Poll::Ready(room) = self.socket.as_mut().poll_ready(cx)
            {
                room?;
                self.socket.as_mut().start_send(Message::Ping(Bytes::new()))?;
                self.asked.get_or_insert_with(Instant::now);
            }
        }
        // Pings, and our answers to theirs.
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

    /// Says goodbye. What is under way from the peer can still be received.
    pub(crate) fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        self.closing = true;
        self.asked.get_or_insert_with(Instant::now);
        Poll::Ready(Ok(ready!(self.socket.as_mut().poll_close(cx))?))
    }
}

#[cfg(test)]
pub(super) mod tests;
