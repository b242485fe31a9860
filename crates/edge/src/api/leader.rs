//! What only the leader can answer or do (what agents report, rules that were learned from it), from any
//! replica: the others ask the leader on behalf of the caller, or at least say where it is.
//!
//! ```text
//! client ──► follower's pipeline (who is it?) ──► pass ──► leader's pipeline (a replica says who it is) ──► handler
//! ```
//!
//! Contract:
//! - One hop: a request that came with a pass goes no further. A stream of a replica that does not lead asks
//!   the leader again and again ([`LeaderPoll`]).
//! - Of what changes something the leader writes the audit, with the address that the caller came from.
//! - A pass names the user, this very request and a time some seconds ahead, under a key that only replicas
//!   have. The leader decides by the user's permissions, as it knows them.
//! - The leader has to show a certificate of the API's authority before it is told anything.
//! - An answer is bounded, and so is the time that it may take.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use access::{AuthMethod, Identity};
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use objects::Leadership;
use pki::Certificates;
use pki::agents::Authority;
use rustls::pki_types::ServerName;
use serde_json::Value;
use stallproof::{Deadline, Snapshot, Tasks};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Api, BASE, ErrorCode, Problem, affinity};
use crate::serve::Peer;
use crate::tls;

/// The header with the pass.
pub(super) const PASS: &str = "fairlead-pass";
/// For how long a pass is good: clocks of replicas differ by less.
const LASTS: Duration = Duration::from_secs(30);
/// For a connection; the leader is near.
const CONNECT: Duration = Duration::from_secs(3);
/// No list of conversations is larger.
pub(super) const LARGEST: usize = 64 << 20;
/// Headers of a request that are passed on.
const ASKED: [header::HeaderName; 2] = [header::ACCEPT, header::CONTENT_TYPE];
/// Headers of an answer that are passed on.
const KEPT: [header::HeaderName; 2] = [header::CONTENT_TYPE, header::RETRY_AFTER];
/// When to ask again for a leader.
const SOON: Duration = Duration::from_secs(2);

/// Where the leader is, and how it is asked.
#[derive(Clone, Debug)]
pub struct LeaderRoute {
    /// Written by the election.
    pub leadership: Snapshot<Leadership>,
    /// None: it is not asked, only named.
    pub reach: Option<LeaderReach>,
}

/// How another replica is asked: the leader at the address that it gave itself, others at their pods'.
#[derive(Clone, Debug)]
pub struct LeaderReach {
    /// The API's port, the same on every replica.
    pub port: u16,
    /// The name in the replicas' certificate.
    pub name: String,
    pub certificates: Certificates,
    /// The authority whose key seals passes.
    pub authority: Authority,
}

/// Another replica.
#[derive(Debug, PartialEq, Eq)]
struct LeaseHolder {
    name: String,
    address: Option<IpAddr>,
}

impl LeaseHolder {
    /// `NAME`, or `NAME@ADDRESS`.
    fn parse(holder: &str) -> Self {
        let split = holder.rsplit_once('@');
        match split.and_then(|(name, address)| Some((name, address.parse().ok()?))) {
            Some((name, address)) => Self { name: name.to_owned(), address: Some(address) },
            None => Self { name: holder.to_owned(), address: None },
        }
    }
}

impl std::fmt::Display for LeaseHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.address {
            Some(address) => write!(f, "{} ({address})", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl LeaderRoute {
    fn other(&self) -> Option<LeaseHolder> {
        self.leadership.read(|leadership| match leadership {
            Leadership::Other(holder) => Some(LeaseHolder::parse(holder)),
            Leadership::Unknown | Leadership::Us(_) => None,
        })
    }
}

/// The refusal of a replica that does not lead. `what` is asked for: "agents", "conversations".
pub(crate) fn not_here(api: &Api, what: &str) -> Problem {
    let other = api.leader.as_ref().and_then(LeaderRoute::other);
    let detail = match other {
        Some(other) => format!(
            "{what} are with the replica that leads, {other}, and this one does not; ask that one, or \
             ask again"
        ),
        None => format!(
            "{what} are with the replica that leads, and this one does not; which one does is not \
             known at the moment: ask again"
        ),
    };
    Problem::new(ErrorCode::NotReady, detail).come_back(SOON)
}

/// The user whom a request with a pass is for; none if no replica made the pass.
pub(crate) fn passed(api: &Api, request: &Request) -> Option<Identity> {
    let reach = api.leader.as_ref()?.reach.as_ref()?;
    let is_sealed = |text: &[u8], seal: &str| reach.authority.is_sealed(text, seal);
    let user = stated_user(request, Timestamp::now(), is_sealed)?;
    let user = api.access.named_by_replica(user)?;
    // The machine's own token is what a replica has as well.
    Some(Identity { user, via: AuthMethod::Local })
}

/// The user whom a pass names, if a replica sealed it for this very request, and not too long ago.
pub(super) fn stated_user<B>(
    request: &http::Request<B>,
    now: Timestamp,
    is_sealed: impl Fn(&[u8], &str) -> bool,
) -> Option<&str> {
    let pass = request.headers().get(PASS)?.to_str().ok()?;
    let (until, rest) = pass.split_once('.')?;
    let (seal, user) = rest.split_once('.')?;
    let text = PassClaims {
        until: until.parse().ok()?,
        user,
        method: request.method(),
        uri: request.uri(),
    };
    let late = Timestamp::from_millisecond(text.until).ok()? < now;
    (!late && is_sealed(text.written().as_bytes(), seal)).then_some(user)
}

pub(crate) fn has_pass(headers: &HeaderMap) -> bool {
    headers.contains_key(PASS)
}

/// What a pass states and seals.
pub(super) struct PassClaims<'a> {
    /// Milliseconds since 1970.
    pub(super) until: i64,
    pub(super) user: &'a str,
    pub(super) method: &'a Method,
    pub(super) uri: &'a Uri,
}

impl PassClaims<'_> {
    pub(super) fn written(&self) -> String {
        format!("pass {} {} {} {}", self.until, self.method, within(self.uri), self.user)
    }
}

