//! The one loop behind every watch of an API server: list, then sessions of watching, each from where
//! the last one came to. What is listed and in which form is a [`Source`]'s matter.
//!
//! Contract:
//! - It begins with [`Change::Listed`] (unless it was given a version), then tells every change. A
//!   session that ends, is cut or goes silent is followed by the next from the last version seen, so
//!   nothing is told twice or left out; when the server has forgotten that version (410), or reports
//!   an error, it begins again with `Listed`. It never ends by itself.
//! - A black hole is noticed within [`WatchTiming::quiet`]. kube's client has no read timeout, and an idle
//!   watch hears nothing but bookmarks, about one a minute. A server that sends them is asked for
//!   sessions of minutes, and one that is silent for longer than that is dead. Bookmarks are no
//!   promise: a server sends none of a kind that has not changed since it began, and some never do.
//!   So a watch begins with a short session, [`WatchTiming::first`], which the server itself ends, and
//!   one that has not ended a few seconds after that is dead; it goes on with short ones until it
//!   hears a bookmark (a server sends one just before it ends a session).
//! - Failures are followed by a wait that doubles up to a bound; after a session that held for a while
//!   it begins anew. One after which changes may be late is told as [`Change::Interrupted`], once; then
//!   comes `Resumed` (nothing was missed) or `Listed`.
//! - It runs when it is polled; there is no task and no queue. Who does not poll is told later, and
//!   at worst by another list.
//!
//! Why not kube-runtime's `watcher`: it cannot begin at a version, keeps a version that the server
//! refuses for ever when a session is opened, hides bookmarks and the ends of sessions from whoever
//! would put a deadline on its silence, opens the next session at once after one that ended at once,
//! and reads no tables.

use std::collections::VecDeque;
use std::error::Error;
use std::future::Future;
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use kube::core::Status;
use serde::Serialize;
use stallproof::backoff::Curve;
use stallproof::{Backoff, Deadline, sentence};
use tokio::time::{Instant, sleep_until};

/// How long a watch waits for what.
#[derive(Clone, Copy, Debug)]
pub struct WatchTiming {
    /// About how long the server is asked to keep a session while it has sent no bookmark: from
    /// three to five quarters of it, so that watches that began together do not begin again together.
    pub first: Duration,
    /// The same, of a server that sends bookmarks.
    pub session: Duration,
    /// How long nothing may be heard from a server that sends bookmarks.
    pub quiet: Duration,
    /// By how much an end may be late that the server should have made: clocks and networks.
    pub grace: Duration,
    /// For the server to begin to answer.
    pub open: Duration,
    /// For each page of a list: some megabytes at worst, over a slow line.
    pub page: Duration,
    /// How often the source is asked whether its session is still the right one.
    pub look: Duration,
    pub retry: Curve,
}

impl Default for WatchTiming {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(30),
            // Five minutes to a bit over eight, as Kubernetes' own clients: a thousand agents with
            // three watches each are eight requests a second.
            session: Duration::from_secs(400),
            // A bookmark comes every minute or so.
            quiet: Duration::from_secs(90),
            grace: Duration::from_secs(5),
            open: Duration::from_secs(10),
            page: Duration::from_secs(30),
            look: Duration::from_secs(30),
            // The longest wait is how late a definition that was installed late is noticed.
            retry: Curve { first: Duration::from_millis(200), most: Duration::from_secs(10) },
        }
    }
}

/// What a watch tells. `L` is a whole list, `T` one of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", content = "object", rename_all = "snake_case")]
pub enum Change<L, T> {
    /// Replaces all that was known.
    Listed(L),
    Applied(T),
    Deleted(T),
    /// What follows may be late; it is being tried again.
    Interrupted {
        why: String,
    },
    /// After an interruption: nothing was missed.
    Resumed,
}

/// Where lists and sessions come from.
pub trait Source: Send {
    type List: Send;
    type Item: Send;

    /// Lists everything; says of which version it is.
    fn list(&mut self) -> impl Future<Output = Result<(Self::List, String), Failure>> + Send;

    /// Opens a session that tells what changed after `version`. The server ends it after `seconds`.
    fn open(
        &mut self,
        version: &str,
        seconds: u32,
    ) -> impl Future<Output = Result<Session<Self::Item>, Failure>> + Send;

