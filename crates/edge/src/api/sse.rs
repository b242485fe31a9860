//! How streams are written: server-sent events.
//!
//! Contract: a stream lives as long as its reader, its source and the process let it. Its number is
//! bounded; one more is refused with a time to come back. A reader that does not read holds up its
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
use stallproof::ledger::Outcome;
use stallproof::{Ledger, Op};
use tokio::sync::OwnedSemaphorePermit;

use super::Api;
use super::problem::{Code, Problem};

const IDLE: Duration = Duration::from_secs(15);

/// What is said to those who would hear more.
pub(crate) const STOPPING: &str = "the server is stopping";

/// The kinds of streams on the ledger. None of them is ever late.
const KINDS: [&str; 9] = [
    "admission-audit",
    "clusters",
    "watch",
    "log",
    "exec",
    "forward",
    "drain",
    "fan-out",
    "violations",
];

/// Tells the ledger that streams may take their time.
pub(crate) fn expect(ledger: &Ledger) {
    for kind in KINDS {
        ledger.expect(kind, Duration::MAX);
    }
}

/// Whether the asker wants a stream.
pub(crate) fn wanted(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/event-stream"))
}

pub(crate) fn event(name: &str, data: &impl Serialize) -> Event {
    let written = Event::default().event(name).json_data(data);
    written.unwrap_or_else(|error| {
        let detail = format!("an event {name} cannot be written: {error}");
        problem(&Problem::new(Code::Internal, detail))
    })
}

/// What went wrong in mid-stream.
pub(crate) fn problem(problem: &Problem) -> Event {
    let body = serde_json::to_string(&problem.body()).unwrap_or_default();
    Event::default().event("problem").data(body)
}

/// Why the stream ends.
pub(crate) fn end(reason: &str) -> Event {
    event("end", &json!({ "reason": reason }))
}

/// A place among the open streams, and its line in the ledger. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    op: Option<Op>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        // However it ends: a reader that goes away is how most streams do.
        if let Some(op) = self.op.take() {
            op.finish(Outcome::Done);
        }
    }
}

pub(crate) fn place(
    api: &Api,
    kind: &'static str,
    key: impl Into<Cow<'static, str>>,
    cluster: impl Into<Cow<'static, str>>,
) -> Result<Place, Problem> {
    debug_assert!(KINDS.contains(&kind), "a stream that the ledger would call late");
    let permit = api.streams.clone().try_acquire_owned().map_err(|_| {
        Problem::new(Code::Overloaded, "as many streams are open as there may be; close one")
            .come_back(Duration::from_secs(5))
    })?;
    let op = api.ledger.begin(kind, key, cluster);
    op.step("open");
    Ok(Place { op: Some(op), _permit: permit })
}

/// `items` in their place, until the process stops; then `last`.
pub(crate) fn placed<T: Send + 'static>(
    api: &Api,
    place: Place,
    items: impl Stream<Item = T> + Send + 'static,
    last: impl FnOnce() -> T + Send + 'static,
) -> impl Stream<Item = T> + Send + 'static {
    let (stop, stopped) = (api.tasks.stopping(), api.tasks.stopping());
    let last = stream::once(async move { stopped.is_stopped().then(last) });
    let last = last.filter_map(std::future::ready);
    items.take_until(async move { stop.stopped().await }).chain(last).map(move |item| {
        let _ = &place;
        item
    })
}

/// Answers with `events`.
pub(crate) fn answer(
    api: &Api,
    place: Place,
    events: impl Stream<Item = Event> + Send + 'static,
) -> Response {
    let events = placed(api, place, events, || end(STOPPING)).map(Ok::<_, Infallible>);
    Sse::new(events).keep_alive(KeepAlive::new().interval(IDLE)).into_response()
}
