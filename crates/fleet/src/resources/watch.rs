//! Watches: a full list, then changes, for as long as somebody listens.
//!
//! Contract:
//! - Opening takes a deadline and fails as a list does. After that the stream ends only when it is
//!   dropped.
//! - [`Change::Listed`] comes first, and again whenever the server cannot tell any more what has
//!   changed since: it replaces all that was known. Applies and deletes follow it in order.
//! - It never hangs silently. A watch that breaks is [`Change::Interrupted`], with why; then comes
//!   `Resumed` (nothing was missed) or `Listed`. A black hole is noticed within two minutes: a server
//!   that sends bookmarks (about one a minute) is asked for turns of minutes, and one that is silent
//!   for longer than that is given up; one that sends none is asked to end every turn after half a
//!   minute, and a turn that it did not end is given up. Either way the next must open in time. A
//!   connection that is dead is found by the kernel within half a minute.
//! - The connection is asked for anew every half minute, so that a watch moves over to new
//!   credentials, and ends with its cluster.

use std::collections::VecDeque;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{AsyncBufReadExt, Stream, StreamExt, stream};
use http::HeaderValue;
use http::header::{ACCEPT, ACCEPT_ENCODING};
use kube::ResourceExt;
use kube::api::WatchParams;
use kube::core::{DynamicObject, Request, Status};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stallproof::backoff::Curve;
use stallproof::{Backoff, Deadline, sentence};
use tokio::time::{Instant, sleep_until};

use super::list::{ListQuery, Page, Row, Table, gather};
use super::list_format::{ListFormat, Metadata, Objects, RawList, Rows, Typed, WireEvent};
use crate::connection::Connection;
use crate::discovery::Found;
use crate::error::Error;

/// How long things may take.
#[derive(Clone, Copy)]
struct WatchTiming {
    /// How long the server lets one watch run, while it has sent no bookmark.
    turn: Duration,
    /// The same, of a server that sends bookmarks: from three to five quarters of it, so that watches
    /// that began together do not begin again together.
    long: Duration,
    /// How long nothing may be heard from a server that sends bookmarks.
    quiet: Duration,
    /// How often the connection is looked at.
    look: Duration,
    /// How much later than that its end may arrive.
    grace: Duration,
    /// For the next turn to open.
    open: Duration,
}

const TIMING: WatchTiming = WatchTiming {
    turn: Duration::from_secs(30),
    long: Duration::from_secs(400),
    quiet: Duration::from_secs(90),
    look: Duration::from_secs(30),
    grace: Duration::from_secs(5),
    open: Duration::from_secs(10),
};
/// For the list to be read again.
const LIST: Duration = Duration::from_secs(30);
/// A turn that ended sooner than this was not worth it: the next one waits.
const SHORT: Duration = Duration::from_secs(1);
const RETRY: Curve = Curve { first: Duration::from_millis(500), most: Duration::from_secs(20) };

/// What a watch tells. `L` is the whole, `T` one of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", content = "object", rename_all = "snake_case")]
pub enum Change<L, T> {
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

/// Watches objects. `connect` is asked for the connection at every turn.
pub async fn watch(
    connect: impl Fn() -> Result<Connection, Error> + Send + 'static,
    query: ListQuery,
    deadline: Deadline,
) -> Result<impl Stream<Item = Change<Page<DynamicObject>, DynamicObject>> + Send, Error> {
    open::<Objects, Page<_>>(connect, query, deadline, TIMING).await
}

/// Watches objects of a type. One that cannot be parsed as that type is logged and left out.
pub async fn watch_as<T: DeserializeOwned + ResourceExt + Send + 'static>(
    connect: impl Fn() -> Result<Connection, Error> + Send + 'static,
    query: ListQuery,
    deadline: Deadline,
) -> Result<impl Stream<Item = Change<Vec<T>, T>> + Send, Error> {
    open::<Typed<T>, Vec<T>>(connect, query, deadline, TIMING).await
}

/// Watches rows of the table that kubectl would print.
pub async fn watch_table(
    connect: impl Fn() -> Result<Connection, Error> + Send + 'static,
    query: ListQuery,
    deadline: Deadline,
) -> Result<impl Stream<Item = Change<Table, Row>> + Send, Error> {
    open::<Rows, Table>(connect, query, deadline, TIMING).await
}

/// Watches objects of which only the metadata matters.
pub(crate) async fn watch_metadata(
    connect: impl Fn() -> Result<Connection, Error> + Send + 'static,
    query: ListQuery,
    deadline: Deadline,
) -> Result<impl Stream<Item = Change<Page<DynamicObject>, DynamicObject>> + Send, Error> {
    open::<Metadata, Page<_>>(connect, query, deadline, TIMING).await
}

