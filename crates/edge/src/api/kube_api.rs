//! The Kubernetes API of a cluster, for kubectl and whatever else speaks it, under Fairlead's roles.
//!
//! ```text
//! kubectl ─► pipeline (token, gate, deadline, audit) ─► KubeRequest: which rights? ─► decide ─► API server
//! ```
//!
//! Contract:
//! - A request is passed on only when every right that it asks for is there ([`access::kubernetes`]). A list
//!   or watch over all namespaces needs the right in all of them: an answer is never thinned out.
//! - What changes something is in the audit before it is sent, and again with its outcome; reads of Secrets
//!   and logs are noted.
//! - The cluster is asked as every other route asks it: by Fairlead's account, or as the user. Of the
//!   client's headers only those pass that say in which form it wants its answer.
//! - An answer that is read as a whole has to come within the deadline. Watches, logs, shells and
//!   port-forwards take a place among the streams, and end within seconds when the right to them does.
//! - What a client asks about its own rights is answered here ([`super::self_review`]).
//! - Refusals are `Status` objects, which is what such clients show.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use access::kubernetes::{KubeRequest, KubeResource, NotPassedOn};
use access::{AccessRequest, Permissions, Reach, Verb};
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::response::Response;
use fleet::Connection;
use fleet::resources::passed_on::pass_on;
use futures::{Stream, StreamExt, stream};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::{Map, json};
use stallproof::Deadline;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tracing::Instrument;
use utoipa_axum::routes;

use super::extract::whole;
use super::forward::PassedBytes;
use super::forwards::{ForwardedPort, ListedForward, ended_by};
use super::pipeline::PathNames;
use super::rights::LOST;
use super::scope::permit;
use super::socket::SessionEnd;
use super::{Api, Caller, ErrorCode, Problem, Rights, Route, Routes, self_review, sse};

/// The largest object that etcd takes, with room.
const LARGEST: usize = 4 << 20;
/// What is copied at once of a raw stream.
const CHUNK: usize = 32 << 10;
/// Headers of a request that say what its client sends and wants.
const ASKED: [HeaderName; 3] = [header::ACCEPT, header::CONTENT_TYPE, header::ACCEPT_ENCODING];
/// And those of a stream of raw bytes.
const STREAMED: [HeaderName; 7] = [
    header::CONNECTION,
    header::UPGRADE,
    header::SEC_WEBSOCKET_KEY,
    header::SEC_WEBSOCKET_VERSION,
    header::SEC_WEBSOCKET_PROTOCOL,
    header::SEC_WEBSOCKET_ACCEPT,
    HeaderName::from_static("x-stream-protocol-version"),
];
/// Headers of an answer that are passed on.
const ANSWERED: [HeaderName; 5] = [
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::WARNING,
    header::RETRY_AFTER,
    header::ETAG,
];

pub(crate) fn routes() -> Routes {
    let write = |verb| Route::write(verb, "-").body(LARGEST).kubernetes();
    Routes::default()
        .with(Route::list().kubernetes(), routes!(kube_get))
        .with(write(Verb::Create), routes!(kube_post))
        .with(write(Verb::Update), routes!(kube_put))
        .with(write(Verb::Update), routes!(kube_patch))
        .with(write(Verb::Delete), routes!(kube_delete))
}

/// A handler for each method, so that each is described by itself. All of them do the same.
macro_rules! passed_on {
    ($($(#[$text:meta])* $handler:ident $method:ident $status:tt;)*) => {$(
        $(#[$text])*
        #[utoipa::path(
            $method, path = "/clusters/{cluster}/proxy/{*path}", tag = "kubernetes",
            params(("path" = String, Path, description = "The path on the API server")),
            responses((status = $status, description = "As the API server answers", body = Object))
        )]
        async fn $handler(
            State(api): State<Api>,
            caller: Caller,
            Path((cluster, _path)): Path<(String, String)>,
            request: Request,
        ) -> Result<Response, Problem> {
            answer(&api, &caller, &cluster, request).await
        }
    )*};
}

