//! Audits and history as JSON lines: every line, the oldest first, part by part, of all replicas.
//!
//! Contract: a part has a bounded number of lines and bytes, and is read when the connection has taken the one
//! before. What this replica has comes first, then what each of the others has. An export that breaks off
//! breaks the answer off, so that a short one is never taken for whole; replicas that could not be asked are
//! its last line, `{"missing": […]}`.

use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use access::Verb;
use axum::Json;
use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use futures::future::BoxFuture;
use futures::{Stream, StreamExt, stream};
use http::{HeaderMap, header};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stallproof::Deadline;

use super::leader::has_pass;
use super::replicas::{self, MissingReplica, Replica, ReplicaQuery, Replicas};
use super::rights::LOST;
use super::{Api, Caller, Problem, Rights, sse};

/// What a part may take, however long the export is.
const PATIENCE: Duration = Duration::from_secs(30);
const JSON_LINES: &str = "application/x-ndjson";

/// A part of a replica's export, as it is told to another.
#[derive(Serialize, Deserialize)]
pub(crate) struct ExportPart {
    lines: Vec<Value>,
    next: Option<String>,
}

impl ExportPart {
    pub(crate) fn new<T: Serialize>(lines: Vec<T>, next: Option<impl ToString>) -> Self {
        let written = |line: T| serde_json::to_value(line).unwrap_or_default();
        let lines = lines.into_iter().map(written).collect();
        Self { lines, next: next.map(|next| next.to_string()) }
    }
}

/// Where a part begins, as the one before said it.
pub(crate) fn place<P: FromStr>(after: Option<&str>) -> Result<Option<P>, Problem> {
    let place = after.map(str::parse).transpose();
    place.map_err(|_| Problem::invalid("after is no place that a part before ended at"))
}

type Own = dyn Fn(Option<String>, Deadline) -> BoxFuture<'static, Result<ExportPart, Problem>>
    + Send
    + Sync;

/// What is exported.
#[derive(Clone)]
pub(crate) struct Export {
    /// The resource that the caller must be allowed to list.
    pub(crate) resource: &'static str,
    /// The route, and the query without `after`, as the other replicas are asked it.
    pub(crate) path: &'static str,
    pub(crate) query: Vec<(&'static str, Option<String>)>,
    /// Reads a part of what this replica has.
    pub(crate) own: Arc<Own>,
}

/// Answers with the whole export, or, to another replica, with the part of this one after `after`.
pub(crate) async fn answer(
    api: &Api,
    caller: &Caller,
    headers: &HeaderMap,
    export: Export,
    after: Option<&str>,
) -> Result<Response, Problem> {
    caller.may_in_fleet(export.resource, Verb::List)?;
    if has_pass(headers) {
        let part = export.part(after, caller.deadline).await?;
        return Ok(Json(part).into_response());
    }
    let replicas = replicas::to_ask(api, headers).cloned();
    let rights = Rights::to(api, caller, (access::FLEET, None), export.resource, Verb::List);
    let place = sse::open(api, caller, "audit-export", export.path, access::FLEET)?;
    let parts = Parts { api: api.clone(), caller: caller.clone(), export };
    let lines = rights.guard(parts.stream(replicas), || Err(io::Error::other(LOST)));
    let stopping = || Err(io::Error::other(sse::STOPPING));
    let body = Body::from_stream(sse::until_stopped(api, place, lines, stopping));
    Ok(([(header::CONTENT_TYPE, JSON_LINES)], body).into_response())
}

impl Export {
    async fn part(&self, after: Option<&str>, deadline: Deadline) -> Result<ExportPart, Problem> {
        (self.own)(after.map(str::to_owned), deadline).await
    }

    fn question(&self, after: Option<&String>) -> ReplicaQuery<'static> {
        let query = self.query.iter().cloned().chain([("after", after.cloned())]);
        let query = query.filter_map(|(name, value)| Some((name, value?))).collect();
        ReplicaQuery { path: self.path, query }
    }
}

struct Parts {
    api: Api,
    caller: Caller,
    export: Export,
}

/// Whose part is next, and from where.
enum Next {
    Own(Option<String>),
    Replica(Replica, Option<String>),
}

/// What is left of an export.
struct Left {
    next: Option<Next>,
    /// To be listed when the own part is done.
    replicas: Option<Replicas>,
    others: Vec<Replica>,
    missing: Vec<MissingReplica>,
}

impl Parts {
    fn stream(
        self,
        replicas: Option<Replicas>,
    ) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        let next = Some(Next::Own(None));
        let left = Left { next, replicas, others: Vec::new(), missing: Vec::new() };
        let lines = stream::unfold(Some((self, left)), |open| async move {
            let (parts, mut left) = open?;
            match parts.next(&mut left).await {
                Ok(Some(lines)) => Some((written(&lines), Some((parts, left)))),
                Ok(None) => None,
                Err(problem) => Some((Err(io::Error::other(problem.detail().to_owned())), None)),
            }
        });
        lines.boxed()
    }

    async fn next(&self, left: &mut Left) -> Result<Option<Vec<Value>>, Problem> {
        let deadline = Deadline::after(PATIENCE);
        let lines = match left.next.take() {
            Some(Next::Own(after)) => {
                let part = self.export.part(after.as_deref(), deadline).await?;
                left.next = part.next.map(|next| Next::Own(Some(next)));
                if left.next.is_none()
                    && let Some(replicas) = left.replicas.take()
                {
                    match replicas::others(&replicas, deadline).await {
                        Ok(others) => left.others = others,
                        Err(missing) => left.missing.push(missing),
                    }
                }
                part.lines
            }
            Some(Next::Replica(replica, after)) => {
                let question = self.export.question(after.as_ref());
                let deadline = deadline.within(replicas::PATIENCE);
                match replica.ask::<ExportPart>(&self.api, &self.caller, &question, deadline).await
                {
                    Ok(part) => {
                        left.next = part.next.map(|next| Next::Replica(replica, Some(next)));
                        part.lines
                    }
                    Err(why) => {
                        left.missing.push(MissingReplica::new(replica.name, why));
                        Vec::new()
                    }
                }
            }
            None if left.missing.is_empty() => return Ok(None),
            None => return Ok(Some(vec![json!({ "missing": std::mem::take(&mut left.missing) })])),
        };
        if left.next.is_none() {
            left.next = left.others.pop().map(|replica| Next::Replica(replica, None));
        }
        Ok(Some(lines))
    }
}

fn written(lines: &[Value]) -> io::Result<Bytes> {
    let mut text = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
    }
    Ok(text.into())
}