async fn open<F: ListFormat, L: From<RawList<F::Item>> + Send + 'static>(
    connect: impl Fn() -> Result<Connection, Error> + Send + 'static,
    query: ListQuery,
    deadline: Deadline,
    pace: WatchTiming,
) -> Result<impl Stream<Item = Change<L, F::Item>> + Send, Error> {
    let lot = gather::<F>(&connect()?, &query, deadline).await?;
    let mut watch = Watch::<F, L, _>::new(connect, query, pace);
    watch.listed(lot);
    Ok(watch.changes())
}

struct Watch<F: ListFormat, L, C> {
    connect: C,
    query: ListQuery,
    pace: WatchTiming,
    /// What is known is of this version. `None`: nothing is, or it is too old to go on from.
    version: Option<String>,
    turn: Option<Turn>,
    /// Whether the server sent a bookmark, and has not been silent since.
    bookmarks: bool,
    /// What was read and not yet told: one list, or the rows of one line.
    told: VecDeque<Change<L, F::Item>>,
    /// Whether the listener knows that something is wrong.
    interrupted: bool,
    backoff: Backoff,
    not_before: Instant,
}

/// One watch request.
struct Turn {
    connection: Connection,
    found: Found,
    lines: BoxStream<'static, std::io::Result<String>>,
    opened: Instant,
    /// When the server ends it.
    ends: Instant,
    /// When it was heard last, and within what it must be heard again.
    heard: Instant,
    quiet: Option<Duration>,
    /// When the connection was looked at.
    looked: Instant,
}

/// What came of waiting for a line.
enum Heard {
    Line(String),
    /// Nothing: it is time to look at the connection.
    Look,
}

#[derive(Deserialize)]
struct EventType {
    #[serde(rename = "type")]
    kind: String,
}

/// Why a watch does not go on as it is.
enum Stopped {
    /// The server ended it, as it was asked to.
    Ended,
    /// It was not heard in time: the next turn will tell.
    Silent,
    /// The server has forgotten the version to go on from.
    Expired,
    Broken(String),
}

impl<F: ListFormat, L: From<RawList<F::Item>>, C: Fn() -> Result<Connection, Error>>
    Watch<F, L, C>
{
    fn new(connect: C, query: ListQuery, pace: WatchTiming) -> Self {
        Self {
            connect,
            query,
            pace,
            version: None,
            turn: None,
            bookmarks: false,
            told: VecDeque::new(),
            interrupted: false,
            backoff: Backoff::new(RETRY),
            not_before: Instant::now(),
        }
    }

    fn changes(self) -> impl Stream<Item = Change<L, F::Item>> {
        stream::unfold(self, |mut watch| async move { Some((watch.next().await, watch)) })
    }

    async fn next(&mut self) -> Change<L, F::Item> {
        loop {
            if let Some(change) = self.told.pop_front() {
                return change;
            }
            sleep_until(self.not_before).await;
            let Err(stopped) = self.advance().await else { continue };
            let lived = self.turn.take().map(|turn| turn.opened.elapsed());
            if matches!(stopped, Stopped::Silent) {
                self.bookmarks = false;
            }
            match stopped {
                Stopped::Ended | Stopped::Silent if lived.is_some_and(|lived| lived >= SHORT) => {
                    self.backoff.succeeded();
                }
                Stopped::Ended | Stopped::Silent => self.pause(),
                Stopped::Expired => self.version = None,
                Stopped::Broken(why) => {
                    self.pause();
                    if !std::mem::replace(&mut self.interrupted, true) {
                        return Change::Interrupted { why };
                    }
                }
            }
        }
    }

    fn pause(&mut self) {
        self.not_before = Instant::now() + self.backoff.failed().wait;
    }

    /// One step: lists, opens a turn, or reads a line of it.
    async fn advance(&mut self) -> Result<(), Stopped> {
        let Some(version) = &self.version else {
            let connection = (self.connect)()?;
            let lot = gather::<F>(&connection, &self.query, Deadline::after(LIST)).await?;
            self.listed(lot);
            return Ok(());
        };
        let Some(turn) = &mut self.turn else {
            let connection = (self.connect)()?;
            let open =
                Turn::open::<F>(&connection, &self.query, version, self.pace, self.bookmarks);
            self.turn = Some(open.await?);
            if std::mem::take(&mut self.interrupted) {
                self.told.push_back(Change::Resumed);
            }
            return Ok(());
        };
        match turn.line(self.pace).await? {
            Heard::Line(line) => self.read(&line),
            Heard::Look => {
                turn.looked = Instant::now();
                let same = (self.connect)()?.is_same_client(&turn.connection);
                if same { Ok(()) } else { Err(Stopped::Ended) }
            }
        }
    }

    fn listed(&mut self, lot: RawList<F::Item>) {
        self.version = Some(lot.version.clone());
        self.interrupted = false;
        self.told.push_back(Change::Listed(lot.into()));
    }

    fn read(&mut self, line: &str) -> Result<(), Stopped> {
        let Some(turn) = &self.turn else { return Ok(()) };
        let EventType { kind } = serde_json::from_str(line)?;
        match kind.as_str() {
            "ERROR" => {
                let status = serde_json::from_str::<WireEvent<Status>>(line);
                Err(Stopped::said(&status.map(|event| event.object).unwrap_or_default()))
            }
            "BOOKMARK" => {
                self.bookmarks = true;
                let object = serde_json::from_str::<WireEvent<Value>>(line)?.object;
                let at = |path| object.pointer(path).and_then(Value::as_str);
                let version = at("/metadata/resourceVersion").filter(|version| !version.is_empty());
                let version = version.or_else(|| at("/rows/0/object/metadata/resourceVersion"));
                self.version = version.map(ToOwned::to_owned).or(self.version.take());
                Ok(())
            }
            kind => {
                for (item, version) in F::changed(&turn.found, line)? {
                    self.version = version.or(self.version.take());
                    let change = if kind == "DELETED" { Change::Deleted } else { Change::Applied };
                    self.told.push_back(change(item));
                }
                Ok(())
            }
        }
    }
}