/// Path and query below [`BASE`], wherever in the router one looks.
pub(super) fn within(uri: &Uri) -> &str {
    let whole = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    whole.strip_prefix(BASE).unwrap_or(whole)
}

/// A request as the leader is to be asked it.
pub(crate) struct LeaderRequest {
    other: LeaseHolder,
    address: SocketAddr,
    bundle: String,
    reach: LeaderReach,
    request: http::Request<Full<Bytes>>,
}

/// The request to send to the leader, still without a body; none where this replica has to answer, with a
/// refusal if need be.
pub(crate) fn request(api: &Api, who: &Identity, request: &Request) -> Option<LeaderRequest> {
    let leads = api.traffic.as_ref()?.active.ingest().is_some();
    let wants_stream = request.headers().get(header::ACCEPT).is_some_and(|accept| {
        accept.as_bytes().windows(17).any(|part| part.eq_ignore_ascii_case(b"text/event-stream"))
    });
    if leads || has_pass(request.headers()) || wants_stream {
        return None;
    }
    let route = api.leader.as_ref()?;
    let (reach, other) = (route.reach.clone()?, route.other()?);
    let address = SocketAddr::new(other.address?, reach.port);
    let bundle = reach.certificates.bundle()?;
    let request = reach.request(&api.access.name_for_replica(who), request, address)?;
    Some(LeaderRequest { other, address, bundle, reach, request })
}

/// Asks the leader again and again, for streams of replicas that do not lead.
#[derive(Clone)]
pub(crate) struct LeaderPoll {
    api: Api,
    who: Identity,
    /// Whom it began with: what another one counts is numbered otherwise.
    holder: String,
}

impl LeaderPoll {
    /// None where this replica answers by itself, and where the leader cannot be asked.
    pub(crate) fn begin(api: &Api, who: &Identity) -> Option<Self> {
        let route = api.leader.as_ref().filter(|route| route.reach.is_some())?;
        let holder = route.other().filter(|other| other.address.is_some())?.to_string();
        Some(Self { api: api.clone(), who: who.clone(), holder })
    }

    /// Whether the one that it began with still leads.
    pub(crate) fn is_same(&self) -> bool {
        let other = self.api.leader.as_ref().and_then(LeaderRoute::other);
        other.is_some_and(|other| other.to_string() == self.holder)
    }

    /// The leader's answer to a GET below the API's base.
    pub(crate) async fn ask(&self, path: &str, deadline: Deadline) -> Result<Value, Problem> {
        let Self { api, who, .. } = self;
        let request = || {
            let route = api.leader.as_ref()?;
            let (reach, other) = (route.reach.clone()?, route.other()?);
            let address = SocketAddr::new(other.address?, reach.port);
            let bundle = reach.certificates.bundle()?;
            let uri = Uri::try_from(path).ok()?;
            let request = reach.question(&api.access.name_for_replica(who), &uri, address)?;
            Some(LeaderRequest { other, address, bundle, reach, request })
        };
        let request = request().ok_or_else(|| not_here(api, "conversations"))?;
        let response = request.ask(&api.tasks, deadline).await?;
        let is_good = response.status().is_success();
        let body = axum::body::to_bytes(response.into_body(), LARGEST).await;
        let body = body.map_err(|error| Problem::new(ErrorCode::NotReady, error.to_string()))?;
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        if is_good {
            return Ok(answer);
        }
        let why = answer["detail"].as_str().unwrap_or("the replica that leads refused");
        Err(Problem::new(ErrorCode::NotReady, why.to_owned()).come_back(SOON))
    }
}