    /// Whether the open session is still one of the right connection.
    fn is_current(&mut self) -> Result<bool, Failure> {
        Ok(true)
    }

    /// Is told of each failure, and how long the watch waits before it tries again.
    fn failed(&mut self, _failure: &Failure, _wait: Duration) {}

    /// Is told that a session is one to rely on.
    fn works(&mut self) {}
}

/// The lines of one session.
pub type Session<T> = BoxStream<'static, Result<Line<T>, Failure>>;

/// One line of a session. Each object comes with the version that it has now, if it says so.
#[derive(Debug)]
pub enum Line<T> {
    Applied(Vec<(T, Option<String>)>),
    Deleted(Vec<(T, Option<String>)>),
    /// Everything up to this version was told.
    Bookmark(Option<String>),
    Error(Box<Status>),
}

/// Why a watch does not go on as it is.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("the server has forgotten the last version seen")]
    Forgotten,
    #[error("the server reports an error")]
    Reported(#[source] Box<Status>),
    /// A list or a session cannot be had.
    #[error(transparent)]
    Asking(Box<dyn Error + Send + Sync>),
    #[error("the session was cut")]
    Cut(#[source] Box<dyn Error + Send + Sync>),
    #[error("the session ended early")]
    EndedEarly,
    #[error("no sign of life from the server")]
    Silent,
}

impl Failure {
    /// Whether changes may be late after it. An end, a version that has become too old and silence,
    /// before another session could not be opened, are in the course of things.
    pub fn interrupts(&self) -> bool {
        matches!(self, Self::Asking(_) | Self::Cut(_) | Self::Reported(_))
    }
}

/// Watches from `version` on, or from a list.
pub fn watch<S: Source>(
    source: S,
    version: Option<String>,
    timing: WatchTiming,
) -> impl Stream<Item = Change<S::List, S::Item>> {
    let watching = Watching {
        source,
        timing,
        state: version.map_or(State::Unknown, State::At),
        bookmarks: false,
        told: VecDeque::new(),
        interrupted: false,
        backoff: Backoff::new(timing.retry),
        not_before: Instant::now(),
    };
    stream::unfold(watching, async |mut watching| Some((watching.next().await, watching)))
}

struct Watching<S: Source> {
    source: S,
    timing: WatchTiming,
    state: State<S::Item>,
    /// Whether the server sent a bookmark, and has not been silent since.
    bookmarks: bool,
    /// What was read and not yet told: one list, or the rows of one line.
    told: VecDeque<Change<S::List, S::Item>>,
    /// Whether the listener knows that something is wrong.
    interrupted: bool,
    backoff: Backoff,
    not_before: Instant,
}

enum State<T> {
    /// Nothing is known, or no longer.
    Unknown,
    /// Everything up to this version is told.
    At(String),
    Watching(Open<T>),
}

struct Open<T> {
    /// Everything up to this version is told.
    at: String,
    session: Session<T>,
    opened: Instant,
    /// When the server ends it.
    ends: Instant,
    /// When it was heard last, and within what it must be heard again.
    heard: Instant,
    quiet: Option<Duration>,
    /// When the source was asked whether it is still the right one.
    looked: Instant,
}

impl<T> Open<T> {
    /// Everything up to this version is told, if it is one: a session that begins at an empty version begins
    /// anywhere, and would leave out what happened before.
    fn reached(&mut self, version: Option<String>) {
        if let Some(version) = version.filter(|version| !version.is_empty()) {
            self.at = version;
        }
    }
}

impl<S: Source> Watching<S> {
    async fn next(&mut self) -> Change<S::List, S::Item> {
        loop {
            if let Some(change) = self.told.pop_front() {
                return change;
            }
            sleep_until(self.not_before).await;
            if let Err(failure) = self.step().await {
                let wait = self.backoff.failed().wait;
                self.source.failed(&failure, wait);
                if matches!(failure, Failure::Forgotten | Failure::Reported(_)) {
                    self.state = State::Unknown;
                }
                self.not_before = Instant::now() + wait;
                if self.is_news(&failure) {
                    return Change::Interrupted { why: sentence(&failure) };
                }
            }
        }
    }

    /// Whether the listener is to know, and does not yet.
    fn is_news(&mut self, failure: &Failure) -> bool {
        failure.interrupts() && !std::mem::replace(&mut self.interrupted, true)
    }

    /// Lists, opens a session, or reads a line of it.
    async fn step(&mut self) -> Result<(), Failure> {
        match &mut self.state {
            State::Unknown => {
                let (list, version) = self.source.list().await?;
                self.state = State::At(version);
                self.interrupted = false;
                self.told.push_back(Change::Listed(list));
                Ok(())
            }
            State::At(version) => {
                let version = version.clone();
                self.open(version).await
            }
            State::Watching(open) => {
                let last = open.ends + self.timing.grace;
                let last = open.quiet.map_or(last, |quiet| last.min(open.heard + quiet));
                let look = open.looked + self.timing.look;
                match Deadline::at(last.min(look)).bound(open.session.next()).await {
                    Ok(Some(Ok(line))) => self.hear(line),
                    Ok(Some(Err(failure))) => self.end(Some(failure)),
                    Ok(None) => self.end(None),
                    Err(_) if last <= look => self.end(Some(Failure::Silent)),
                    Err(_) => {
                        open.looked = Instant::now();
                        let current = self.source.is_current();
                        if !matches!(current, Ok(true)) {
                            self.state = State::At(std::mem::take(&mut open.at));
                        }
                        current.map(drop)
                    }
                }
            }
        }
    }

    async fn open(&mut self, at: String) -> Result<(), Failure> {
        let length = if self.bookmarks { self.timing.session } else { self.timing.first };
        let length = length.mul_f64(0.75 + fastrand::f64() / 2.0);
        // The server counts in seconds.
        let seconds = u32::try_from(length.as_secs()).unwrap_or(u32::MAX).max(1);
        let session = self.source.open(&at, seconds).await?;
        let opened = Instant::now();
        self.state = State::Watching(Open {
            at,
            session,
            opened,
            ends: opened + Duration::from_secs(seconds.into()),
            heard: opened,
            quiet: self.bookmarks.then_some(self.timing.quiet),
            looked: opened,
        });
        if std::mem::take(&mut self.interrupted) {
            self.told.push_back(Change::Resumed);
        }
        Ok(())
    }

    fn hear(&mut self, line: Line<S::Item>) -> Result<(), Failure> {
        let State::Watching(open) = &mut self.state else { return Ok(()) };
        let (changed, change): (_, fn(_) -> _) = match line {
            Line::Applied(changed) => (changed, Change::Applied),
            Line::Deleted(changed) => (changed, Change::Deleted),
            Line::Bookmark(version) => {
                self.bookmarks = true;
                open.reached(version);
                (Vec::new(), Change::Applied)
            }
            Line::Error(status) if status.code == 410 => return Err(Failure::Forgotten),
            // Whatever it is, what was told so far may not be all.
            Line::Error(status) => return Err(Failure::Reported(status)),
        };
        open.heard = Instant::now();
        for (item, version) in changed {
            open.reached(version);
            self.told.push_back(change(item));
        }
        self.works();
        Ok(())
    }

    /// Leaves the session; the next begins where it came to.
    fn end(&mut self, failure: Option<Failure>) -> Result<(), Failure> {
        let State::Watching(open) = &mut self.state else { return Ok(()) };
        let now = Instant::now();
        // The server's seconds are not ours to the millisecond.
        let in_time = now + Duration::from_secs(1) >= open.ends;
        let held = in_time || now - open.opened >= self.timing.grace;
        self.state = State::At(std::mem::take(&mut open.at));
        if matches!(failure, Some(Failure::Silent)) {
            self.bookmarks = false;
        } else if held {
            self.works();
        }
        match failure {
            Some(failure) => Err(failure),
            None if in_time => Ok(()),
            None => Err(Failure::EndedEarly),
        }
    }

    /// The session is one to rely on. That it opened is not enough: what ends every session at once
    /// would be well as often as it fails.
    fn works(&mut self) {
        self.backoff.succeeded();
        self.source.works();
    }
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