impl Turn {
    async fn open<F: ListFormat>(
        connection: &Connection,
        query: &ListQuery,
        version: &str,
        pace: WatchTiming,
        bookmarks: bool,
    ) -> Result<Self, Error> {
        let length =
            if bookmarks { pace.long.mul_f64(0.75 + fastrand::f64() / 2.0) } else { pace.turn };
        let quiet = bookmarks.then_some(pace.quiet);
        // The server counts in seconds.
        let seconds = u32::try_from(length.as_secs()).unwrap_or(u32::MAX).max(1);
        let params = WatchParams {
            label_selector: query.labels.clone(),
            field_selector: query.fields.clone(),
            timeout: Some(seconds),
            ..WatchParams::default()
        };
        let (namespace, deadline) = (query.namespace.as_deref(), Deadline::after(pace.open));
        connection
            .on(&query.kind, namespace, "opening a watch", deadline, |api, found| {
                let request = Request::new(api.resource_url()).watch(&params, version);
                async move {
                    let mut request = request.map_err(kube::Error::BuildRequest)?;
                    request.headers_mut().insert(ACCEPT, F::WATCH);
                    // Newer servers compress each change on its own, which the client cannot undo.
                    let identity = HeaderValue::from_static("identity");
                    request.headers_mut().insert(ACCEPT_ENCODING, identity);
                    let lines = api.into_client().request_stream(request).await?;
                    let opened = Instant::now();
                    Ok(Self {
                        connection: connection.clone(),
                        found,
                        lines: lines.lines().boxed(),
                        opened,
                        ends: opened + Duration::from_secs(seconds.into()),
                        heard: opened,
                        quiet,
                        looked: opened,
                    })
                }
            })
            .await
    }

    async fn line(&mut self, pace: WatchTiming) -> Result<Heard, Stopped> {
        let last = self.ends + pace.grace;
        let last = self.quiet.map_or(last, |quiet| last.min(self.heard + quiet));
        let look = self.looked + pace.look;
        match Deadline::at(last.min(look)).bound(self.lines.next()).await {
            Err(_) if look < last => Ok(Heard::Look),
            // One that the server did not end may be a black hole.
            Err(_) => Err(Stopped::Silent),
            Ok(None) => Err(Stopped::Ended),
            Ok(Some(Err(error))) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(Stopped::Ended)
            }
            Ok(Some(Err(error))) => Err(Stopped::Broken(error.to_string())),
            Ok(Some(Ok(line))) => {
                self.heard = Instant::now();
                Ok(Heard::Line(line))
            }
        }
    }
}

impl Stopped {
    fn said(status: &Status) -> Self {
        match status.code {
            410 => Self::Expired,
            _ => Self::Broken(status.message.clone()),
        }
    }
}

impl From<serde_json::Error> for Stopped {
    fn from(error: serde_json::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused { status, .. } if status.code == 410 => Self::Expired,
            error => Self::Broken(sentence(&error)),
        }
    }
}

#[cfg(test)]
mod tests;
