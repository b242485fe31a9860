//! Logs of pods: as text, or line by line as events.

use std::io;

use access::Verb;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use fleet::resources::log_tail::{TailEvent, TailQuery, tail};
use fleet::resources::logs::{self, End, Entry, What, Whose};
use futures::StreamExt;
use http::{HeaderMap, HeaderValue, header};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;
use utoipa_axum::routes;

use super::live::log::MOST_BYTES;
use super::pods::{PODS, PodRef};
use super::rights::LOST;
use super::scope::permit;
use super::{Api, Caller, Problem, Query, Rights, Route, Routes, sse};

pub(crate) fn routes() -> Routes {
    Routes::default().with(Route::list(), routes!(log)).with(Route::list(), routes!(logs_of))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct LogParams {
    namespace: String,
    /// Needed for a pod with several containers.
    container: Option<String>,
    /// Go on with what comes.
    #[serde(default)]
    follow: bool,
    /// Read the log of the container before the one that runs now.
    #[serde(default)]
    previous: bool,
    /// Begin this many lines before the end.
    tail: Option<u32>,
    /// Begin this long ago: `5m`, `90s`.
    since: Option<String>,
    /// RFC 3339: begin at this time.
    #[serde(rename = "sinceTime")]
    #[param(value_type = Option<String>, rename = "sinceTime")]
    since_time: Option<Timestamp>,
    /// End after about so many bytes.
    #[serde(rename = "limitBytes")]
    #[param(rename = "limitBytes")]
    limit_bytes: Option<u64>,
    /// Begin each line with the time at which it was written.
    #[serde(default)]
    timestamps: bool,
    /// As a file to keep: any value.
    download: Option<String>,
    /// As the header `Request-Timeout`; for opening the log.
    #[expect(dead_code, reason = "read by the pipeline")]
    timeout: Option<String>,
}

#[derive(Debug, Serialize)]
struct Line<'a> {
    pod: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<&'a str>,
    line: &'a str,
    /// It was longer than is shown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
}

/// The log of a pod
///
/// As text, which breaks off if the log does; with `Accept: text/event-stream`, an event `line` for
/// each, then `end` with the `reason` (empty when there is no more).
#[utoipa::path(
    get, path = "/clusters/{cluster}/resources/pods/{name}/log", tag = "pods", params(LogParams),
    responses((status = 200, description = "The log", content(
        (String = "text/plain"), (String = "text/event-stream")
    )))
)]
async fn log(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, name)): Path<(String, String)>,
    Query(asked): Query<LogParams>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let what = What {
        container: asked.container.clone(),
        follow: asked.follow,
        previous: asked.previous,
        tail: asked.tail,
        since_seconds: asked.since.as_deref().map(seconds).transpose()?,
        since_time: asked.since_time,
        limit_bytes: asked.limit_bytes,
        timestamps: asked.timestamps,
    };
    let pod = PodRef { cluster: &cluster, namespace: &asked.namespace, name: &name };
    let connection = pod.connection(&api, &caller, Verb::Log)?;
    let read = [("container", asked.container.clone()), ("since", asked.since.clone())];
    let read = read.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.into())));
    let of = (&*cluster, Some(&*asked.namespace));
    caller.note_read(&api, Verb::Log, of, (PODS, Some(&name)), read.collect())?;
    let place = sse::open(&api, &caller, "log", name.clone(), cluster.clone())?;
    let within = (&*cluster, Some(&*asked.namespace));
    let rights = Rights::to(&api, &caller, within, PODS, Verb::Log);
    let whose = Whose::Pod(name.clone());
    let entries = logs::logs(&connection, &asked.namespace, whose, &what, caller.deadline).await?;
    if sse::wanted(&headers) {
        let events = entries.map(move |entry| event(&entry, asked.container.as_deref()));
        return Ok(sse::respond(&api, place, rights.guard_events(events)));
    }
    let pieces = entries.filter_map(|entry| std::future::ready(text(entry)));
    let stopping = || Err(io::Error::other(sse::STOPPING));
    let pieces = rights.guard(pieces, || Err(io::Error::other(LOST)));
    let body = Body::from_stream(sse::until_stopped(&api, place, pieces, stopping));
    Ok(plain(body, asked.download.as_ref().map(|_| name)))
}