passed_on! {
    /// Read through the Kubernetes API of a cluster
    ///
    /// Whatever its API server answers, for a server address of `/api/v1/clusters/{cluster}/proxy` in a
    /// kubeconfig (`POST /me/kubeconfig`). One's roles decide; watches and WebSockets included.
    kube_get get 200;
    /// Create through the Kubernetes API of a cluster
    kube_post post 201;
    /// Replace through the Kubernetes API of a cluster
    kube_put put 200;
    /// Change through the Kubernetes API of a cluster
    kube_patch patch 200;
    /// Delete through the Kubernetes API of a cluster
    kube_delete delete 200;
}

/// Whether a path of this server is one of a cluster's Kubernetes API.
pub(crate) fn is_passed_on(path: &str) -> bool {
    kube_path(path).is_some()
}

/// The path on the API server, as it was sent: nothing of it is decoded on the way.
pub(super) fn kube_path(path: &str) -> Option<&str> {
    let (_, of_cluster) = path.split_once("/clusters/")?;
    let (_, rest) = of_cluster.split_once('/')?;
    rest.strip_prefix("proxy/")
}

fn read<'a>(parts: (&str, &'a Uri, &HeaderMap)) -> Result<KubeRequest<'a>, NotPassedOn> {
    let (method, uri, headers) = parts;
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let is_apply = kind.starts_with(b"application/apply-patch");
    let path = kube_path(uri.path()).unwrap_or_default();
    KubeRequest::parse(method, path, uri.query(), is_apply)
}

/// Says for the audit what a request does, and with what.
pub(super) fn name(request: &Request, named: &mut PathNames) {
    let read = read((request.method().as_str(), request.uri(), request.headers()));
    // What cannot be read is refused.
    let Ok(KubeRequest::Resource(resource)) = read else { return };
    named.verb = Some(resource.verb);
    named.namespace = resource.namespace.map(ToOwned::to_owned);
    named.name = resource.name.map(ToOwned::to_owned);
    named.kind = Some(match resource.subresource {
        Some(subresource) => format!("{}/{subresource}", resource.resource()),
        None => resource.resource(),
    });
}

/// The rights that one request needs, for as long as it goes on.
pub(super) struct NeededRights {
    cluster: String,
    namespace: Option<String>,
    /// In every namespace.
    everywhere: bool,
    asks: Vec<(String, Verb)>,
}

impl NeededRights {
    /// Those of a request in one namespace, or about what has none.
    pub(super) fn within(cluster: &str, asked: &KubeResource<'_>) -> Self {
        // The names of namespaces are known to who may see all of them.
        let names = asked.plural == "namespaces" && asked.name.is_none() && !asked.verb.writes();
        Self {
            cluster: cluster.to_owned(),
            namespace: asked.namespace.map(ToOwned::to_owned),
            everywhere: asked.namespace.is_none() && names,
            asks: asked.asks(),
        }
    }

    pub(super) fn are_in(&self, permissions: &Permissions) -> bool {
        let Self { cluster, namespace, everywhere, asks } = self;
        let namespace = namespace.as_deref();
        asks.iter().all(|(resource, verb)| {
            let reach = || permissions.reach(cluster, resource, *verb);
            let ask = AccessRequest { cluster, namespace, resource, verb: *verb };
            if *everywhere {
                reach() == Reach::Everywhere
            } else {
                access::decide(permissions, &ask).is_allowed()
            }
        })
    }
}

/// Decides about a request.
pub(super) async fn decide(
    caller: &Caller,
    connection: &Connection,
    asked: &KubeResource<'_>,
) -> Result<NeededRights, Problem> {
    let cluster = connection.cluster();
    let mut needed = NeededRights::within(cluster, asked);
    if asked.namespace.is_none() && asked.name.is_none() {
        let found = connection.find(&asked.resource(), caller.deadline).await?;
        needed.everywhere |= found.namespaced;
    }
    for (resource, verb) in &needed.asks {
        let ask = AccessRequest { cluster, namespace: asked.namespace, resource, verb: *verb };
        match asked.name {
            Some(name) => permit(caller, cluster, (asked.namespace, resource, name), *verb)?,
            None if needed.everywhere => may_everywhere(caller, &ask)?,
            None => caller.may(&ask)?,
        }
    }
    Ok(needed)
}

