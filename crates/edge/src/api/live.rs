//! The socket of the console: one WebSocket for everything that is looked at.
//!
//! ```text
//! client ──subscribe, unsubscribe──► session ──► a stream a topic and cluster ──frames──► client
//! ```
//!
//! Contract:
//! - Frames are text, JSON objects; every one to the client carries the `id` of its subscription. A client
//!   that asks for `gzip` gets large ones compressed, as binary frames.
//! - A stream is asked for its next frame when the client has taken the last one. Nothing queues: a
//!   client that reads slowly is told what there is by then, which is what changed since, once.
//! - Each cluster's part of a subscription is in a place among the streams and on the ledger as
//!   `subscription`. It ends with an `end` that says why as soon as one may no longer see it, and
//!   without a word, at once, when the client unsubscribes.
//! - A socket has [`PER_SOCKET`] subscriptions at most, a user [`SOCKETS`] sockets and [`PER_USER`]
//!   subscriptions. One more is refused, and ends nothing else.

mod feeds;
mod frames;
pub(crate) mod log;
mod rows;
mod shares;

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use access::Verb;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use futures::stream::{AbortHandle, AbortRegistration, Abortable, BoxStream, SelectAll};
use futures::{Stream, StreamExt, stream};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::socket::{self, Session, SessionBackend, SessionEnd};
use super::{Api, Caller, ErrorCode, Problem, Query, Rights, Route, Routes, compress, sse};
use shares::UserPlace;
pub(crate) use shares::UserShares;

/// Of one socket: eight tabs with a table, its events, the fleet and a log each.
const PER_SOCKET: usize = 64;
/// The most clusters of one subscription.
const CLUSTERS: usize = 256;

pub(crate) fn routes() -> Routes {
    Routes::default().with(Route::read(), routes!(socket))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct SocketParams {
    /// `gzip`: large frames come compressed, as binary ones.
    compress: Option<Compression>,
    /// As the header `Request-Timeout`.
    #[expect(dead_code, reason = "read by the pipeline")]
    timeout: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Compression {
    Gzip,
}

/// Everything that is looked at, over one WebSocket
///
/// Frames of JSON text; with `compress=gzip` large ones are binary, and compressed. The client sends `{"op":"subscribe","id":7,"topic":"rows",…}` and
/// `{"op":"unsubscribe","id":7}`; the server answers with frames that carry the id: `columns`, `reset`,
/// `rows`, `synced`, `changes`, `state`, `data`, `lines` and `end`. The topics are `rows`, `events`,
/// `clusters`, `inflight`, `violations`, `meshes` and `log`; docs/api.md has their parameters.
#[utoipa::path(
    get, path = "/socket", tag = "about", params(SocketParams),
    responses((status = 101, description = "It is open"))
)]
async fn socket(
    State(api): State<Api>,
    caller: Caller,
    Query(params): Query<SocketParams>,
    upgrade: socket::UpgradeResult,
) -> Result<Response, Problem> {
    let upgrade = upgrade?;
    let user = Arc::clone(&caller.who.user);
    let seat = api.serving.shares.socket(&user)?;
    let place = sse::open(&api, &caller, "socket", user.to_string(), access::FLEET)?;
    let rights = Rights::new(&api, &caller, |_| true);
    let task = format!("socket of {user}");
    let deadline = caller.deadline;
    let live = LiveSession {
        api: api.clone(),
        caller,
        gzip: params.compress.is_some(),
        frames: SelectAll::new(),
        open: HashMap::new(),
        _seat: seat,
    };
    Ok(socket::open(&api, upgrade, task, (place, rights, deadline), live))
}

/// The frames of one cluster's part of a subscription, or of a whole one.
type Frames = BoxStream<'static, String>;

struct LiveSession {
    api: Api,
    caller: Caller,
    gzip: bool,
    frames: SelectAll<Frames>,
    open: HashMap<u64, OpenSubscription>,
    _seat: UserPlace,
}

struct OpenSubscription {
    abort: Vec<AbortHandle>,
    /// Gone when every stream of it has ended.
    alive: Weak<UserPlace>,
}

