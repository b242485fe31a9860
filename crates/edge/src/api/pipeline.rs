//! The pipeline: every request passes these steps before a handler sees it, in this order:
//!
//! ```text
//! ledger ─► deadline ─► who is it? ─► csrf ─► may the cluster be seen? ─► gate ─► body
//!    ─► who is it still? may the cluster still be seen? ─► audit ─► handler ─► who is it still?
//! ```
//!
//! Contract:
//! - A caller without a login reaches the gate for anonymous requests only, and cannot fill another. Such
//!   a request has ten seconds, whatever its caller would wait, and comes to the gate with its body: one
//!   that is sent slowly takes no place from others. (How often a password may be tried from one address
//!   is a matter of `access`.)
//! - Users share each gate ([`super::gates`]); those who have not said who they are share by address.
//! - A cluster that is not there and one that may not be seen are answered alike, here and only here.
//! - A wait for a gate and a body may take minutes. The caller and their permissions are looked up again
//!   after it, and a handler sees only what was found then: a user who was deleted meanwhile does nothing.
//!   An answer for a caller who is gone by its end is not sent.
//! - Whatever changes something is in the audit before its handler runs, and again with its outcome;
//!   when it cannot be recorded it is not done. Handlers cannot forget it.
//! - A handler that misses the deadline is dropped and answered for. Of a stream this is its opening.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use access::audit::{Entry, Pending};
use access::kube_token::is_kube_token;
use access::{AccessRequest, Decision, Identity, Permissions, Secret, Verb};
use axum::RequestExt;
use axum::body::Bytes;
use axum::extract::{FromRequestParts, MatchedPath, RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use fleet::{Actor, Connection};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use stallproof::gate::LoadSignal;
use stallproof::ledger::Outcome;
use stallproof::{Deadline, accept};

use super::gates::RouteGate;
use super::trail::{self, Trail};
use super::{Api, ErrorCode, Problem, Route, affinity, extract, kube_api, leader, replicas};
use crate::serve::Peer;

pub(crate) const COOKIE: &str = "fairlead-session";
pub(crate) const CSRF: &str = "x-csrf-token";

/// The time for a request without a login, its body included.
const ANONYMOUS: Duration = Duration::from_secs(10);

/// Names a request in the answer, the log and the audit.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(Arc<str>);

impl RequestId {
    pub(crate) fn new() -> Self {
        Self(format!("{:016x}", fastrand::u64(..)).into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The caller of a request, what they may do, and until when they wait.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) who: Identity,
    pub(crate) permissions: Arc<Permissions>,
    pub(crate) deadline: Deadline,
    /// What the audit says of this request.
    pub(crate) trail: Trail,
}

/// In the extensions of a response: what the audit says besides the outcome.
#[derive(Clone, Debug)]
pub(crate) struct AuditDetails(pub(crate) String);

impl Caller {
    /// May this be done? For what may be seen but not done, the permission that is missing.
    pub(crate) fn may(&self, ask: &AccessRequest<'_>) -> Result<(), Problem> {
        let why = match access::decide(&self.permissions, ask) {
            Decision::Allowed { .. } => return Ok(()),
            Decision::Denied { by } => format!("the role {by} denies it"),
            Decision::NotAllowed => "no role of yours allows it".to_owned(),
        };
        let AccessRequest { cluster, namespace, resource, verb } = ask;
        let at = match (*cluster, namespace) {
            (access::FLEET, _) => "in the fleet".to_owned(),
            (cluster, None) => format!("in cluster {cluster}"),
            (cluster, Some(namespace)) => format!("in namespace {namespace} of {cluster}"),
        };
        Err(Problem::new(
            ErrorCode::Forbidden,
            format!("{} may not {verb} {resource} {at}: {why}", self.who.user),
        ))
    }

    /// Who this is to a cluster on which users act under their own names. Roles and groups are those of
    /// this moment.
    pub(crate) fn actor(&self, api: &Api) -> Actor {
        let (roles, groups) = api.access.roles_and_groups(&self.who);
        Actor { user: self.who.user.to_string(), roles, groups }
    }

    /// The way to a cluster, on which everything is done as this caller where users act under their own
    /// names.
    pub(crate) fn connection(&self, api: &Api, cluster: &str) -> Result<Connection, fleet::Error> {
        api.fleet.connection_as(cluster, &self.actor(api))
    }

    /// As `may`, for the fleet's own matters.
    pub(crate) fn may_in_fleet(&self, resource: &str, verb: Verb) -> Result<(), Problem> {
        self.may(&AccessRequest { cluster: access::FLEET, namespace: None, resource, verb })
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        // A handler that asks who it is on a route for strangers is a mistake of ours; it must not
        // be an open one.
        let caller = parts.extensions.get::<Self>().cloned();
        caller
            .ok_or_else(|| Problem::new(ErrorCode::Internal, "nobody was asked who they are here"))
    }
}

/// The address that a request comes from; logins are limited by it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientAddress(pub(crate) IpAddr);

impl<S: Sync> FromRequestParts<S> for ClientAddress {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        let peer = parts.extensions.get::<Peer>();
        let from = peer.map(|Peer(address)| Self(address.ip()));
        from.ok_or_else(|| Problem::new(ErrorCode::Internal, "nobody knows where this comes from"))
    }
}

/// A route and what is behind it.
#[derive(Clone, Debug)]
pub(crate) struct RouteContext {
    pub(crate) api: Api,
    pub(crate) route: Route,
}

/// The names in a request's path.
#[derive(Debug, Default)]
pub(super) struct PathNames {
    cluster: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    /// What a request of the Kubernetes API does.
    pub(super) verb: Option<Verb>,
}

/// The middleware of every route.
pub(crate) async fn pipeline(
    State(context): State<RouteContext>,
    mut request: Request,
    next: Next,
) -> Response {
    let RouteContext { api, route } = &context;
    let mut named = match request.extract_parts::<RawPathParams>().await {
        Ok(params) => PathNames::of(&params),
        Err(_) => return Problem::invalid("the path is not UTF-8").into_response(),
    };
    if route.kubernetes {
        kube_api::name(&request, &mut named);
    }
    let path = request.extensions().get::<MatchedPath>().map_or("-", MatchedPath::as_str);
    let key = format!("{} {path}", request.method());
    let tenant = named.cluster.clone().unwrap_or_else(|| access::FLEET.to_owned());
    let op = api.ledger.begin("rest", key, tenant);
    let answered = op.in_span(run(api, *route, &named, request, next, &op)).await;
    let response = answered.unwrap_or_else(IntoResponse::into_response);
    let problem = response.extensions().get::<Problem>();
    op.finish(problem.map_or(Outcome::Done, |problem| problem.code.outcome()));
    response
}

async fn run(
    api: &Api,
    route: Route,
    named: &PathNames,
    mut request: Request,
    next: Next,
    op: &stallproof::Op,
) -> Result<Response, Problem> {
    let deadline = Deadline::of_http(request.headers(), request.uri().query(), route.grant)
        .map_err(|e| Problem::invalid(e.to_string()))?;
    let anonymous = route.gate.is_open();
    let deadline = if anonymous { deadline.within(ANONYMOUS) } else { deadline };
    // For handlers that need no login; the others have it in their `Caller`.
    request.extensions_mut().insert(deadline);
    same_page(&request)?;
    let trail = Trail::of(&request);
    let caller = authorize(api, route, named, &request, (deadline, &trail))?;
    let gate = match (&named.cluster, &caller) {
        (Some(name), Some(_)) if !route.local => RouteGate::Cluster(name),
        // Who waits for other replicas takes no place from those that they ask for their part.
        _ if route.all_replicas && leader::has_pass(request.headers()) => RouteGate::Local,
        _ => route.gate,
    };

    if anonymous {
        op.step("body");
        (request, _) = with_body(request, route.body, deadline).await?;
    }

    op.step("gate");
    let share = share(caller.as_ref(), &request);
    let admitted = api.gates.at(gate).admit_for(&share, route.priority, deadline).await;
    let permit = admitted.map_err(|refused| {
        Problem::new(ErrorCode::Overloaded, refused.to_string()).come_back(refused.retry_after)
    })?;

    if route.at_leader
        && let Some(caller) = &caller
        && let Some(mut question) = leader::request(api, &caller.who, &request)
    {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            op.step("body");
            let (_, body) = with_body(request, route.body, deadline).await?;
            question = question.with_body(body);
        }
        op.step("leader");
        let answer = question.ask(&api.tasks, deadline).await;
        // What it took was the leader's doing.
        permit.ignore();
        return answer;
    }

    if route.at_replica
        && let Some(caller) = &caller
        && let Some(name) = query(request.uri().query(), "replica")
        && let Some(replicas) = replicas::to_ask(api, request.headers())
    {
        op.step("replica");
        let name = name.into_owned();
        let answer = replicas::pass_on(api, replicas, caller, request.map(drop), &name).await;
        permit.ignore();
        return answer;
    }

    let (mut caller, mut body) = (caller, Bytes::new());
    if caller.is_some() {
        op.step("body");
        (request, body) = with_body(request, route.body, deadline).await?;
        caller = authorize(api, route, named, &request, (deadline, &trail))?;
    }

    let writes =
        if route.kubernetes { named.verb.filter(|verb| verb.writes()) } else { route.writes };
    if let (Some(verb), Some(caller)) = (writes, &caller) {
        op.step("audit");
        let entry = audit_entry(caller, verb, route, named, &request, &body);
        trail.begin(api.audit.begin(entry, deadline).await?);
    }

    op.step("handler");
    let reader = caller.as_ref().filter(|_| writes.is_none()).map(|caller| caller.who.clone());
    if let Some(caller) = caller {
        request.extensions_mut().insert(caller);
    }
    match deadline.bound(next.run(request)).await {
        Ok(_) if reader.as_ref().is_some_and(|who| !api.access.is_still(who)) => {
            permit.ignore();
            Err(access::Unauthenticated::Unknown.into())
        }
        Ok(response) => {
            // How long it took says something of the load only where the work was done, by us or by
            // one cluster: the slowest of many says nothing, and neither does a refusal.
            let refused = response.extensions().get::<Problem>().is_some();
            permit.end(if refused || matches!(gate, RouteGate::FanOut | RouteGate::Provider) {
                LoadSignal::Ignored
            } else {
                LoadSignal::Done
            });
            if let Some(audited) = trail.take() {
                finish(audited, &response);
            }
            Ok(response)
        }
        Err(expired) => {
            if gate == RouteGate::Provider {
                permit.ignore();
            } else {
                permit.fail();
            }
            if let Some(audited) = trail.take() {
                audited.finish(ErrorCode::TooLate.text());
            }
            Err(Problem::new(ErrorCode::TooLate, expired.to_string()))
        }
    }
}

