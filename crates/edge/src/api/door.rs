//! What every request passes before a handler sees it, in this order:
//!
//! ```text
//! request id ─► ledger ─► deadline ─► who is it? ─► csrf ─► may the cluster be seen? ─► gate ─► audit ─► handler
//! ```
//!
//! Contract:
//! - Nobody unknown reaches a gate, so strangers cannot fill one.
//! - A cluster that is not there and one that may not be seen are answered alike, here and only here.
//! - Whatever changes something is in the audit before its handler runs, and again with its outcome;
//!   when it cannot be recorded it is not done. Handlers cannot forget it.
//! - A handler that misses the deadline is dropped and answered for.

use std::net::SocketAddr;
use std::sync::Arc;

use access::{Ask, Decision, Permissions, Verb, Via, Who};
use axum::extract::{ConnectInfo, FromRequestParts, MatchedPath, RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use flow::deadline::Grant;
use flow::gate::Outcome as Load;
use flow::ledger::Outcome;
use flow::{Deadline, Priority};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, header};

use super::gates::Door;
use super::problem::{Code, Problem};
use super::Api;

/// Named in the answer, the log and the audit.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(Arc<str>);

impl RequestId {
    fn new() -> Self {
        Self(format!("{:016x}", fastrand::u64(..)).into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// How a route is treated. Set beside the route; what is not said is `Route::default`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) priority: Priority,
    pub(crate) grant: Grant,
    /// What it is in the audit; none changes nothing.
    pub(crate) writes: Option<Verb>,
}

/// Who asks, until when. What a handler needs to decide.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(crate) who: Who,
    pub(crate) permissions: Arc<Permissions>,
    pub(crate) deadline: Deadline,
}

impl Asker {
    /// May this be done? For what may be seen but not done, the permission that is missing.
    pub(crate) fn may(&self, ask: &Ask<'_>) -> Result<(), Problem> {
        let why = match access::decide(&self.permissions, ask) {
            Decision::Allowed { .. } => return Ok(()),
            Decision::Denied { by } => format!("the role {by} denies it"),
            Decision::NotAllowed => "no role of yours allows it".to_owned(),
        };
        let Ask { cluster, namespace, resource, verb } = ask;
        let at = match (*cluster, namespace) {
            (access::FLEET, _) => "in the fleet".to_owned(),
            (cluster, None) => format!("in cluster {cluster}"),
            (cluster, Some(namespace)) => format!("in namespace {namespace} of {cluster}"),
        };
        Err(Problem::new(
            Code::Forbidden,
            format!("{} may not {verb} {resource} {at}: {why}", self.who.user),
        ))
    }

    /// As `may`, for the fleet's own matters.
    pub(crate) fn may_in_fleet(&self, resource: &str, verb: Verb) -> Result<(), Problem> {
        self.may(&Ask { cluster: access::FLEET, namespace: None, resource, verb })
    }
}

impl<S: Sync> FromRequestParts<S> for Asker {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        // A route outside the door is a mistake of ours; it must not be an open one.
        let asker = parts.extensions.get::<Self>().cloned();
        asker.ok_or_else(|| Problem::new(Code::Internal, "this route has no door"))
    }
}

/// The door itself: a middleware on every route.
pub(crate) async fn door(
    State(api): State<Api>,
    matched: MatchedPath,
    params: RawPathParams,
    mut request: Request,
    next: Next,
) -> Response {
    let id = RequestId::new();
    let cluster = params.iter().find(|(name, _)| *name == "cluster").map(|(_, value)| value.to_owned());
    let key = format!("{} {}", request.method(), matched.as_str());
    let tenant = cluster.clone().unwrap_or_else(|| access::FLEET.to_owned());
    let op = api.ledger.begin("rest", key, tenant);

    request.extensions_mut().insert(id.clone());
    let answered = pass(&api, cluster.as_deref(), request, next, &op).await;
    let mut response = answered.unwrap_or_else(IntoResponse::into_response);

    op.finish(outcome(&response));
    if let Ok(value) = HeaderValue::from_str(id.as_str()) {
        response.headers_mut().insert("x-request-id", value);
    }
    response
}

async fn pass(
    api: &Api,
    cluster: Option<&str>,
    mut request: Request,
    next: Next,
    op: &flow::Op,
) -> Result<Response, Problem> {
    let route = Route::of(&request);
    let deadline = Deadline::of_http(request.headers(), request.uri().query(), route.grant)
        .map_err(|e| Problem::invalid(e.to_string()))?;

    let who = authenticate(api, request.method(), request.headers())?;
    let permissions = api.access.permissions(&who).ok_or_else(unknown)?;
    if let Some(name) = cluster {
        let there = api.fleet.view().clusters.contains_key(name);
        if !there || !permissions.may_see_cluster(name) {
            return Err(Problem::no_such_cluster(name));
        }
    }

    op.step("gate");
    let door = cluster.map_or(route.door, Door::Cluster);
    let permit = api.gates.at(door).admit(route.priority, deadline).await.map_err(|refused| {
        Problem::new(Code::Overloaded, refused.to_string()).come_back(refused.retry_after)
    })?;

    op.step("handler");
    request.extensions_mut().insert(Asker { who, permissions, deadline });
    let answered = deadline.bound(next.run(request)).await;
    match answered {
        Ok(response) => {
            // How long it took says something of the load only where we did the work ourselves or
            // one cluster did; the slowest of many says nothing.
            permit.end(if door == Door::Across { Load::Ignored } else { Load::Done });
            Ok(response)
        }
        Err(expired) => {
            permit.fail();
            Err(Problem::new(Code::TooLate, expired.to_string()))
        }
    }
}

fn outcome(response: &Response) -> Outcome {
    match response.extensions().get::<Code>() {
        None => Outcome::Done,
        Some(Code::TooLate) => Outcome::Expired,
        Some(Code::Overloaded | Code::SlowDown | Code::Audit) => Outcome::Refused,
        Some(code) if code.status().is_server_error() => Outcome::Failed,
        // A "no" is an answer.
        Some(_) => Outcome::Done,
    }
}