fn may_everywhere(caller: &Caller, ask: &AccessRequest<'_>) -> Result<(), Problem> {
    let AccessRequest { cluster, resource, verb, .. } = ask;
    match caller.permissions.reach(cluster, resource, *verb) {
        Reach::Everywhere => Ok(()),
        Reach::Nowhere => caller.may(ask).and_then(|()| Err(not_everywhere(caller, ask, ""))),
        Reach::Somewhere => {
            let known = caller.permissions.named_namespaces(cluster);
            let known: Vec<_> = known.into_iter().take(5).collect();
            let hint = match known.is_empty() {
                true => "; name a namespace".to_owned(),
                false => format!("; name a namespace, such as {}", known.join(", ")),
            };
            Err(not_everywhere(caller, ask, &hint))
        }
    }
}

fn not_everywhere(caller: &Caller, ask: &AccessRequest<'_>, hint: &str) -> Problem {
    let AccessRequest { cluster, resource, verb, .. } = ask;
    let user = &caller.who.user;
    let detail = format!("{user} may not {verb} {resource} in all namespaces of {cluster}{hint}");
    Problem::new(ErrorCode::Forbidden, detail)
}

/// Decides, asks the cluster, and answers as it does.
async fn answer(
    api: &Api,
    caller: &Caller,
    cluster: &str,
    request: Request,
) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    let upgrade = parts.extensions.remove::<OnUpgrade>();
    let asked = read((parts.method.as_str(), &parts.uri, &parts.headers)).map_err(|not| {
        let code = match not {
            NotPassedOn::Path(_) => ErrorCode::Invalid,
            NotPassedOn::Never(_) => ErrorCode::Forbidden,
        };
        Problem::new(code, not.to_string())
    })?;
    let connection = caller.connection(api, cluster)?;
    let asked = match asked {
        KubeRequest::Discovery => None,
        KubeRequest::Review(review) => {
            let body = whole(Request::new(body), &()).await?;
            return self_review::answer(caller, &connection, review, &body).await;
        }
        KubeRequest::Resource(asked) => {
            let needed = decide(caller, &connection, &asked).await?;
            note(api, caller, cluster, &asked)?;
            Some((asked, needed))
        }
    };
    let body = whole(Request::new(body), &()).await?;
    if let Some((KubeResource { name: None, .. }, _)) = &asked {
        let made: Option<serde_json::Value> = serde_json::from_slice(&body).ok();
        if let Some(name) = made.as_ref().and_then(|made| made["metadata"]["name"].as_str()) {
            caller.trail.named(name);
        }
    }
    let upgrades = asked.as_ref().is_some_and(|(asked, _)| asked.upgrades());
    let passed_on = passed_on(&parts, body, upgrades)?;
    match asked {
        Some((asked, needed)) if upgrades => {
            let upgrade = upgrade.filter(|_| parts.headers.contains_key(header::UPGRADE));
            let upgrade = upgrade.ok_or_else(|| {
                Problem::invalid("this is a stream of bytes: ask to upgrade the connection to one")
            })?;
            tunnel(api, caller, (connection, passed_on), (&asked, needed), upgrade).await
        }
        Some((asked, needed)) if asked.streams() => {
            let kind = if asked.verb == Verb::Log { "log" } else { "watch" };
            let place = sse::open(api, caller, kind, asked.resource(), cluster.to_owned())?;
            let rights = Rights::new(api, caller, move |now| needed.are_in(now));
            let response = pass_on(&connection, passed_on, caller.deadline).await?;
            let last = last_of(response.headers(), asked.verb);
            let (response, items) = opened(response);
            let items = rights.guard(kept(items, connection, None), last);
            let stopping = || Err(io::Error::other(sse::STOPPING));
            let items = sse::until_stopped(api, place, items, stopping);
            Ok(response.map(|()| Body::from_stream(items)))
        }
        asked => {
            let response = pass_on(&connection, passed_on, caller.deadline).await?;
            let (response, items) = opened(response);
            if !response.status().is_success()
                && let Some(audited) = caller.trail.take()
            {
                audited.finish(outcome(response.status()));
            }
            let items = kept(items, connection, Some(caller.deadline));
            let body = match asked.filter(|(asked, _)| !asked.verb.writes()) {
                Some((_, needed)) => {
                    let rights = Rights::new(api, caller, move |now| needed.are_in(now));
                    Body::from_stream(rights.guard(items, || Err(io::Error::other(LOST))))
                }
                None => Body::from_stream(items),
            };
            Ok(response.map(|()| body))
        }
    }
}