impl LeaderRequest {
    /// The same with what was sent along.
    pub(crate) fn with_body(mut self, body: Bytes) -> Self {
        *self.request.body_mut() = Full::new(body);
        self
    }

    /// The leader's answer, whatever it is.
    pub(crate) async fn ask(self, tasks: &Tasks, deadline: Deadline) -> Result<Response, Problem> {
        let Self { other, address, bundle, reach, request } = self;
        match deadline.bound(reach.ask(address, &bundle, request, tasks, deadline)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(why)) => Err(unreachable(&other, &why)),
            Err(_) => {
                let detail = format!("{other}, which leads, did not answer in time");
                Err(Problem::new(ErrorCode::TooLate, detail))
            }
        }
    }
}

fn unreachable(other: &LeaseHolder, why: &str) -> Problem {
    let detail = format!("{other}, which leads, cannot be asked: {why}; ask again");
    Problem::new(ErrorCode::NotReady, detail).come_back(SOON)
}

impl LeaderReach {
    /// The request, on behalf of `who`; none while there is no key to make a pass with.
    pub(super) fn request<B>(
        &self,
        who: &str,
        request: &http::Request<B>,
        host: SocketAddr,
    ) -> Option<http::Request<Full<Bytes>>> {
        let mut asked = self.posed(who, request.method(), request.uri(), host)?;
        for name in ASKED {
            if let Some(value) = request.headers().get(&name) {
                asked.headers_mut().insert(name, value.clone());
            }
        }
        if let Some(Peer(client)) = request.extensions().get::<Peer>() {
            let (name, value) = affinity::sealed_client(self, client.ip(), &asked)?;
            asked.headers_mut().insert(name, value);
        }
        Some(asked)
    }

    /// A GET on behalf of `who`, as [`access::Access::name_for_replica`] has it; none while there is no key
    /// to make a pass with.
    pub(super) fn question(
        &self,
        who: &str,
        uri: &Uri,
        host: SocketAddr,
    ) -> Option<http::Request<Full<Bytes>>> {
        self.posed(who, &Method::GET, uri, host)
    }

    fn posed(
        &self,
        who: &str,
        method: &Method,
        uri: &Uri,
        host: SocketAddr,
    ) -> Option<http::Request<Full<Bytes>>> {
        let until = (Timestamp::now() + LASTS).as_millisecond();
        let text = PassClaims { until, user: who, method, uri };
        let seal = self.authority.seal(text.written().as_bytes())?;
        let pass = HeaderValue::from_str(&format!("{until}.{seal}.{who}")).ok()?;
        let asked = http::Request::builder().method(method).uri(format!("{BASE}{}", within(uri)));
        asked.header(header::HOST, host.to_string()).header(PASS, pass).body(Full::default()).ok()
    }

    /// A connection to the replica at `address`, which has to show a certificate of `bundle`.
    pub(super) async fn connect(
        &self,
        address: SocketAddr,
        bundle: &str,
    ) -> Result<TlsStream<TcpStream>, String> {
        let config = tls::client(bundle).map_err(|error| stallproof::sentence(&error))?;
        let name = ServerName::try_from(self.name.clone()).map_err(|error| error.to_string())?;
        let connecting = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            TlsConnector::from(config).connect(name, stream).await
        };
        connecting.await.map_err(|error: std::io::Error| error.to_string())
    }

    /// The answer of the replica at `address`, which has to show a certificate of `bundle`.
    pub(super) async fn ask(
        &self,
        address: SocketAddr,
        bundle: &str,
        request: http::Request<Full<Bytes>>,
        tasks: &Tasks,
        deadline: Deadline,
    ) -> Result<Response, String> {
        let connecting = async {
            let stream = self.connect(address, bundle).await?;
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())
        };
        let connected = deadline.within(CONNECT).bound(Box::pin(connecting)).await;
        let (mut sender, connection) = connected
            .map_err(|_| format!("no connection to {address} in time"))?
            .map_err(|error| format!("{address}: {error}"))?;
        let stop = tasks.stopping();
        tasks.spawn("replica-connection", async move {
            // What becomes of it is what the answer says.
            let _ = stop.bound(connection).await;
        });
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        collected(answer).await
    }
}

async fn collected(answer: http::Response<Incoming>) -> Result<Response, String> {
    let (parts, body) = answer.into_parts();
    if parts.status == http::StatusCode::UNAUTHORIZED {
        return Err("it does not know this replica (yet)".to_owned());
    }
    let body = Limited::new(body, LARGEST).collect().await.map_err(|error| error.to_string())?;
    let mut response = Response::new(Body::from(body.to_bytes()));
    *response.status_mut() = parts.status;
    for name in KEPT {
        if let Some(value) = parts.headers.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    Ok(response)
}

#[cfg(test)]
mod tests;
