//! Server-sent events: a parser of bytes in any chunks, and the stream of a request's events.

use std::collections::VecDeque;
use std::process::ExitCode;

use futures::StreamExt;
use http::Method;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Body, Chunks, ClientError, ClientResult, Problem, Route, Server};
use crate::output::{self, Failure};

/// One event is at most the whole of a fan-out: some thousand objects of a hundred clusters.
const LARGEST_EVENT: usize = 1 << 29;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) data: String,
}

impl Event {
    pub(crate) fn json<T: DeserializeOwned>(&self) -> ClientResult<T> {
        serde_json::from_str(&self.data).map_err(|e| {
            let name = &self.name;
            Failure(format!("the event {name:?} is not what this version understands: {e}")).into()
        })
    }
}

/// The events of one request, as they come.
pub(crate) struct Events {
    chunks: Chunks,
    parser: Parser,
    ready: VecDeque<Event>,
    /// The address of the server, for messages.
    from: String,
}

impl Events {
    pub(super) fn new(chunks: Chunks, from: String) -> Self {
        Self { chunks, parser: Parser::default(), ready: VecDeque::new(), from }
    }

    /// Waits for the next event; None when the server has ended the stream. A problem that the
    /// server meets in mid-stream is an error here.
    pub(crate) async fn next(&mut self) -> ClientResult<Option<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                if event.name == "problem" {
                    return Err(ClientError::Refused(Box::new(event.json::<Problem>()?)));
                }
                return Ok(Some(event));
            }
            let from = &self.from;
            let chunk = match self.chunks.next().await {
                None => return Ok(None),
                Some(Ok(chunk)) => chunk,
                Some(Err(why)) => {
                    return Err(Failure(format!("{from} went away in mid-stream: {why}")).into());
                }
            };
            if !self.parser.push(&chunk, &mut self.ready) {
                return Err(Failure(format!(
                    "{from} sent an event of more than {} MiB",
                    LARGEST_EVENT >> 20
                ))
                .into());
            }
        }
    }

    /// As [`Self::next`], where the stream may not end before `goal`.
    pub(crate) async fn next_before(&mut self, goal: &str) -> ClientResult<Event> {
        self.next().await?.ok_or_else(|| {
            Failure(format!("{} ended the stream before {goal}; was it stopped?", self.from)).into()
        })
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("from", &self.from).finish_non_exhaustive()
    }
}

impl Server {
    /// Prints what `show` makes of every event of one name, until nobody reads any more.
    pub(crate) async fn follow(
        &self,
        route: &Route,
        name: &str,
        mut show: impl FnMut(&Value) -> ClientResult<String>,
    ) -> ClientResult<ExitCode> {
        let mut events = self.events(Method::GET, route, Body::None).await?;
        loop {
            let event = events.next_before("you left").await?;
            if event.name == name && !output::write_part(&show(&event.json()?)?)? {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}

/// The event stream format of the HTML standard. Holds what no line end has closed yet.
#[derive(Debug, Default)]
struct Parser {
    line: Vec<u8>,
    /// The last byte was a carriage return: a line feed now belongs to it.
    after_return: bool,
    /// A byte order mark may stand before the first line only.
    begun: bool,
    name: String,
    data: String,
    has_data: bool,
}

impl Parser {
    /// Takes bytes; the events they complete go to `out`. False when an event outgrows its bound.
    fn push(&mut self, bytes: &[u8], out: &mut VecDeque<Event>) -> bool {
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            if std::mem::take(&mut self.after_return) && *first == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let Some(end) = rest.iter().position(|b| matches!(b, b'\n' | b'\r')) else {
                self.line.extend_from_slice(rest);
                break;
            };
            self.line.extend_from_slice(&rest[..end]);
            self.after_return = rest[end] == b'\r';
            rest = &rest[end + 1..];
            let line = std::mem::take(&mut self.line);
            self.take(&line, out);
        }
        self.line.len() + self.data.len() <= LARGEST_EVENT
    }

    fn take(&mut self, line: &[u8], out: &mut VecDeque<Event>) {
        let line = String::from_utf8_lossy(line);
        let mut line = line.as_ref();
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix('\u{feff}').unwrap_or(line);
        }
        if line.is_empty() {
            let name = std::mem::take(&mut self.name);
            let data = std::mem::take(&mut self.data);
            // Without data it is no event, as the standard has it.
            if std::mem::take(&mut self.has_data) {
                let name = if name.is_empty() { "message".to_owned() } else { name };
                out.push_back(Event { name, data });
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            // Comments keep the line alive; ids and retry times are for those who reconnect.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
