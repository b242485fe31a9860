//! The topic `log`: lines of a pod, or of all pods that a selector matches.

use std::sync::Arc;

use access::Verb;
use fleet::resources::log_tail::{TailEvent, TailQuery, tail};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stallproof::Deadline;

use super::{Frames, frames, guarded_in};
use crate::api::pods::PODS;
use crate::api::scope::permit;
use crate::api::{Api, Caller, Problem, Rights};

/// Lines of one frame.
const CHUNK: usize = 500;
/// For finding the pods.
const FIND: std::time::Duration = std::time::Duration::from_secs(30);
/// What one log may tell at most, unless less is asked for.
pub(crate) const MOST_BYTES: u64 = 1 << 30;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct LogTopic {
    cluster: String,
    namespace: String,
    pod: Option<String>,
    selector: Option<String>,
    container: Option<String>,
    #[serde(default)]
    previous: bool,
    since_time: Option<Timestamp>,
    tail_lines: Option<u32>,
    #[serde(default)]
    follow: bool,
    limit_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Line {
    pod: String,
    container: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Timestamp>,
    text: String,
    /// It was longer than is shown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
}

#[derive(Default, Serialize)]
struct Lines {
    lines: Vec<Line>,
    /// What could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notices: Vec<String>,
}

pub(super) fn stream(
    api: &Api,
    caller: &Caller,
    id: u64,
    topic: LogTopic,
) -> Result<Frames, Problem> {
    let LogTopic { cluster, namespace, pod, selector, .. } = topic.clone();
    if pod.is_some() == selector.is_some() {
        return Err(Problem::invalid("say either which `pod`, or the `selector` of several"));
    }
    let there = api.fleet.view().clusters.contains_key(cluster.as_str());
    if !there || !caller.permissions.may_see_cluster(&cluster) {
        return Err(Problem::no_such_cluster(&cluster));
    }
    let name = pod.as_deref().unwrap_or("*");
    permit(caller, &cluster, (Some(&namespace), PODS, name), Verb::Log)?;
    let read = [("container", topic.container.clone()), ("selector", selector.clone())];
    let read = read.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.into())));
    let of = (cluster.as_str(), Some(namespace.as_str()));
    caller.note_read(api, Verb::Log, of, (PODS, pod.as_deref()), read.collect())?;
    let rights = Rights::to(api, caller, (&cluster, Some(&namespace)), PODS, Verb::Log);
    let query = TailQuery {
        namespace,
        pod,
        selector,
        container: topic.container,
        follow: topic.follow,
        previous: topic.previous,
        since_time: topic.since_time,
        tail_lines: topic.tail_lines,
        limit_bytes: Some(topic.limit_bytes.unwrap_or(MOST_BYTES).min(MOST_BYTES)),
    };
    let (all, asker, name) = (api.clone(), caller.clone(), Arc::<str>::from(cluster.as_str()));
    let connect = move || asker.connection(&all, &name);
    let opening = async move {
        match Box::pin(tail(connect, query, Deadline::after(FIND))).await {
            Ok(events) => {
                let told = events.ready_chunks(CHUNK).map(move |events| told(id, events));
                told.chain(stream::once(async move { frames::complete(id) })).boxed()
            }
            Err(error) => {
                let end = frames::end(Some(id), None, &Problem::from(error));
                stream::iter([end]).boxed()
            }
        }
    };
    guarded_in((api, caller), id, ("log", cluster), rights, stream::once(opening).flatten())
}

/// The frame for what was read.
fn told(id: u64, events: Vec<TailEvent>) -> String {
    let mut told = Lines::default();
    for event in events {
        match event {
            TailEvent::Line { pod, container, at, text, cut } => {
                told.lines.push(Line { pod, container, at, text, cut });
            }
            TailEvent::Notice(why) => told.notices.push(why),
        }
    }
    frames::with(frames::head(Some(id), None, "lines"), &told)
}
