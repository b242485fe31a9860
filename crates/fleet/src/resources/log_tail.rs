//! Logs of every container of the pods that a selector matches, now and as they come.
//!
//! Contract:
//! - Lines of one container come in order, each with the time at which it was written. A container that
//!   is restarted goes on after its last line; nothing is told twice.
//! - Followed, a pod that appears later is read as well. What cannot be read is a notice, and no error of
//!   the others; it is tried again after a while that grows, as is a log that ends while its container
//!   runs. The same notice is told once.
//! - No more than [`MOST_LOGS`] logs are read at once, and no more than the query's bytes in all; a notice
//!   says so. Dropping the stream ends everything.

use std::collections::HashMap;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, FuturesUnordered, SelectAll};
use futures::{FutureExt, Stream, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;
use objects::watching::Change;
use stallproof::backoff::{Backoff, Curve};
use stallproof::{Deadline, sentence};
use tokio::time::sleep;

use super::check_segment;
use super::list::ListQuery;
use super::logs::{End, Entry, What, open};
use super::watch::watch_as;
use crate::{Connection, Error};

/// Logs that are read at once: each costs the API server a connection to a kubelet.
pub const MOST_LOGS: usize = 40;
/// For a log to be opened.
const OPEN: Duration = Duration::from_secs(10);
/// Before a log is opened again that could not be, or that broke off.
const AGAIN: Curve = Curve { first: Duration::from_secs(1), most: Duration::from_secs(30) };

/// Which logs, and which part of them.
#[derive(Clone, Debug, Default)]
pub struct TailQuery {
    pub namespace: String,
    /// One pod; otherwise those that `selector` matches.
    pub pod: Option<String>,
    pub selector: Option<String>,
    /// All containers unless said, init containers left out.
    pub container: Option<String>,
    pub follow: bool,
    pub previous: bool,
    pub since_time: Option<Timestamp>,
    pub tail_lines: Option<u32>,
    /// The most bytes in all.
    pub limit_bytes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TailEvent {
    Line {
        pod: String,
        container: String,
        at: Option<Timestamp>,
        text: String,
        /// Whether it was longer than is shown.
        cut: bool,
    },
    /// Something that could not be read; a sentence.
    Notice(String),
}

/// Reads logs. The deadline is for finding the pods.
pub async fn tail<C>(
    connect: C,
    query: TailQuery,
    deadline: Deadline,
) -> Result<impl Stream<Item = TailEvent> + Send, Error>
where
    C: Fn() -> Result<Connection, Error> + Clone + Send + 'static,
{
    check_segment("namespace", &query.namespace)?;
    let fields = match &query.pod {
        Some(pod) => {
            check_segment("pod", pod)?;
            Some(format!("metadata.name={pod}"))
        }
        None => None,
    };
    let pods = ListQuery {
        kind: "pods.v1.".to_owned(),
        namespace: Some(query.namespace.clone()),
        labels: query.selector.clone().filter(|_| query.pod.is_none()),
        fields,
        ..ListQuery::default()
    };
    let pods = watch_as::<Pod>(connect.clone(), pods, deadline).await?.boxed();
    let tail = Tail {
        connect,
        left: query.limit_bytes,
        query,
        pods: Some(pods),
        logs: SelectAll::new(),
        known: HashMap::new(),
        later: FuturesUnordered::new(),
        full: false,
        ended: false,
    };
    Ok(stream::unfold(tail, async |mut tail| Some((tail.next().await?, tail))))
}

struct Tail<C> {
    connect: C,
    query: TailQuery,
    /// The bytes that may still be told.
    left: Option<u64>,
    /// None once no further pod is looked for.
    pods: Option<BoxStream<'static, Change<Vec<Pod>, Pod>>>,
    logs: SelectAll<BoxStream<'static, (ContainerName, Entry)>>,
    known: HashMap<ContainerName, ContainerLog>,
    /// Containers whose logs are looked at again when their time has come.
    later: FuturesUnordered<BoxFuture<'static, ContainerName>>,
    /// Whether it was said that there are more logs than are read.
    full: bool,
    ended: bool,
}

/// A pod and one of its containers.
type ContainerName = (String, String);

/// One start of a container, as the pod's status tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    id: String,
    running: bool,
}

struct ContainerLog {
    /// As the newest status of the pod says; none once the pod is gone.
    newest: Option<Run>,
    /// The run whose log is open, or was read to its end.
    read: Option<String>,
    open: bool,
    last: Option<Timestamp>,
    /// After a restart: lines up to this one were told before.
    told: Option<Timestamp>,
    backoff: Backoff,
    /// What was said last of why it cannot be read.
    said: Option<String>,
}

impl ContainerLog {
    fn new() -> Self {
        Self {
            newest: None,
            read: None,
            open: false,
            last: None,
            told: None,
            backoff: Backoff::new(AGAIN),
            said: None,
        }
    }

    /// Whether there is a run whose log was not read yet.
    fn is_due(&self) -> bool {
        let unread = |run: &Run| self.read.as_ref() != Some(&run.id);
        !self.open && self.newest.as_ref().is_some_and(unread)
    }

    /// The sentence, unless it was said last.
    fn say(&mut self, why: String) -> Option<String> {
        (self.said.as_ref() != Some(&why)).then(|| self.said.insert(why).clone())
    }
}

impl<C: Fn() -> Result<Connection, Error>> Tail<C> {
    async fn next(&mut self) -> Option<TailEvent> {
        loop {
            if self.ended {
                return None;
            }
            let event = match &mut self.pods {
                None if self.logs.is_empty() => return None,
                None => self.logs.next().await.and_then(|told| self.hear(told)),
                Some(pods) => tokio::select! {
                    Some(told) = self.logs.next(), if !self.logs.is_empty() => self.hear(told),
                    Some(name) = self.later.next(), if !self.later.is_empty() => {
                        self.open(name).map(TailEvent::Notice)
                    }
                    change = pods.next() => self.look(change),
                },
            };
            if event.is_some() {
                return event;
            }
        }
    }

    /// Takes a change of the pods.
    fn look(&mut self, change: Option<Change<Vec<Pod>, Pod>>) -> Option<TailEvent> {
        let mut notice = None;
        match change {
            Some(Change::Listed(pods)) => {
                self.known.values_mut().for_each(|log| log.newest = None);
                for pod in &pods {
                    notice = self.consider(pod).or(notice);
                }
                self.forget();
                if !self.query.follow {
                    self.pods = None;
                    if self.logs.is_empty() && notice.is_none() {
                        let of = self.query.pod.as_deref().or(self.query.selector.as_deref());
                        let of = of.unwrap_or("any label");
                        notice = Some(format!("no container of {of} has a log yet"));
                    }
                }
            }
            Some(Change::Applied(pod)) => notice = self.consider(&pod),
            Some(Change::Deleted(pod)) => {
                let gone = pod.name_any();
                let of_it = self.known.iter_mut().filter(|((pod, _), _)| *pod == gone);
                of_it.for_each(|(_, log)| log.newest = None);
                self.forget();
            }
            Some(Change::Interrupted { why }) => notice = Some(why),
            Some(Change::Resumed) => {}
            None => self.pods = None,
        }
        notice.map(TailEvent::Notice)
    }

    /// Forgets pods that are gone. What is open of their logs is read to its end.
    fn forget(&mut self) {
        self.known.retain(|_, log| log.open || log.newest.is_some());
    }

    /// Opens the logs of a pod's containers that are not open and have one.
    fn consider(&mut self, pod: &Pod) -> Option<String> {
        let mut notice = None;
        for (container, run) in self.containers(pod) {
            let name = (pod.name_any(), container);
            let known = self.known.entry(name.clone()).or_insert_with(ContainerLog::new);
            known.newest = Some(run);
            if known.is_due() {
                notice = self.open(name).or(notice);
            }
        }
        notice
    }

    /// Opens the log of a container's newest run, unless it is open or was read; what there is to say.
    fn open(&mut self, name: ContainerName) -> Option<String> {
        let open = self.known.values().filter(|log| log.open).count();
        let known = self.known.get_mut(&name).filter(|known| known.is_due())?;
        if open >= MOST_LOGS {
            let first = !std::mem::replace(&mut self.full, true);
            return first.then(|| {
                format!(
                    "{MOST_LOGS} logs are read; those of further pods are left out: choose fewer"
                )
            });
        }
        match (self.connect)() {
            Ok(connection) => {
                known.read = known.newest.as_ref().map(|run| run.id.clone());
                (known.open, known.told) = (true, known.last);
                let last = known.last;
                self.logs.push(self.read(connection, name, last));
                None
            }
            Err(error) => {
                let why = known.say(sentence(&error));
                self.try_later(name);
                why
            }
        }
    }

    /// Looks at a container's log again after a while, if logs are followed.
    fn try_later(&mut self, name: ContainerName) {
        if !self.query.follow || self.query.previous {
            return;
        }
        let Some(known) = self.known.get_mut(&name) else { return };
        let wait = known.backoff.failed().wait;
        self.later.push(sleep(wait).map(|()| name).boxed());
    }

    /// The containers with a log, and which run of them it is of.
    fn containers(&self, pod: &Pod) -> Vec<(String, Run)> {
        let statuses = pod.status.as_ref();
        let of = |all: Option<&Vec<ContainerStatus>>| all.cloned().unwrap_or_default();
        let mut all = of(statuses.and_then(|status| status.container_statuses.as_ref()));
        if self.query.container.is_some() {
            all.extend(of(statuses.and_then(|status| status.init_container_statuses.as_ref())));
            all.extend(of(statuses.and_then(|it| it.ephemeral_container_statuses.as_ref())));
        }
        let asked = |status: &ContainerStatus| {
            self.query.container.as_ref().is_none_or(|asked| *asked == status.name)
        };
        let run = |status: ContainerStatus| {
            let state = status.state.unwrap_or_default();
            let before = status.last_state.is_some_and(|state| state.terminated.is_some());
            let running = state.running.is_some();
            let id = status.container_id.unwrap_or_default();
            (before || running || state.terminated.is_some())
                .then_some((status.name, Run { id, running }))
        };
        all.into_iter().filter(asked).filter_map(run).collect()
    }

    fn read(
        &self,
        connection: Connection,
        name: ContainerName,
        last: Option<Timestamp>,
    ) -> BoxStream<'static, (ContainerName, Entry)> {
        let query = &self.query;
        let what = What {
            container: Some(name.1.clone()),
            follow: query.follow,
            previous: query.previous,
            // What was read already is not counted from the end again.
            tail: query.tail_lines.filter(|_| last.is_none()),
            since_time: last.or(query.since_time),
            limit_bytes: self.left,
            timestamps: true,
            ..What::default()
        };
        let (namespace, pod) = (query.namespace.clone(), name.0.clone());
        let opened = async move {
            let deadline = Deadline::after(OPEN);
            match open(&connection, &namespace, pod.clone(), &what, deadline).await {
                Ok(lines) => lines.boxed(),
                Err(error) => {
                    let why = End::Refused(sentence(&error));
                    stream::iter([Entry::End { pod, why }]).boxed()
                }
            }
        };
        let lines = stream::once(opened).flatten();
        lines.map(move |entry| (name.clone(), entry)).boxed()
    }

    /// Takes a line, or the end of a log.
    fn hear(&mut self, (name, entry): (ContainerName, Entry)) -> Option<TailEvent> {
        let known = self.known.get_mut(&name)?;
        match entry {
            Entry::Line { line, cut, .. } => {
                let (at, text) = timed(line);
                known.backoff.succeeded();
                known.said = None;
                // The API server counts in whole seconds: it repeats what was read in the last one.
                if at.is_some() && at <= known.told {
                    return None;
                }
                known.last = at.or(known.last);
                if let Some(left) = &mut self.left {
                    let bytes = text.len() as u64 + 1;
                    if bytes > *left {
                        self.ended = true;
                        let most = self.query.limit_bytes.unwrap_or_default();
                        return Some(TailEvent::Notice(format!(
                            "these are the first {most} bytes; there is more"
                        )));
                    }
                    *left -= bytes;
                }
                let (pod, container) = name;
                Some(TailEvent::Line { pod, container, at, text, cut })
            }
            Entry::End { why, .. } => {
                known.open = false;
                let why = match why {
                    End::Refused(why) | End::Lost(why) => {
                        let (pod, container) = &name;
                        known.read = None;
                        known.say(format!("{pod}/{container}: {why}"))
                    }
                    End::Complete => {
                        let read = known.read.as_ref();
                        let runs = |run: &Run| run.running && read == Some(&run.id);
                        if known.newest.as_ref().is_some_and(runs) {
                            // The container is about to stop, or the log was cut off while it runs.
                            known.read = None;
                        }
                        None
                    }
                };
                if known.is_due() {
                    self.try_later(name);
                }
                self.forget();
                why.map(TailEvent::Notice)
            }
        }
    }
}

/// The time that a line begins with, and its text.
fn timed(line: String) -> (Option<Timestamp>, String) {
    match line.split_once(' ').map(|(time, text)| (time.parse(), text)) {
        Some((Ok(at), text)) => (Some(at), text.to_owned()),
        _ => match line.parse() {
            Ok(at) => (Some(at), String::new()),
            Err(_) => (None, line),
        },
    }
}

#[cfg(test)]
mod tests;
