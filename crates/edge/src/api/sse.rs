//! How streams are written: server-sent events.
//!
//! Contract: a stream lives as long as its reader, its source and the process let it. Their number is
//! bounded, and users share it; one more is refused with a time to come back. A reader that does not read holds up its
//! own stream only: nothing is read from the source that the connection has not taken. An idle one
//! sends a comment now and then, so that both ends notice when the other is gone. All are on the
//! ledger as long as they live.

use std::borrow::Cow;
use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt, stream};
use http::{HeaderMap, header};
use serde::Serialize;
use serde_json::json;
use stallproof::gate::{Permit, Reason};
use stallproof::ledger::Outcome;
use stallproof::snapshot::Changes;
use stallproof::{Ledger, Op};
use tracing::{Instrument, Span};

use super::{Api, Caller, ErrorCode, Problem};

const IDLE: Duration = Duration::from_secs(15);
/// The most often that [`follow`] tells: what is followed may change thousands of times a second.
const AT_MOST_EVERY: Duration = Duration::from_millis(200);

/// The reason that streams end with when the process stops.
pub(crate) const STOPPING: &str = "the server is stopping";

/// The kinds of streams on the ledger. None of them is ever late.
const KINDS: [&str; 14] = [
    "admission-audit",
    "audit-export",
    "clusters",
    "watch",
    "log",
    "exec",
    "node-shell",
    "debug",
    "forward",
    "drain",
    "fan-out",
    "violations",
    "socket",
    "subscription",
];

/// Tells the ledger that streams may take their time.
pub(crate) fn expect(ledger: &Ledger) {
    for kind in KINDS {
        ledger.expect(kind, Duration::MAX);
    }
}

/// Whether the caller wants a stream.
pub(crate) fn wanted(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/event-stream"))
}

pub(crate) fn event(name: &str, data: &impl Serialize) -> Event {
    let written = Event::default().event(name).json_data(data);
    written.unwrap_or_else(|error| {
        let detail = format!("an event {name} cannot be written: {error}");
        problem(&Problem::new(ErrorCode::Internal, detail))
    })
}

/// The event for a problem in mid-stream.
pub(crate) fn problem(problem: &Problem) -> Event {
    let body = serde_json::to_string(&problem.body()).unwrap_or_default();
    Event::default().event("problem").data(body)
}

/// The last event of a stream, with the reason why it ends.
pub(crate) fn end(reason: &str) -> Event {
    event("end", &json!({ "reason": reason }))
}

/// A place among the open streams, and its line in the ledger. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct OpenStream {
    op: Option<Op>,
    _permit: Permit,
}

impl OpenStream {
    pub(crate) fn span(&self) -> Span {
        self.op.as_ref().map_or_else(Span::none, Op::span)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        // However it ends: a reader that goes away is how most streams do.
        if let Some(op) = self.op.take() {
            op.finish(Outcome::Done);
        }
    }
}

/// A place for a stream of `caller`. Users share the places: one who has as many as they may have is told
/// so, while there are some for others.
pub(crate) fn open(
    api: &Api,
    caller: &Caller,
    kind: &'static str,
    key: impl Into<Cow<'static, str>>,
    cluster: impl Into<Cow<'static, str>>,
) -> Result<OpenStream, Problem> {
    debug_assert!(KINDS.contains(&kind), "a stream that the ledger would call late");
    let permit = api.gates.stream(&caller.who.user).map_err(|refused| {
        let why = match refused.reason {
            Reason::Share => "you have as many streams open as you may have; close one",
            _ => "as many streams are open as there may be; close one",
        };
        Problem::new(ErrorCode::Overloaded, why).come_back(Duration::from_secs(5))
    })?;
    let op = api.ledger.begin(kind, key, cluster);
    op.step("open");
    Ok(OpenStream { op: Some(op), _permit: permit })
}

/// `items` in their place and in its span, until the process stops; then `last`.
pub(crate) fn until_stopped<T: Send + 'static>(
    api: &Api,
    place: OpenStream,
    items: impl Stream<Item = T> + Send + 'static,
    last: impl FnOnce() -> T + Send + 'static,
) -> impl Stream<Item = T> + Send + 'static {
    let (stop, stopped) = (api.tasks.stopping(), api.tasks.stopping());
    let last = stream::once(async move { stopped.is_stopped().then(last) });
    let last = last.filter_map(std::future::ready);
    let items = items.take_until(async move { stop.stopped().await }).chain(last).boxed();
    stream::unfold((items, place), |(mut items, place)| async move {
        let item = items.next().instrument(place.span()).await?;
        Some((item, (items, place)))
    })
}

/// Tells something now, and again after `changes`, at most every [`AT_MOST_EVERY`]. `next` returns the
/// event that tells what changed since it was last called; none, and nothing is sent.
pub(crate) fn follow<T: Send + Sync + 'static>(
    changes: Changes<T>,
    next: impl FnMut() -> Option<Event> + Send + 'static,
) -> impl Stream<Item = Event> + Send + 'static {
    follow_every(AT_MOST_EVERY, changes, next)
}

/// As [`follow`], of anything, at most this often.
pub(crate) fn follow_every<T: Send + Sync + 'static, E: Send + 'static>(
    period: Duration,
    changes: Changes<T>,
    next: impl FnMut() -> Option<E> + Send + 'static,
) -> impl Stream<Item = E> + Send + 'static {
    stream::unfold((changes, next, true), move |(mut changes, mut next, mut first)| async move {
        loop {
            if !std::mem::take(&mut first) {
                // Whatever comes meanwhile is told together.
                tokio::time::sleep(period).await;
                changes.changed().await;
            }
            if let Some(event) = next() {
                return Some((event, (changes, next, false)));
            }
        }
    })
}

/// Answers with `events`.
pub(crate) fn respond(
    api: &Api,
    place: OpenStream,
    events: impl Stream<Item = Event> + Send + 'static,
) -> Response {
    let events = until_stopped(api, place, events, || end(STOPPING)).map(Ok::<_, Infallible>);
    Sse::new(events).keep_alive(KeepAlive::new().interval(IDLE)).into_response()
}