impl OpenSubscription {
    fn is_over(&self) -> bool {
        self.alive.strong_count() == 0
    }
}

impl SessionBackend for LiveSession {
    async fn converse(&mut self, Session { to, from }: &mut Session) -> SessionEnd {
        loop {
            let frame = tokio::select! {
                frame = from.next() => {
                    let Some(frame) = frame else { return SessionEnd::Gone };
                    match self.hear(&frame) {
                        Some(refused) => refused,
                        None => continue,
                    }
                }
                Some(frame) = self.frames.next(), if !self.frames.is_empty() => frame,
                () = to.gone() => return SessionEnd::Gone,
            };
            let frame = Bytes::from(frame);
            let compressed = match self.gzip {
                true => compress::gzip_if_worth(&self.api, &frame).await,
                false => None,
            };
            let sent = match compressed {
                Some(compressed) => to.send(compressed).await,
                None => to.send_text(frame).await,
            };
            if sent.is_err() {
                return SessionEnd::Gone;
            }
        }
    }

    fn last(&mut self, _ended: &SessionEnd) -> Option<Bytes> {
        None
    }
}

/// What is common to all frames of a client; the rest is the topic's.
#[derive(Deserialize)]
struct ClientFrame {
    op: String,
    id: u64,
    #[serde(default)]
    topic: String,
    resume: Option<Value>,
    #[serde(flatten)]
    params: Map<String, Value>,
}

impl LiveSession {
    /// Takes a frame of the client; what to answer, if it is refused.
    fn hear(&mut self, frame: &[u8]) -> Option<String> {
        let frame = match serde_json::from_slice::<ClientFrame>(frame) {
            Ok(frame) => frame,
            Err(error) => {
                let detail = format!("a frame is not an object with `op` and `id`: {error}");
                return Some(frames::end(None, None, &Problem::invalid(detail)));
            }
        };
        let id = frame.id;
        let done = match frame.op.as_str() {
            "subscribe" => self.subscribe(frame),
            "unsubscribe" => {
                if let Some(over) = self.open.remove(&id) {
                    over.abort.iter().for_each(AbortHandle::abort);
                }
                Ok(())
            }
            other => Err(Problem::invalid(format!(
                "there is no op {other:?}; subscribe and unsubscribe are those there are"
            ))),
        };
        done.err().map(|problem| frames::end(Some(id), None, &problem))
    }

    fn subscribe(&mut self, frame: ClientFrame) -> Result<(), Problem> {
        self.open.retain(|_, open| !open.is_over());
        let ClientFrame { id, topic, resume, params, .. } = frame;
        if self.open.contains_key(&id) {
            return Err(Problem::invalid(format!(
                "subscription {id} is open already; unsubscribe first, or take another id"
            )));
        }
        if self.open.len() >= PER_SOCKET {
            let detail = format!("{PER_SOCKET} subscriptions are open on this socket; end one");
            return Err(Problem::new(ErrorCode::Overloaded, detail));
        }
        let topic = Topic::read(&topic, params)?;
        let place = Arc::new(self.api.serving.shares.subscription(&self.caller.who.user)?);
        let mut open = OpenSubscription { abort: Vec::new(), alive: Arc::downgrade(&place) };
        for stream in self.streams(id, topic, resume.as_ref())? {
            let (abort, registration) = AbortHandle::new_pair();
            open.abort.push(abort);
            self.frames.push(held(stream, registration, Arc::clone(&place)));
        }
        self.open.insert(id, open);
        Ok(())
    }

    fn streams(
        &self,
        id: u64,
        topic: Topic,
        resume: Option<&Value>,
    ) -> Result<Vec<Frames>, Problem> {
        let Self { api, caller, .. } = self;
        Ok(match topic {
            Topic::Rows(query) => rows::streams(api, caller, id, &query, resume),
            Topic::Clusters => vec![feeds::clusters(api, caller, id)?],
            Topic::Inflight => vec![feeds::inflight(api, caller, id)?],
            Topic::Meshes => vec![feeds::meshes(api, caller, id)?],
            Topic::Violations => vec![feeds::violations(api, caller, id, resume)?],
            Topic::Log(topic) => vec![log::stream(api, caller, id, *topic)?],
        })
    }
}