/// The caller and what they may do at this moment; none on a route that needs no login.
fn authorize(
    api: &Api,
    route: Route,
    named: &PathNames,
    request: &Request,
    (deadline, trail): (Deadline, &Trail),
) -> Result<Option<Caller>, Problem> {
    if route.gate.is_open() {
        return Ok(None);
    }
    let who = authenticate(api, route, request)?;
    let permissions = api.access.permissions(&who);
    if let Some(name) = &named.cluster {
        let there = api.fleet.view().clusters.contains_key(name.as_str());
        if !there || !permissions.may_see_cluster(name) {
            return Err(Problem::no_such_cluster(name));
        }
    }
    Ok(Some(Caller { who, permissions, deadline, trail: trail.clone() }))
}

/// Who shares a gate with others: a user, or an address of somebody who has not said who they are.
fn share(caller: Option<&Caller>, request: &Request) -> Arc<str> {
    match (caller, request.extensions().get::<Peer>()) {
        (Some(caller), _) => caller.who.user.clone(),
        (None, Some(Peer(address))) => accept::counted_as(address.ip()).to_string().into(),
        (None, None) => "".into(),
    }
}

/// The request with all of its body, of `most` bytes, and that body.
async fn with_body(
    request: Request,
    most: usize,
    deadline: Deadline,
) -> Result<(Request, Bytes), Problem> {
    let (parts, body) = request.into_parts();
    let collected = deadline.bound(Limited::new(body, most).collect()).await;
    let collected =
        collected.map_err(|expired| Problem::new(ErrorCode::TooLate, expired.to_string()))?;
    let bytes = collected.map_err(|error| {
        if error.is::<LengthLimitError>() { extract::too_large() } else { extract::ended_early() }
    })?;
    let bytes = bytes.to_bytes();
    Ok((Request::from_parts(parts, axum::body::Body::from(bytes.clone())), bytes))
}

