//! `ProgressStream`: work that tells how it goes, as a stream.
//!
//! Contract: the work runs while the stream is polled, and nowhere else; dropped with it, it is over.
//! What it told is handed out in order, all of it, also after the work has ended.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use tokio::sync::mpsc;

/// What the work may tell ahead of the reader; more, and it waits. The reader is the one who polls
/// it, so a few are enough.
const AHEAD: usize = 16;

pub(crate) struct ProgressStream<T> {
    /// `None` once it has ended.
    work: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    told: mpsc::Receiver<T>,
}

/// Where the work tells. Nobody listening means that the work is being dropped.
pub(crate) struct ProgressSender<T>(mpsc::Sender<T>);

impl<T> ProgressSender<T> {
    pub(crate) async fn tell(&self, what: T) {
        // It can only fail between the drop of the receiver and that of the work itself.
        let _ = self.0.send(what).await;
    }
}

impl<T> ProgressStream<T> {
    pub(crate) fn new<F>(work: impl FnOnce(ProgressSender<T>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (tell, told) = mpsc::channel(AHEAD);
        Self { work: Some(Box::pin(work(ProgressSender(tell)))), told }
    }
}

impl<T> Stream for ProgressStream<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if let Poll::Ready(Some(told)) = self.told.poll_recv(cx) {
            return Poll::Ready(Some(told));
        }
        if let Some(work) = &mut self.work
            && work.as_mut().poll(cx).is_ready()
        {
            // Its `ProgressSender` goes with it, which is what ends the channel.
            self.work = None;
        }
        self.told.poll_recv(cx)
    }
}

#[cfg(test)]
mod tests;
