//! How streams are written: server-sent events.
//!
//! Contract: a stream lives as long as its reader, its source and the process let it. Its number is
//! bounded; one more is refused with a time to come back. A reader that does not read holds up its
//! own stream only: nothing is read from the source that the connection has not taken. An idle one
//! sends a comment now and then, so that both ends notice when the other is gone.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt};
use http::{HeaderMap, header};
use serde::Serialize;

use super::problem::{Code, Problem};
use super::Api;

const IDLE: Duration = Duration::from_secs(15);

/// Whether the asker wants a stream.
pub(crate) fn wanted(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/event-stream"))
}

pub(crate) fn event<T: Serialize>(name: &str, data: &T) -> Event {
    let event = Event::default().event(name);
    event.json_data(data).unwrap_or_else(|error| {
        Event::default().event("problem").data(format!("cannot be written as JSON: {error}"))
    })
}

/// Answers with `events`, in a place of its own.
pub(crate) fn stream(
    api: &Api,
    events: impl Stream<Item = Event> + Send + 'static,
) -> Result<Response, Problem> {
    let place = place(api)?;
    let stop = api.tasks.stopping();
    let events = events
        .take_until(async move { stop.stopped().await })
        // The place is given back when the stream is dropped.
        .map(move |event| {
            let _ = &place;
            Ok::<_, Infallible>(event)
        });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(IDLE)).into_response())
}

/// A place among the open streams.
pub(crate) fn place(api: &Api) -> Result<tokio::sync::OwnedSemaphorePermit, Problem> {
    api.streams.clone().try_acquire_owned().map_err(|_| {
        Problem::new(Code::Overloaded, "as many streams are open as there may be; close one")
            .come_back(Duration::from_secs(5))
    })
}