/// What a client subscribes to.
#[derive(Debug)]
enum Topic {
    /// The topics `rows` and `events`.
    Rows(rows::ClustersAndQuery),
    Clusters,
    Inflight,
    Meshes,
    Violations,
    Log(Box<log::LogTopic>),
}

impl Topic {
    fn read(topic: &str, params: Map<String, Value>) -> Result<Self, Problem> {
        Ok(match topic {
            "rows" => Self::Rows(rows::RowsQuery::rows(read(params)?)?),
            "events" => Self::Rows(rows::RowsQuery::events(read(params)?)?),
            "clusters" => nothing(&params).map(|()| Self::Clusters)?,
            "inflight" => nothing(&params).map(|()| Self::Inflight)?,
            "meshes" => nothing(&params).map(|()| Self::Meshes)?,
            "violations" => nothing(&params).map(|()| Self::Violations)?,
            "log" => Self::Log(Box::new(read(params)?)),
            other => {
                return Err(Problem::invalid(format!(
                    "there is no topic {other:?}; rows, events, clusters, inflight, violations, \
                     meshes and log are those there are"
                )));
            }
        })
    }
}

/// The parameters of a topic.
fn read<T: DeserializeOwned>(params: Map<String, Value>) -> Result<T, Problem> {
    serde_json::from_value(Value::Object(params)).map_err(|error| {
        Problem::invalid(format!("the parameters are not those of the topic: {error}"))
    })
}

/// Refuses parameters where a topic has none.
fn nothing(params: &Map<String, Value>) -> Result<(), Problem> {
    match params.keys().next() {
        Some(name) => Err(Problem::invalid(format!("this topic has no parameter {name:?}"))),
        None => Ok(()),
    }
}

/// `frames` until it is aborted; the user's place is kept as long.
fn held(frames: Frames, registration: AbortRegistration, place: Arc<UserPlace>) -> Frames {
    let frames = Abortable::new(frames, registration);
    // Dropped with the stream, which ends by itself or by an unsubscribe.
    stream::unfold((frames, place), |(mut frames, place)| async move {
        let frame = frames.next().await?;
        Some((frame, (frames, place)))
    })
    .boxed()
}

/// A stream of frames in its place and on the ledger, as long as one may see it.
fn guarded(
    (api, caller): (&Api, &Caller),
    id: u64,
    (topic, rights): (&'static str, Rights),
    frames: impl Stream<Item = String> + Send + 'static,
) -> Result<Frames, Problem> {
    guarded_in((api, caller), id, (topic, access::FLEET.to_owned()), rights, frames)
}

/// The same, of one cluster.
fn guarded_in(
    (api, caller): (&Api, &Caller),
    id: u64,
    (topic, cluster): (&'static str, String),
    rights: Rights,
    frames: impl Stream<Item = String> + Send + 'static,
) -> Result<Frames, Problem> {
    let place = sse::open(api, caller, "subscription", topic, cluster)?;
    let end = move |code, why: &str| frames::end(Some(id), None, &Problem::new(code, why));
    let lost = move || end(ErrorCode::Forbidden, super::rights::LOST);
    let stopping = move || end(ErrorCode::NotReady, sse::STOPPING);
    Ok(sse::until_stopped(api, place, rights.guard(frames, lost), stopping).boxed())
}

/// Rights to one of the fleet's own matters.
fn rights_in_fleet(api: &Api, caller: &Caller, resource: &'static str) -> Result<Rights, Problem> {
    caller.may_in_fleet(resource, Verb::List)?;
    Ok(Rights::to(api, caller, (access::FLEET, None), resource, Verb::List))
}

#[cfg(feature = "fuzzing")]
pub(super) mod fuzz;
#[cfg(test)]
mod tests;