impl PathNames {
    fn of(params: &RawPathParams) -> Self {
        let mut named = Self::default();
        for (param, value) in params {
            let place = match param {
                "cluster" => &mut named.cluster,
                "kind" => &mut named.kind,
                "namespace" => &mut named.namespace,
                "name" | "node" | "id" => &mut named.name,
                _ => continue,
            };
            *place = Some(value.to_owned());
        }
        named
    }
}

/// Authenticates by a token, or by a cookie, which counts only with the proof that a page of ours sent
/// it.
fn authenticate(api: &Api, route: Route, request: &Request) -> Result<Identity, Problem> {
    let headers = request.headers();
    if leader::has_pass(headers) {
        let is_taken = route.at_leader || route.all_replicas || route.at_replica;
        let who = is_taken.then(|| leader::passed(api, request)).flatten();
        return who.ok_or_else(|| access::Unauthenticated::Unknown.into());
    }
    if let Some(token) = bearer(headers) {
        let token = affinity::without_home(token);
        let kube = route.kubernetes && is_kube_token(token);
        let access = &api.access;
        return Ok(if kube { access.by_kube_token(token)? } else { access.by_token(token)? });
    }
    if route.kubernetes {
        let token = basic(headers);
        let token = token.as_deref().map(affinity::without_home);
        let who = token.and_then(|token| api.access.by_kube_token(token).ok());
        return who.ok_or_else(|| access::Unauthenticated::Unknown.into());
    }
    let Some(cookie) = cookie(headers) else {
        return Err(access::Unauthenticated::Unknown.into());
    };
    let who = api.access.by_session(cookie)?;
    let safe = matches!(*request.method(), Method::GET | Method::HEAD);
    let proof = headers.get(CSRF).and_then(|value| value.to_str().ok());
    // A page cannot set a header on a WebSocket; its browser says where the page is from.
    let proven = if is_websocket(request) {
        headers.contains_key(header::ORIGIN)
    } else {
        safe || proof.is_some_and(|proof| access::csrf_of(cookie).is(proof))
    };
    if !proven {
        return Err(Problem::new(
            ErrorCode::Csrf,
            format!(
                "send the {CSRF} that the login answered (or GET {}/me does) with the cookie",
                super::route::BASE
            ),
        ));
    }
    Ok(who)
}

