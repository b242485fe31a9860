//! `ProgressStream`: work that reports its progress as a stream.
//!
//! Contract: the work runs only while the stream is polled, and ends when the stream is dropped. All
//! reports are delivered in order, also after the work has ended.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use tokio::sync::mpsc;

/// Reports that may wait for the reader. The reader polls the work itself, so that a few are enough.
const AHEAD: usize = 16;

pub(crate) struct ProgressStream<T> {
    /// `None` once the work has ended.
    work: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    told: mpsc::Receiver<T>,
}

/// Sends reports to the stream. Without a receiver the work itself is being dropped.
pub(crate) struct ProgressSender<T>(mpsc::Sender<T>);

impl<T> ProgressSender<T> {
    pub(crate) async fn tell(&self, what: T) {
        // Sending fails only between the drop of the receiver and that of the work.
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
            // This drops its `ProgressSender`, which ends the channel.
            self.work = None;
        }
        self.told.poll_recv(cx)
    }
}

#[cfg(test)]
mod tests;
