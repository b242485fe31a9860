//! Streams the logs of pods, line by line.
//!
//! Contract:
//! - Each pod's lines come in order and end with one [`Entry::End`] that has the reason; the stream ends
//!   with the last of them. A pod whose log cannot be opened has such an end and is no error of the
//!   others. Dropping the stream ends everything.
//! - A line is cut at [`LONGEST_LINE`], and marked as cut.
//! - A log that is not followed and stalls is given up after [`STALLED`]. A log that is followed may be
//!   silent for days, and HTTP cannot ask whether the server is still there: the TCP keepalive of the
//!   cluster's client finds a dead connection, and the log ends as lost.

use std::io;
use std::time::Duration;

use futures::io::AsyncBufRead;
use futures::{AsyncBufReadExt, Stream, StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use kube::{Api, ResourceExt};
use serde::{Deserialize, Serialize};
use stallproof::{Deadline, sentence};

use super::check_segment;
use crate::{Connection, Error};

pub const LONGEST_LINE: usize = 64 * 1024;
/// The most pods of one stream. Each costs the API server a connection to a kubelet.
pub const MOST_PODS: usize = 20;
const STALLED: Duration = Duration::from_secs(30);

/// The pods whose logs are read.
#[derive(Clone, Debug)]
pub enum Whose {
    Pod(String),
    /// All pods that a label selector matches now.
    Selected(String),
}

/// The part of the logs that is read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct What {
    /// The container; it may be left out for a pod with one.
    pub container: Option<String>,
    pub follow: bool,
    /// Reads the log of the container before the present one.
    pub previous: bool,
    /// Begins this many lines before the end.
    pub tail: Option<u32>,
    pub since_seconds: Option<u32>,
    /// Begins at this time; `since_seconds` is left out then.
    pub since_time: Option<Timestamp>,
    /// Ends after about so many bytes, as the API server counts them.
    pub limit_bytes: Option<u64>,
    /// Begins each line with the time at which it was written.
    pub timestamps: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "entry", rename_all = "camelCase")]
pub enum Entry {
    Line {
        pod: String,
        line: String,
        /// Whether it was longer than [`LONGEST_LINE`].
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        cut: bool,
    },
    End {
        pod: String,
        #[serde(flatten)]
        why: End,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "end", content = "why", rename_all = "camelCase")]
pub enum End {
    /// The whole log was read; if it was followed, the container has stopped.
    Complete,
    /// The API server refused it.
    Refused(String),
    /// The connection broke.
    Lost(String),
}

/// Streams logs. The deadline is for finding the pods and opening their logs.
pub async fn logs(
    connection: &Connection,
    namespace: &str,
    whose: Whose,
    what: &What,
    deadline: Deadline,
) -> Result<impl Stream<Item = Entry> + Send + use<>, Error> {
    check_segment("namespace", namespace)?;
    let logs = match whose {
        // A refusal of the only pod is the caller's error.
        Whose::Pod(pod) => vec![open(connection, namespace, pod, what, deadline).await?.boxed()],
        Whose::Selected(labels) => {
            let pods = selected(connection, namespace, &labels, deadline).await?;
            let opening = stream::iter(pods).map(|pod| async move {
                match open(connection, namespace, pod.clone(), what, deadline).await {
                    Ok(lines) => lines.boxed(),
                    Err(error) => {
                        let why = End::Refused(sentence(&error));
                        stream::iter([Entry::End { pod, why }]).boxed()
                    }
                }
            });
            opening.buffer_unordered(MOST_PODS).collect().await
        }
    };
    Ok(stream::select_all(logs))
}

async fn selected(
    connection: &Connection,
    namespace: &str,
    labels: &str,
    deadline: Deadline,
) -> Result<Vec<String>, Error> {
    let params = ListParams::default().labels(labels).limit(MOST_PODS as u32 + 1);
    let pods = connection
        .call("looking for the pods", deadline, |client| async move {
            Api::<Pod>::namespaced(client, namespace).list_metadata(&params).await
        })
        .await?;
    match pods.items.len() {
        0 => Err(Error::Invalid(format!("no pod in {namespace} has the labels {labels}"))),
        1..=MOST_PODS => Ok(pods.items.iter().map(ResourceExt::name_any).collect()),
        _ => Err(Error::Invalid(format!(
            "more than {MOST_PODS} pods in {namespace} have the labels {labels}; choose fewer"
        ))),
    }
}

pub(super) async fn open(
    connection: &Connection,
    namespace: &str,
    pod: String,
    what: &What,
    deadline: Deadline,
) -> Result<impl Stream<Item = Entry> + Send + use<>, Error> {
    check_segment("pod", &pod)?;
    let params = LogParams {
        container: what.container.clone(),
        follow: what.follow,
        previous: what.previous,
        since_seconds: what.since_seconds.filter(|_| what.since_time.is_none()).map(Into::into),
        since_time: what.since_time,
        limit_bytes: what.limit_bytes.map(|most| i64::try_from(most).unwrap_or(i64::MAX)),
        tail_lines: what.tail.map(Into::into),
        timestamps: what.timestamps,
        ..LogParams::default()
    };
    let name = &pod;
    let log = connection
        .call("opening a log", deadline, |client| async move {
            Api::<Pod>::namespaced(client, namespace).log_stream(name, &params).await
        })
        .await?;
    let patience = (!what.follow).then_some(STALLED);
    // The stream keeps the cluster's client alive.
    let connection = connection.clone();
    let open = Some((Box::pin(log), pod, connection));
    Ok(stream::unfold(open, move |open| async move {
        let (mut log, pod, connection) = open?;
        Some(match next_line(&mut log, patience).await {
            Ok(Some((line, cut))) => {
                (Entry::Line { pod: pod.clone(), line, cut }, Some((log, pod, connection)))
            }
            Ok(None) => (Entry::End { pod, why: End::Complete }, None),
            Err(error) => (Entry::End { pod, why: End::Lost(sentence(&error)) }, None),
        })
    }))
}

/// Reads the next line without its end, and whether it was cut; `None` at the end.
async fn next_line(
    log: &mut (impl AsyncBufRead + Unpin),
    patience: Option<Duration>,
) -> io::Result<Option<(String, bool)>> {
    let (mut line, mut begun, mut cut) = (Vec::new(), false, false);
    loop {
        let buffer = match patience {
            None => log.fill_buf().await?,
            Some(patience) => {
                Deadline::after(patience).bound(log.fill_buf()).await.map_err(|_| {
                    io::Error::other(format!("nothing came for {} s", patience.as_secs()))
                })??
            }
        };
        if buffer.is_empty() {
            break;
        }
        begun = true;
        let end = buffer.iter().position(|&byte| byte == b'\n');
        let piece = &buffer[..end.unwrap_or(buffer.len())];
        let room = LONGEST_LINE - line.len();
        line.extend_from_slice(&piece[..piece.len().min(room)]);
        cut |= piece.len() > room;
        let used = end.map_or(buffer.len(), |end| end + 1);
        log.consume_unpin(used);
        if end.is_some() {
            break;
        }
    }
    Ok(begun.then(|| (String::from_utf8_lossy(&line).into_owned(), cut)))
}

#[cfg(test)]
mod tests;
