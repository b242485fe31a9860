//! Session affinity: a session lives in the replica that it was opened in, and whichever replica a browser
//! comes to passes its requests on to that one.
//!
//! ```text
//! browser ──► any replica ── cookie of another replica ──► that replica, over TLS ──► its pipeline
//! ```
//!
//! Contract:
//! - The replica that opens a session says so in a cookie beside the session's, sealed with a key that
//!   only replicas have: nobody can have a replica connect to an address of theirs. A command line has no
//!   cookies: its tokens end with the same text ([`at_home`]).
//! - A request is passed on whole, WebSockets included, and once: it comes with the client's address under
//!   the same seal, which counts as the peer's there. What a client itself sends in that header is
//!   nothing.
//! - The other replica has to show a certificate of the API's authority before it is told anything. If it
//!   cannot be reached the request is answered here, as one without a session: the page asks for a login,
//!   and the session's home is this replica from then on.
//! - What is under way is on the ledger, bounded in number, and ends with the process.

use std::borrow::Cow;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version, header};
use hyper::client::conn::http1::SendRequest;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use stallproof::deadline::Grant;
use stallproof::gate::{GateConfig, InFlightLimits, Overloaded, Permit};
use stallproof::ledger::Outcome;
use stallproof::{Deadline, Gate, Op, Priority};

use super::leader::{LeaderReach, has_pass};
use super::pipeline::{self, cookie_of};
use super::{Api, BASE, ErrorCode, Problem, auth};
use crate::serve::Peer;

const COOKIE: &str = "fairlead-replica";
/// Between a token and the replica that knows it; neither has it elsewhere.
const AT: char = '~';
/// The same in the query of a login link.
pub(crate) const IN_LINK: &str = "replica";
/// Whom a request that is passed on comes from.
const CLIENT: HeaderName = HeaderName::from_static("fairlead-client");
/// For how long such a header is good: clocks of replicas differ by less.
const LASTS: Duration = Duration::from_secs(30);
/// For a connection; the other replica is near.
const CONNECT: Duration = Duration::from_secs(3);
/// The time for an answer to begin: the longest that a request may wait for, and the pipeline there ends
/// it sooner.
const ANSWER: Grant = Grant { unasked: Duration::from_secs(60), most: Duration::from_secs(330) };
/// Requests that are passed on at once; each is a connection. Some tabs of some hundred people.
const MOST: usize = 512;
const SOON: Duration = Duration::from_secs(1);
/// What is between two ends of one connection, and not passed on.
const OF_CONNECTION: [HeaderName; 6] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

/// The places of requests that are passed on, shared fairly by sessions.
#[derive(Clone, Debug)]
pub(crate) struct PassedOn(Gate);

impl Default for PassedOn {
    fn default() -> Self {
        let limits = InFlightLimits { min: MOST, initial: MOST, max: MOST };
        Self(Gate::new(GateConfig { limits, queue: 0, ..GateConfig::new("passed-on") }))
    }
}

impl PassedOn {
    fn place(&self, session: &str) -> Result<Permit, Overloaded> {
        // Not the cookie itself, which is a secret.
        let share = BuildHasherDefault::<DefaultHasher>::default().hash_one(session).to_string();
        self.0.try_admit_for(&share, Priority::Normal)
    }
}

/// This replica, if there are others that it can ask.
fn here(api: &Api) -> Option<(IpAddr, &LeaderReach)> {
    let reach = api.leader.as_ref()?.reach.as_ref()?;
    Some((api.replicas.as_ref()?.here, reach))
}