/// Refuses what a browser sends for a page of another host, whoever is logged in there.
pub(super) fn same_page(request: &Request) -> Result<(), Problem> {
    let headers = request.headers();
    let safe = matches!(*request.method(), Method::GET | Method::HEAD) && !is_websocket(request);
    let Some(origin) = headers.get(header::ORIGIN).filter(|_| !safe) else { return Ok(()) };
    let place = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    if place.is_some_and(|(_, place)| host.is_some_and(|host| host.eq_ignore_ascii_case(place))) {
        return Ok(());
    }
    Err(Problem::new(ErrorCode::Csrf, "this comes from a page of another site"))
}

fn is_websocket(request: &Request) -> bool {
    let upgrade = request.headers().get(header::UPGRADE);
    *request.method() == Method::GET
        && upgrade.is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

fn authorization<'h>(headers: &'h HeaderMap, of: &str) -> Option<&'h str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case(of).then(|| token.trim())
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    authorization(headers, "bearer")
}

/// The token of a kubeconfig, which kubectl sends as a password to an address without TLS.
fn basic(headers: &HeaderMap) -> Option<String> {
    access::kube_token::basic_password(authorization(headers, "basic")?)
}

/// The token that a request shows, however it came.
pub(crate) fn token(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    bearer(headers).map(Cow::Borrowed).or_else(|| basic(headers).map(Cow::Owned))
}