/// The reads that the audit has.
fn note(
    api: &Api,
    caller: &Caller,
    cluster: &str,
    asked: &KubeResource<'_>,
) -> Result<(), Problem> {
    let (within, resource) = ((cluster, asked.namespace), asked.resource());
    match asked.verb {
        Verb::Log => caller.note_read(api, Verb::Log, within, (&resource, asked.name), Map::new()),
        verb if verb.writes() => Ok(()),
        verb => caller.note_secret(api, verb, within, (&resource, asked.name)),
    }
}

/// How the audit calls the API server's refusal.
fn outcome(status: StatusCode) -> &'static str {
    let code = match status.as_u16() {
        404 => ErrorCode::NotFound,
        409 => ErrorCode::Conflict,
        400 | 422 => ErrorCode::Invalid,
        _ => ErrorCode::Refused,
    };
    code.text()
}

/// The request as the API server is asked it.
fn passed_on(parts: &Parts, body: Bytes, upgrades: bool) -> Result<http::Request<Bytes>, Problem> {
    let path = kube_path(parts.uri.path()).unwrap_or_default();
    let uri = match parts.uri.query() {
        Some(query) => format!("/{path}?{query}"),
        None => format!("/{path}"),
    };
    let built = http::Request::builder().method(parts.method.clone()).uri(uri).body(body);
    let mut request =
        built.map_err(|_| Problem::invalid("the path or the query cannot be sent"))?;
    let streamed = if upgrades { &STREAMED[..] } else { &[] };
    for name in ASKED.iter().chain(streamed) {
        for value in parts.headers.get_all(name) {
            request.headers_mut().append(name.clone(), value.clone());
        }
    }
    Ok(request)
}

type KubeBody = kube::client::Body;

/// The head of an answer, and what follows.
fn opened(
    response: http::Response<KubeBody>,
) -> (Response<()>, impl Stream<Item = io::Result<Bytes>> + Send + 'static) {
    let (head, body) = response.into_parts();
    let mut answer = Response::new(());
    *answer.status_mut() = head.status;
    for name in ANSWERED {
        for value in head.headers.get_all(&name) {
            answer.headers_mut().append(name.clone(), value.clone());
        }
    }
    (answer, body.into_data_stream().map(|piece| piece.map_err(io::Error::other)))
}

/// `items` with the connection that they come by, until the deadline if there is one.
fn kept(
    items: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    connection: Connection,
    until: Option<Deadline>,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let open = Some((items.boxed(), connection));
    stream::unfold(open, move |open| async move {
        let (mut items, connection) = open?;
        let next = match until {
            None => items.next().await,
            Some(until) => match until.bound(items.next()).await {
                Ok(next) => next,
                Err(late) => return Some((Err(io::Error::other(late.to_string())), None)),
            },
        };
        next.map(|piece| (piece, Some((items, connection))))
    })
}

/// The last piece of a stream whose reader loses the right to it: of a watch in JSON, an event that says so.
fn last_of(headers: &HeaderMap, verb: Verb) -> impl FnOnce() -> io::Result<Bytes> + Send + 'static {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let plain = !headers.contains_key(header::CONTENT_ENCODING);
    let says = verb == Verb::Watch && plain && kind.starts_with(b"application/json");
    move || {
        if !says {
            return Err(io::Error::other(LOST));
        }
        let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "message": LOST, "reason": "Forbidden", "code": 403 });
        Ok(format!("{}\n", json!({ "type": "ERROR", "object": status })).into())
    }
}

