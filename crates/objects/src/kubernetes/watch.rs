//! A watch that never ends: list, then sessions of watching, each from where the last one came to.
//!
//! Contract:
//! - It begins with `Restarted` (unless it was given a version), then tells every change. A session
//!   that ends, is cut or goes silent is followed by the next from the last version seen, so nothing
//!   is told twice or left out; when the server has forgotten that version (410), or says that
//!   something is wrong with it, it begins again with `Restarted`.
//! - A black hole is noticed within [`Limits::quiet`]. kube's client has no read timeout, and an idle
//!   watch hears nothing but bookmarks, about one a minute. A server that sends them is asked for
//!   sessions of minutes, and one that is silent for longer than that is dead. Bookmarks are no
//!   promise: a server sends none of a kind that has not changed since it began, and some never do.
//!   So a watch begins with a short session, [`Limits::first`], which the server itself ends, and
//!   one that has not ended a few seconds after that is dead; it goes on with short ones until it
//!   hears a bookmark (a server sends one just before it ends a session).
//! - Failures are followed by a wait that doubles up to [`Limits::retry`]; after a session that held
//!   for a while it begins anew. They are counted; they are logged when they begin, when their
//!   nature changes, and when they are over.
//! - It runs when it is polled; there is no task and no queue. Who does not poll is told later, and
//!   at worst by a restart.

use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, WatchEvent, WatchParams};
use kube::core::Status;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use stallproof::backoff::Curve;
use stallproof::{Backoff, Deadline};
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::error::Call;
use super::{list_all, read};
use crate::Selector;
use crate::store::{Error, Event, Type, Version};

/// How long a watch waits for what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// About how long the server is asked to keep a session while it has sent no bookmark: from
    /// three to five quarters of it, so that watches that began together do not begin again together.
    pub(crate) first: Duration,
    /// The same, of a server that sends bookmarks.
    pub(crate) session: Duration,
    /// How long nothing may be heard from a server that sends bookmarks.
    pub(crate) quiet: Duration,
    /// By how much an end may be late that the server should have made: clocks and networks.
    pub(crate) grace: Duration,
    /// For the server to begin to answer.
    pub(crate) open: Duration,
    /// For each page of a listing: some megabytes at worst, over a slow line.
    pub(crate) page: Duration,
    pub(crate) retry: Curve,
}

impl Default for Limits {
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
            // The longest wait is how late a definition that was installed late is noticed.
            retry: Curve { first: Duration::from_millis(200), most: Duration::from_secs(10) },
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Meters {
    failures: Counter,
    restarts: Counter,
}

impl Meters {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "objects_watch_failures",
            "Watch sessions that could not be opened, were cut or went silent",
            self.failures.clone(),
        );
        registry.register(
            "objects_watch_restarts",
            "Watches that began again with a full list after a gap",
            self.restarts.clone(),
        );
    }
}

pub(super) struct Watcher {
    api: Api<DynamicObject>,
    of: Type,
    labels: Option<Selector>,
    limits: Limits,
    meters: Meters,
    state: State,
    /// Whether the server sent a bookmark, and has not been silent since.
    bookmarks: bool,
    backoff: Backoff,
    trouble: Option<Trouble>,
}

type Session = BoxStream<'static, kube::Result<WatchEvent<DynamicObject>>>;

enum State {
    /// Nothing is known, or no longer.
    Unknown,
    /// Everything up to this version is told.
    At(Version),
    Watching {
        at: Version,
        session: Session,
        opened: Instant,
        /// When the server ends it.
        ends: Instant,
        /// When it was heard last, and until when it must be heard again.
        heard: Instant,
        quiet: Option<Duration>,
    },
}