/// Says in the answer that opens a session, or begins a login, which replica has it.
pub(crate) fn mark(api: &Api, response: &mut Response) {
    let begins = response.headers().get_all(header::SET_COOKIE).iter().any(|cookie| {
        let of = |name: &str| {
            cookie.as_bytes().strip_prefix(name.as_bytes()).is_some_and(|it| it.starts_with(b"="))
        };
        of(pipeline::COOKIE) || of(auth::COOKIE)
    });
    if !begins || cookie_is_set(response.headers()) {
        return;
    }
    let Some(sealed) = sealed_home(api) else { return };
    let secure = if api.serving.secure { "; Secure" } else { "" };
    // Lax: it has to come with the browser's return from an identity provider. It opens nothing.
    let cookie = format!("{COOKIE}={sealed}; Path=/; HttpOnly; SameSite=Lax{secure}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

/// Whether the replica that was asked has said it already.
fn cookie_is_set(headers: &HeaderMap) -> bool {
    let mut set = headers.get_all(header::SET_COOKIE).iter();
    set.any(|cookie| cookie.as_bytes().starts_with(COOKIE.as_bytes()))
}

/// This replica as others know it: in the cookie, and in a login link, whose code is here as well. None
/// where there are no others.
pub(crate) fn sealed_home(api: &Api) -> Option<String> {
    let (here, reach) = here(api)?;
    Some(format!("{}.{here}", reach.authority.seal(home(here).as_bytes())?))
}

/// A token that only this replica knows, with the replica.
pub(crate) fn at_home(api: &Api, token: &str) -> String {
    match sealed_home(api) {
        Some(home) => format!("{token}{AT}{home}"),
        None => token.to_owned(),
    }
}

/// The token itself.
pub(crate) fn without_home(token: &str) -> &str {
    token.split_once(AT).map_or(token, |(token, _)| token)
}

/// What that seal is of.
fn home(address: IpAddr) -> String {
    format!("session at {address}")
}

/// What the seal of a client's address is of: this request, of this client, until then. It begins with what it
/// is, as a pass does ([`super::leader`]): neither can be shown for the other.
fn claim<B>(until: i64, client: IpAddr, request: &http::Request<B>) -> String {
    format!("client {until} {client} {} {}", request.method(), request.uri())
}

/// The header that tells another replica whom a request comes from; none while there is no key to seal with.
pub(super) fn sealed_client<B>(
    reach: &LeaderReach,
    client: IpAddr,
    request: &http::Request<B>,
) -> Option<(HeaderName, HeaderValue)> {
    let until = (Timestamp::now() + LASTS).as_millisecond();
    let seal = reach.authority.seal(claim(until, client, request).as_bytes())?;
    Some((CLIENT, HeaderValue::from_str(&format!("{until}.{seal}.{client}")).ok()?))
}

/// The replica that has the session of a request, if that is another one.
fn home_of(api: &Api, request: &Request) -> Option<(IpAddr, LeaderReach)> {
    let headers = request.headers();
    if has_pass(headers) || headers.contains_key(CLIENT) {
        return None;
    }
    let (here, reach) = here(api)?;
    let sealed = match request.uri().path() {
        "/login" => pipeline::query(request.uri().query(), IN_LINK)?,
        path if path.starts_with(BASE) || path.starts_with("/auth/") => {
            let shown = session_of(headers)?;
            match shown.split_once(AT) {
                Some((_, home)) => home.to_owned().into(),
                None => cookie_of(headers, COOKIE)?.into(),
            }
        }
        _ => return None,
    };
    let address = stated_home(&sealed, |text, seal| reach.authority.is_sealed(text, seal))?;
    (address != here).then(|| (address, reach.clone()))
}

/// The replica that a cookie or a token states, if a replica sealed it.
fn stated_home(sealed: &str, is_sealed: impl Fn(&[u8], &str) -> bool) -> Option<IpAddr> {
    let (seal, address) = sealed.split_once('.')?;
    let address: IpAddr = address.parse().ok()?;
    is_sealed(home(address).as_bytes(), seal).then_some(address)
}

/// What a session, or a login that is under way, is known by: a token that says its home, or a cookie.
fn session_of(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    if let Some(token) = pipeline::token(headers) {
        return Some(token).filter(|token| token.contains(AT));
    }
    let cookie = cookie_of(headers, pipeline::COOKIE).or_else(|| cookie_of(headers, auth::COOKIE));
    cookie.map(Cow::Borrowed)
}

/// Takes the client's address from a request that a replica passed on, and the header from any other.
pub(crate) fn take_client(api: &Api, request: &mut Request) {
    let client = client_of(api, request);
    match client {
        Some(client) => {
            request.extensions_mut().insert(Peer(SocketAddr::new(client, 0)));
        }
        None => {
            request.headers_mut().remove(CLIENT);
        }
    }
}

fn client_of(api: &Api, request: &Request) -> Option<IpAddr> {
    let is_sealed = |text: &[u8], seal: &str| {
        here(api).is_some_and(|(_, reach)| reach.authority.is_sealed(text, seal))
    };
    stated_client(request, Timestamp::now(), is_sealed)
}

/// The client that a request's header states, if a replica sealed it for this very request, and not too long ago.
fn stated_client<B>(
    request: &http::Request<B>,
    now: Timestamp,
    is_sealed: impl Fn(&[u8], &str) -> bool,
) -> Option<IpAddr> {
    let stated = request.headers().get(CLIENT)?.to_str().ok()?;
    let (until, rest) = stated.split_once('.')?;
    let (seal, client) = rest.split_once('.')?;
    let (until, client) = (until.parse().ok()?, client.parse().ok()?);
    let late = Timestamp::from_millisecond(until).ok()? < now;
    (!late && is_sealed(claim(until, client, request).as_bytes(), seal)).then_some(client)
}

/// The answer of the replica that has the request's session; or the request, if it is to be answered here.
pub(crate) async fn pass_on(api: &Api, request: Request) -> Result<Response, Request> {
    let Some((address, reach)) = home_of(api, &request) else { return Err(request) };
    let session = session_of(request.headers()).unwrap_or_default().into_owned();
    let place = match api.serving.passed_on.place(&session) {
        Ok(place) => place,
        Err(refused) => {
            let problem = Problem::new(ErrorCode::Overloaded, refused.to_string());
            return Ok(problem.come_back(refused.retry_after).into_response());
        }
    };
    let key = format!("{} {}", request.method(), request.uri().path());
    let op = api.ledger.begin("passed-on", key, address.to_string());
    op.step("connect");
    let connecting = connect(api, &reach, address);
    match Deadline::after(CONNECT).bound(Box::pin(connecting)).await {
        Ok(Ok(sender)) => Ok(send(api, &reach, sender, request, (op, place)).await),
        failed => {
            let why = match failed {
                Ok(Err(error)) => error,
                _ => "no connection in time".to_owned(),
            };
            tracing::debug!(replica = %address, why, "a session's replica cannot be asked");
            op.finish(Outcome::Failed);
            Err(request)
        }
    }
}

async fn connect(
    api: &Api,
    reach: &LeaderReach,
    address: IpAddr,
) -> Result<SendRequest<Body>, String> {
    let bundle = reach.certificates.bundle().ok_or("there is no certificate yet")?;
    let stream = reach.connect(SocketAddr::new(address, reach.port), &bundle).await?;
    let connected = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = connected.map_err(|error| error.to_string())?;
    let stop = api.tasks.stopping();
    api.tasks.spawn("replica-connection", async move {
        // What becomes of it is what the answer says.
        let _ = stop.bound(connection.with_upgrades()).await;
    });
    Ok(sender)
}

async fn send(
    api: &Api,
    reach: &LeaderReach,
    mut sender: SendRequest<Body>,
    mut request: Request,
    (op, place): (Op, Permit),
) -> Response {
    op.step("answer");
    let deadline = Deadline::of_http(request.headers(), request.uri().query(), ANSWER);
    let deadline = deadline.unwrap_or_else(|_| Deadline::after(ANSWER.unasked));
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    let upgrade = upgrade.filter(|_| request.headers().contains_key(header::UPGRADE));
    let Some(asked) = asked(reach, request, upgrade.is_some()) else {
        op.finish(Outcome::Failed);
        return away("there is no key of the replicas yet");
    };
    let answer = match deadline.bound(sender.send_request(asked)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            op.finish(Outcome::Failed);
            return away(&error.to_string());
        }
        Err(expired) => {
            op.finish(Outcome::Expired);
            return Problem::new(ErrorCode::TooLate, expired.to_string()).into_response();
        }
    };
    let (mut parts, body) = answer.into_parts();
    parts.version = Version::HTTP_11;
    let Some(upgrade) = upgrade.filter(|_| parts.status == StatusCode::SWITCHING_PROTOCOLS) else {
        for name in OF_CONNECTION {
            parts.headers.remove(name);
        }
        op.finish(Outcome::Done);
        let body = http_body_util::BodyExt::map_frame(body, move |frame| {
            // The place is taken until the answer has ended.
            let _ = &place;
            frame
        });
        return Response::from_parts(parts, Body::new(body));
    };
    let there = parts.extensions.remove::<OnUpgrade>();
    let stop = api.tasks.stopping();
    api.tasks.spawn("passed-on-socket", async move {
        let _place = place;
        op.step("socket");
        let copying = async {
            let (here, there) = (upgrade.await, there?.await);
            let (mut here, mut there) = (TokioIo::new(here.ok()?), TokioIo::new(there.ok()?));
            tokio::io::copy_bidirectional(&mut here, &mut there).await.ok()
        };
        let ended = stop.bound(copying).await.flatten();
        op.finish(if ended.is_some() { Outcome::Done } else { Outcome::Failed });
    });
    Response::from_parts(parts, Body::empty())
}

/// The request as the other replica is asked it; none while there is no key to seal with.
fn asked(reach: &LeaderReach, mut request: Request, upgrades: bool) -> Option<http::Request<Body>> {
    let client = request.extensions().get::<Peer>().map(|Peer(address)| address.ip())?;
    let host = request.headers().get(header::HOST).cloned();
    // HTTP/2 has the host in the address alone.
    let host = host.or_else(|| HeaderValue::from_str(request.uri().authority()?.as_str()).ok())?;
    let path = request.uri().path_and_query()?.as_str().parse().ok()?;
    *request.uri_mut() = path;
    let (name, client) = sealed_client(reach, client, &request)?;
    let (mut parts, body) = request.into_parts();
    parts.version = Version::HTTP_11;
    if !upgrades {
        for name in OF_CONNECTION {
            parts.headers.remove(name);
        }
    }
    parts.headers.insert(header::HOST, host);
    parts.headers.insert(name, client);
    let mut asked = http::Request::from_parts(parts, body);
    asked.extensions_mut().clear();
    Some(asked)
}

fn away(why: &str) -> Response {
    let detail = format!("the replica that has this session did not answer: {why}; ask again");
    Problem::new(ErrorCode::NotReady, detail).come_back(SOON).into_response()
}

#[cfg(feature = "fuzzing")]
pub(super) mod fuzz;