/// An answer of text; as a file, if a browser is to keep it.
fn plain(body: Body, file: Option<String>) -> Response {
    let mut response =
        ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response();
    if let Some(file) = file {
        // Names of pods and namespaces need no quoting.
        let disposition = format!("attachment; filename=\"{file}.log\"");
        if let Ok(value) = HeaderValue::from_str(&disposition) {
            response.headers_mut().insert(header::CONTENT_DISPOSITION, value);
        }
    }
    response
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SelectedLogParams {
    namespace: String,
    /// A label selector: `app=web`.
    selector: String,
    /// All containers unless said, init containers left out.
    container: Option<String>,
    /// Go on with what comes, pods that appear later too.
    #[serde(default)]
    follow: bool,
    /// Read the log of the container before the one that runs now.
    #[serde(default)]
    previous: bool,
    /// RFC 3339: begin at this time.
    #[param(value_type = Option<String>)]
    since_time: Option<Timestamp>,
    /// Begin so many lines before the end of each log.
    tail_lines: Option<u32>,
    /// End after so many bytes; a gigabyte unless said, and no more than that.
    limit_bytes: Option<u64>,
    /// As a file to keep: any value.
    download: Option<String>,
    /// As the header `Request-Timeout`; for finding the pods.
    #[expect(dead_code, reason = "read by the pipeline")]
    timeout: Option<String>,
}

/// The logs of all pods that a selector matches
///
/// As text, each line with its pod and container before it, `shop-web-1/main hello`; what could not be
/// read is a line that begins with `# `. The topic `log` of the socket tells the same as events.
#[utoipa::path(
    get, path = "/clusters/{cluster}/log", tag = "pods", params(SelectedLogParams),
    responses((status = 200, description = "The logs", body = String, content_type = "text/plain"))
)]
async fn logs_of(
    State(api): State<Api>,
    caller: Caller,
    Path(cluster): Path<String>,
    Query(asked): Query<SelectedLogParams>,
) -> Result<Response, Problem> {
    let namespace = asked.namespace.clone();
    permit(&caller, &cluster, (Some(&namespace), PODS, "*"), Verb::Log)?;
    let read = [("container", asked.container.clone()), ("selector", Some(asked.selector.clone()))];
    let read = read.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.into())));
    caller.note_read(
        &api,
        Verb::Log,
        (&*cluster, Some(&*namespace)),
        (PODS, None),
        read.collect(),
    )?;
    let place = sse::open(&api, &caller, "log", asked.selector.clone(), cluster.clone())?;
    let rights = Rights::to(&api, &caller, (&cluster, Some(&namespace)), PODS, Verb::Log);
    let query = TailQuery {
        namespace: asked.namespace,
        pod: None,
        selector: Some(asked.selector),
        container: asked.container,
        follow: asked.follow,
        previous: asked.previous,
        since_time: asked.since_time,
        tail_lines: asked.tail_lines,
        limit_bytes: Some(asked.limit_bytes.unwrap_or(MOST_BYTES).min(MOST_BYTES)),
    };
    let (all, asker) = (api.clone(), caller.clone());
    let connect = move || asker.connection(&all, &cluster);
    let events = Box::pin(tail(connect, query, caller.deadline)).await?;
    let pieces = events.map(|event| match event {
        TailEvent::Line { pod, container, text, .. } => Ok(format!("{pod}/{container} {text}\n")),
        TailEvent::Notice(why) => Ok(format!("# {why}\n")),
    });
    let stopping = || Err(io::Error::other(sse::STOPPING));
    let pieces = rights.guard(pieces, || Err(io::Error::other(LOST)));
    let body = Body::from_stream(sse::until_stopped(&api, place, pieces, stopping));
    Ok(plain(body, asked.download.map(|_| namespace)))
}

fn event(entry: &Entry, container: Option<&str>) -> Event {
    match entry {
        Entry::Line { pod, line, cut } => {
            sse::event("line", &Line { pod, container, line, cut: *cut })
        }
        Entry::End { why: End::Complete, .. } => sse::end(""),
        Entry::End { why: End::Refused(why) | End::Lost(why), .. } => sse::end(why),
    }
}

/// A line of text. A log that breaks off breaks the answer off: a short one is never taken for whole.
fn text(entry: Entry) -> Option<io::Result<String>> {
    match entry {
        Entry::Line { line, .. } => Some(Ok(line + "\n")),
        Entry::End { why: End::Complete, .. } => None,
        Entry::End { why: End::Refused(why) | End::Lost(why), .. } => {
            Some(Err(io::Error::other(why)))
        }
    }
}

/// `5m`, `1h30m`, or a number of seconds; rounded up, for the API server counts in whole ones.
fn seconds(text: &str) -> Result<u32, Problem> {
    let read = || {
        if let Ok(seconds) = text.parse::<u32>() {
            return Some(seconds);
        }
        let duration: SignedDuration = text.parse().ok()?;
        let up = i64::from(duration.subsec_nanos() > 0);
        u32::try_from(duration.as_secs().checked_add(up)?).ok()
    };
    read().filter(|seconds| *seconds > 0).ok_or_else(|| {
        Problem::invalid(format!("since={text:?} is not a duration, such as 5m, 90s or 1h30m"))
    })
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn a_duration_is_read_as_people_write_it() {
        for (text, expected) in
            [("90", 90), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("500ms", 1)]
        {
            assert_eq!(seconds(text).unwrap(), expected, "{text}");
        }
        for wrong in ["", "0", "0s", "-5m", "soon", "5x"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