/// Since when it fails, and how.
struct Trouble {
    since: Instant,
    failure: String,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Asking(#[from] Error),
    #[error("the server has forgotten the last version seen")]
    Forgotten,
    #[error("the server reports an error")]
    Reported(#[source] Box<Status>),
    #[error("the session was cut")]
    Cut(#[source] kube::Error),
    #[error("the session ended early")]
    EndedEarly,
    #[error("no sign of life from the server")]
    Silent,
}

impl Watcher {
    pub(super) fn new(
        api: Api<DynamicObject>,
        of: Type,
        labels: Option<Selector>,
        after: Option<Version>,
        limits: Limits,
        meters: Meters,
    ) -> Self {
        // What is no number is a version of another engine's.
        let after = after.filter(|version| version.0.parse::<u64>().is_ok());
        let state = after.map_or(State::Unknown, State::At);
        let backoff = Backoff::new(limits.retry);
        Self { api, of, labels, limits, meters, state, bookmarks: false, backoff, trouble: None }
    }

    pub(super) fn into_stream(self) -> BoxStream<'static, Event<DynamicObject>> {
        stream::unfold(self, async |mut watcher| Some((watcher.next().await, watcher))).boxed()
    }

    async fn next(&mut self) -> Event<DynamicObject> {
        loop {
            match self.step().await {
                Ok(Some(event)) => return event,
                Ok(None) => {}
                Err(failure) => sleep(self.failed(&failure)).await,
            }
        }
    }

    async fn step(&mut self) -> Result<Option<Event<DynamicObject>>, Failure> {
        match &mut self.state {
            State::Unknown => self.list().await.map(Some),
            State::At(version) => {
                let version = version.clone();
                self.open(version).await.map(|()| None)
            }
            State::Watching { session, ends, heard, quiet, .. } => {
                let last = *ends + self.limits.grace;
                let last = quiet.map_or(last, |quiet| last.min(*heard + quiet));
                let heard = Deadline::at(last).bound(session.try_next()).await;
                self.hear(heard.map_err(|_| Failure::Silent))
            }
        }
    }

    async fn list(&mut self) -> Result<Event<DynamicObject>, Failure> {
        let call = Call::on_all("listing", &self.of);
        let page = || Deadline::after(self.limits.page);
        let listing = list_all(&self.api, &call, self.labels.as_ref(), page).await?;
        self.state = State::At(listing.version);
        Ok(Event::Restarted(listing.items))
    }

    async fn open(&mut self, at: Version) -> Result<(), Failure> {
        let call = Call::on_all("watching", &self.of);
        let length = if self.bookmarks { self.limits.session } else { self.limits.first };
        let length = length.mul_f64(0.75 + fastrand::f64() / 2.0);
        // The server counts in seconds.
        let seconds = u32::try_from(length.as_secs()).unwrap_or(u32::MAX).max(1);
        let params = WatchParams {
            label_selector: self.labels.as_ref().map(ToString::to_string),
            timeout: Some(seconds),
            ..WatchParams::default()
        };
        let deadline = Deadline::after(self.limits.open);
        let session = match call.bound(deadline, self.api.watch(&params, &at.0)).await? {
            Ok(session) => session.boxed(),
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 410 | 422) => {
                return Err(self.forget(Failure::Forgotten));
            }
            Err(error) => return Err(call.failed(error).into()),
        };
        let opened = Instant::now();
        let ends = opened + Duration::from_secs(seconds.into());
        let quiet = self.bookmarks.then_some(self.limits.quiet);
        self.state = State::Watching { at, session, opened, ends, heard: opened, quiet };
        Ok(())
    }

    fn hear(
        &mut self,
        heard: Result<kube::Result<Option<WatchEvent<DynamicObject>>>, Failure>,
    ) -> Result<Option<Event<DynamicObject>>, Failure> {
        let event = match heard {
            Ok(Ok(Some(event))) => event,
            Ok(Ok(None)) => return self.end(None),
            Ok(Err(error)) => return self.end(Some(Failure::Cut(error))),
            Err(silent) => return self.end(Some(silent)),
        };
        if !matches!(event, WatchEvent::Error(_)) {
            self.well();
        }
        if let State::Watching { heard, .. } = &mut self.state {
            *heard = Instant::now();
        }
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                self.told(object.resource_version());
                Ok(Some(Event::Applied(self.read(object))))
            }
            WatchEvent::Deleted(object) => {
                self.told(object.resource_version());
                Ok(Some(Event::Deleted(self.read(object))))
            }
            WatchEvent::Bookmark(bookmark) => {
                self.bookmarks = true;
                self.told(Some(bookmark.metadata.resource_version));
                Ok(None)
            }
            WatchEvent::Error(status) if status.code == 410 => Err(self.forget(Failure::Forgotten)),
            // Whatever it is, what was told so far may not be all.
            WatchEvent::Error(status) => Err(self.forget(Failure::Reported(status))),
        }
    }

    fn told(&mut self, version: Option<String>) {
        if let (State::Watching { at, .. }, Some(version)) = (&mut self.state, version) {
            *at = Version(version);
        }
    }

    fn read(&self, mut object: DynamicObject) -> DynamicObject {
        object.types.get_or_insert_with(|| self.of.types());
        read(object)
    }

    /// The session is over; the next begins where it came to.
    fn end(&mut self, failure: Option<Failure>) -> Result<Option<Event<DynamicObject>>, Failure> {
        let State::Watching { at, opened, ends, .. } = &self.state else { return Ok(None) };
        let now = Instant::now();
        // The server's seconds are not ours to the millisecond.
        let in_time = now + Duration::from_secs(1) >= *ends;
        let held = in_time || now - *opened >= self.limits.grace;
        let at = at.clone();
        if matches!(failure, Some(Failure::Silent)) {
            self.bookmarks = false;
        }
        if held && !matches!(failure, Some(Failure::Silent)) {
            self.well();
        }
        self.state = State::At(at);
        match failure {
            Some(failure) => Err(failure),
            None if in_time => Ok(None),
            None => Err(Failure::EndedEarly),
        }
    }

    fn forget(&mut self, failure: Failure) -> Failure {
        self.state = State::Unknown;
        self.meters.restarts.inc();
        failure
    }

    /// How long to wait.
    fn failed(&mut self, failure: &Failure) -> Duration {
        self.meters.failures.inc();
        let retry = self.backoff.failed();
        let kind = self.of.kind;
        let cause = std::error::Error::source(failure);
        let said = failure.to_string();
        if self.trouble.as_ref().is_none_or(|trouble| trouble.failure != said) {
            warn!(kind, failure = said, cause, "a watch is interrupted");
        } else {
            let attempt = retry.attempt;
            debug!(kind, failure = said, cause, attempt, "a watch is still interrupted");
        }
        let since = self.trouble.take().map_or_else(Instant::now, |trouble| trouble.since);
        self.trouble = Some(Trouble { since, failure: said });
        retry.wait
    }

    /// The session is one to rely on. That it opened is not enough: what ends every session at once
    /// would be well as often as it fails.
    fn well(&mut self) {
        self.backoff.succeeded();
        let State::Watching { opened, .. } = &self.state else { return };
        if let Some(trouble) = self.trouble.take() {
            let interrupted_ms = (*opened - trouble.since).as_millis();
            info!(kind = self.of.kind, interrupted_ms, "a watch goes on");
        }
    }
}

#[cfg(test)]
mod tests;
