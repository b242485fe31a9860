//! `GroupCommit`: one thread that takes everything that waits as one group.
//!
//! ```text
//! callers ──► bounded queue ──► thread: GroupWriter::write(all that waits) ──► one fsync for all
//! ```
//!
//! Contract:
//! - Requests queue up to a bound while a group is being written; the next group takes them all, so that
//!   a hundred callers at once cost the disk what two do. A full queue refuses at once.
//! - The thread is its own: what blocks elsewhere does not hold up a commit, nor a commit others.
//! - A panic costs its own group; the writer is told, and goes on with the next.
//! - The thread ends when the task group stops, after it has written what was queued before that, or when
//!   the last handle is gone. The group's shutdown waits for it. A request that comes later is dropped:
//!   its caller sees that in the channel of its answer.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use crate::Tasks;
use crate::tasks::panic_message;

/// The work of the thread.
pub trait GroupWriter: Send + 'static {
    type Request: Send + 'static;

    /// Writes a group, and answers its requests. Blocks.
    fn write(&mut self, group: Vec<Self::Request>);

    /// Is told that [`Self::write`] panicked, which has dropped the group.
    fn panicked(&mut self, why: &str);

    /// Ends the work. Blocks.
    fn close(self);
}

/// A handle; clones queue for the same thread.
pub struct GroupCommit<R>(mpsc::Sender<Message<R>>);

/// A handle that does not keep the thread: for whoever the thread itself has given work.
pub struct WeakGroupCommit<R>(mpsc::WeakSender<Message<R>>);

enum Message<R> {
    Request(R),
    Close,
}

/// Why a request was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueError {
    Full,
    Closed,
}

impl<R: Send + 'static> GroupCommit<R> {
    /// Starts the thread. At most `bound` requests wait, and at most so many are one group.
    pub fn start(
        name: &'static str,
        bound: usize,
        writer: impl GroupWriter<Request = R>,
        tasks: &Tasks,
    ) -> io::Result<Self> {
        Self::start_with(name, bound, tasks, |_| Ok(writer))
    }

    /// The same, of a writer that queues for itself, or has others do.
    pub fn start_with<W: GroupWriter<Request = R>>(
        name: &'static str,
        bound: usize,
        tasks: &Tasks,
        writer: impl FnOnce(WeakGroupCommit<R>) -> io::Result<W>,
    ) -> io::Result<Self> {
        let (queue, requests) = Self::channel(bound);
        let writer = writer(queue.downgrade())?;
        let (ended, mut has_ended) = oneshot::channel::<()>();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            run(writer, requests.0, bound);
            drop(ended);
        })?;
        let (stop, close) = (tasks.stopping(), queue.0.downgrade());
        tasks.spawn(name, async move {
            tokio::select! {
                // An error: the sender was dropped, which is the sign.
                _ = &mut has_ended => {}
                () = stop.stopped() => {
                    if let Some(queue) = close.upgrade() {
                        // An error: the thread has ended already.
                        let _ = queue.send(Message::Close).await;
                    }
                    let _ = has_ended.await;
                }
            }
        });
        Ok(queue)
    }

    /// Makes a queue without a thread: for a test that is the writer.
    pub fn channel(bound: usize) -> (Self, GroupRequests<R>) {
        let (queue, requests) = mpsc::channel(bound);
        (Self(queue), GroupRequests(requests))
    }

    /// Queues a request, or refuses it at once.
    pub fn try_send(&self, request: R) -> Result<(), QueueError> {
        self.0.try_send(Message::Request(request)).map_err(|error| match error {
            TrySendError::Full(_) => QueueError::Full,
            TrySendError::Closed(_) => QueueError::Closed,
        })
    }

    /// Queues a request as soon as there is room. The caller bounds the wait.
    pub async fn send(&self, request: R) -> Result<(), QueueError> {
        self.0.send(Message::Request(request)).await.map_err(|_| QueueError::Closed)
    }

    /// Queues a request as soon as there is room. Blocks; the writer always comes back for more.
    pub fn send_blocking(&self, request: R) -> Result<(), QueueError> {
        self.0.blocking_send(Message::Request(request)).map_err(|_| QueueError::Closed)
    }

    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    pub fn downgrade(&self) -> WeakGroupCommit<R> {
        WeakGroupCommit(self.0.downgrade())
    }
}

impl<R> WeakGroupCommit<R> {
    /// None if no other handle is left.
    pub fn upgrade(&self) -> Option<GroupCommit<R>> {
        self.0.upgrade().map(GroupCommit)
    }
}

/// The requests of a queue that has no thread.
pub struct GroupRequests<R>(mpsc::Receiver<Message<R>>);

impl<R> GroupRequests<R> {
    /// Waits for the next request; none when the queue is closed.
    pub async fn next(&mut self) -> Option<R> {
        match self.0.recv().await {
            Some(Message::Request(request)) => Some(request),
            Some(Message::Close) | None => None,
        }
    }
}

fn run<W: GroupWriter>(
    mut writer: W,
    mut queue: mpsc::Receiver<Message<W::Request>>,
    bound: usize,
) {
    let mut messages = Vec::with_capacity(bound);
    let mut closing = false;
    while !closing && queue.blocking_recv_many(&mut messages, bound) > 0 {
        let mut group = Vec::with_capacity(messages.len());
        for message in messages.drain(..) {
            match message {
                Message::Request(request) if !closing => group.push(request),
                // Whoever came after the close is told by the loss of the answer's sender.
                Message::Request(_) => {}
                Message::Close => closing = true,
            }
        }
        // The close may have come alone.
        if group.is_empty() {
            continue;
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| writer.write(group))) {
            writer.panicked(&panic_message(&*panic));
        }
    }
    writer.close();
}

impl<R> Clone for GroupCommit<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R> fmt::Debug for GroupCommit<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GroupCommit({} free places)", self.0.capacity())
    }
}

impl<R> fmt::Debug for WeakGroupCommit<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WeakGroupCommit({} handles)", self.0.strong_count())
    }
}

impl<R> fmt::Debug for GroupRequests<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GroupRequests({} waiting)", self.0.len())
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