/// A shell or a port-forward: raw bytes in both directions, whatever protocol they are of.
async fn tunnel(
    api: &Api,
    caller: &Caller,
    (connection, request): (Connection, http::Request<Bytes>),
    (asked, needed): (&KubeResource<'_>, NeededRights),
    here: OnUpgrade,
) -> Result<Response, Problem> {
    let is_forward = asked.verb == Verb::Forward;
    if !is_forward && api.recordings.is_some() {
        return Err(Problem::new(
            ErrorCode::Forbidden,
            "shells are recorded here, and one of kubectl's cannot be; use `fairlead exec`",
        ));
    }
    let (pod, cluster) = (asked.name.unwrap_or_default(), connection.cluster().to_owned());
    let kind = if is_forward { "forward" } else { "exec" };
    let place = sse::open(api, caller, kind, pod.to_owned(), cluster.clone())?;
    let response = pass_on(&connection, request, caller.deadline).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let (response, items) = opened(response);
        if let Some(audited) = caller.trail.take() {
            audited.finish(outcome(response.status()));
        }
        let items = kept(items, connection, Some(caller.deadline));
        return Ok(response.map(|()| Body::from_stream(items)));
    }
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    for name in &STREAMED {
        for value in response.headers().get_all(name) {
            answer.headers_mut().append(name.clone(), value.clone());
        }
    }
    let there = hyper::upgrade::on(response);
    let target = ForwardedPort {
        cluster: cluster.clone(),
        namespace: asked.namespace.unwrap_or_default().to_owned(),
        pod: pod.to_owned(),
        port: None,
    };
    let listed = is_forward.then(|| api.serving.forwards.list(&caller.who, target));
    let mut rights = Rights::new(api, caller, move |now| needed.are_in(now));
    let (stop, audited, deadline) = (api.tasks.stopping(), caller.trail.take(), caller.deadline);
    let task = format!("kubectl's {kind} to {pod} of {cluster}");
    let span = place.span();
    let session = async move {
        let own = PassedBytes::default();
        let passed = listed.as_ref().map_or(&own, ListedForward::passed);
        let ended_by_somebody = async {
            match &listed {
                Some(listed) => listed.ended().await,
                None => std::future::pending::<Arc<str>>().await,
            }
        };
        let ended = tokio::select! {
            ended = converse((here, there), deadline, passed) => ended,
            by = ended_by_somebody => SessionEnd::Broke(ended_by(&by)),
            () = rights.lost() => SessionEnd::Forbidden,
            () = stop.stopped() => SessionEnd::Stopping,
        };
        passed.finish(audited, &ended);
        drop((place, connection));
    };
    api.tasks.spawn(task, session.instrument(span));
    Ok(answer)
}

/// Copies until either side has ended. The deadline is for both connections to be there.
async fn converse(
    (here, there): (OnUpgrade, OnUpgrade),
    deadline: Deadline,
    passed: &PassedBytes,
) -> SessionEnd {
    let both = deadline.bound(async { tokio::join!(here, there) }).await;
    let Ok((Ok(here), Ok(there))) = both else {
        return SessionEnd::Broke("the connection was not upgraded in time".to_owned());
    };
    let (from_client, to_client) = tokio::io::split(TokioIo::new(here));
    let (from_pod, to_pod) = tokio::io::split(TokioIo::new(there));
    let copied = tokio::select! {
        copied = copy(from_client, to_pod, &passed.to_pod) => copied,
        copied = copy(from_pod, to_client, &passed.from_pod) => copied,
    };
    match copied {
        Ok(()) => SessionEnd::Done,
        Err(error) => SessionEnd::Broke(error.to_string()),
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    passed: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..count]).await?;
        to.flush().await?;
        passed.fetch_add(count as u64, Relaxed);
    }
}