/// The session's cookie, if there is one.
pub(crate) fn cookie(headers: &HeaderMap) -> Option<&str> {
    cookie_of(headers, COOKIE)
}

/// The value of the cookie of this name.
pub(crate) fn cookie_of<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let pairs = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = pairs.flat_map(|value| value.split(';')).map(str::trim);
    pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

/// A `Set-Cookie` that opens the session, or ends it.
pub(crate) fn set_cookie(session: Option<&Secret>, secure: bool) -> String {
    let value = session.map_or("", Secret::expose);
    // Without an age: it goes with the browser; the server ends it sooner or later anyway.
    let age = if session.is_some() { "" } else { "; Max-Age=0" };
    let secure = if secure { "; Secure" } else { "" };
    format!("{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict{age}{secure}")
}

fn audit_entry(
    caller: &Caller,
    verb: Verb,
    route: Route,
    named: &PathNames,
    request: &Request,
    body: &[u8],
) -> Entry {
    let asked = |key| query(request.uri().query(), key);
    let (name, mut details) = trail::of_body(body, route.named_by, route.recorded);
    details.extend(trail::of_query(request.uri().query(), route.recorded));
    Entry {
        who: caller.who.clone(),
        from: caller.trail.from,
        verb,
        cluster: named.cluster.clone().unwrap_or_else(|| access::FLEET.to_owned()),
        namespace: named.namespace.clone().or_else(|| asked("namespace").map(Cow::into_owned)),
        resource: named.kind.clone().unwrap_or_else(|| route.resource.to_owned()),
        name: named.name.clone().or(name),
        request_id: caller.trail.request_id.clone(),
        dry_run: is_dry_run(route, request, body),
        details,
    }
}

/// Whether something is only tried, and not done. Of a deletion with a body an API server reads the body's options
/// and ignores the query.
fn is_dry_run(route: Route, request: &Request, body: &[u8]) -> bool {
    if route.kubernetes && *request.method() == Method::DELETE && !body.is_empty() {
        let options: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        return options["dryRun"] == serde_json::json!(["All"]);
    }
    // Kubernetes' word for it is `All`.
    let asked = query(request.uri().query(), "dryRun");
    asked.is_some_and(|dry| dry == "true" || dry == "All")
}

/// A value of the query, decoded.
pub(crate) fn query<'a>(query: Option<&'a str>, key: &str) -> Option<Cow<'a, str>> {
    let mut pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    pairs.find(|(name, _)| name == key).map(|(_, value)| value)
}

fn finish(audited: Pending, response: &Response) {
    let outcome = match response.extensions().get::<Problem>() {
        Some(problem) => problem.code.text(),
        // How a stream ends is not known yet.
        None if is_stream(response) => "opened",
        None => "ok",
    };
    match response.extensions().get::<AuditDetails>() {
        None => audited.finish(outcome),
        Some(AuditDetails(details)) => audited.finish(&format!("{outcome}: {details}")),
    }
}

fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE);
    response.status() == StatusCode::SWITCHING_PROTOCOLS
        || kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

#[cfg(test)]
mod tests;
