//! The client of a running Fairlead: every verb that talks to one stands on it.
//!
//! ```text
//! verb ── Route ──▶ Server ──▶ JSON │ Events (server-sent) │ text │ Socket (WebSocket)
//!                     └─ or ClientError: the server refused, or it could not be asked
//! ```
//!
//! Every request has a deadline, which the server is told, so that it is the server who says what
//! was late; ours is a little longer. A stream has one until it opens, and may be silent only for
//! [`SILENCE`] after that. The token goes to loopback or over TLS, and never follows a redirect.

pub(crate) mod across;
mod clusters;
mod credentials;
mod events;
mod login;
mod problem;
mod route;
mod socket;
mod target;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{BoxStream, unfold};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, USER_AGENT,
};
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

pub(crate) use clusters::{ClusterView, Clusters};
pub(crate) use events::{Event, Events};
pub(crate) use login::{LoginFile, SavedLogin, Tokens};
pub(crate) use problem::{ClientError, Problem};
pub(crate) use route::Route;
pub(crate) use socket::{CHUNK, FrameReceiver, FrameSender};
pub(crate) use target::{Access, ClusterChoice, Object, Target};

use crate::cli::files;
use crate::cli::http::{self as transport, Connection, HttpError, Origin, Trust};
use crate::cli::runtime;
use crate::output::{Failure, Output, Verdict};
use crate::values;

pub(crate) type ClientResult<T> = Result<T, ClientError>;

/// How much longer we wait than the server was told to.
const GRACE: Duration = Duration::from_secs(2);
/// A stream sends something, if only a comment, every 15 s; three missed ones are no accident.
const SILENCE: Duration = Duration::from_secs(45);
/// No answer is larger: a list of a very large cluster is some tens of megabytes.
const LARGEST_ANSWER: usize = 1 << 30;
/// A refusal is a sentence; what is larger is cut off.
const LARGEST_REFUSAL: usize = 1 << 20;

/// A few certificates.
const LARGEST_AUTHORITIES: u64 = 1 << 20;

/// Which server, and who asks. The same flags on every verb that talks to one.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerFlags {
    /// Address of Fairlead's API
    #[arg(
        long,
        env = "FAIRLEAD_SERVER",
        value_name = "URL",
        default_value = "http://127.0.0.1:7680"
    )]
    server: String,
    /// File with the token [default: what `fairlead login` kept of the server, else `token` in the data
    /// directory]
    #[arg(long, env = "FAIRLEAD_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificate authority (PEM) of the server [default: the public ones]
    #[arg(long, env = "FAIRLEAD_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// How long one answer may take; a stream only has to begin within it [default: 30s, for a
    /// drain 5m]
    #[arg(long, value_name = "TIME", value_parser = parse_timeout)]
    timeout: Option<Duration>,
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    values::time(text, "100ms", "5m").ok_or_else(|| "expected 100ms to 5m, such as 10s".to_owned())
}

/// The flags of a verb that lists what a server has.
#[derive(Debug, clap::Args)]
pub(crate) struct ListFlags {
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
}

/// The flags of a verb that changes one thing of a server's, by its name.
#[derive(Debug, clap::Args)]
pub(crate) struct NamedFlags {
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
}

/// A server to ask.
#[derive(Debug)]
pub(crate) struct Server {
    /// Its address without a slash at the end.
    base: String,
    origin: Origin,
    credential: Credential,
    /// The file with the authorities that are trusted; none where the public ones are.
    ca_file: Option<PathBuf>,
    timeout: Duration,
}

/// What shows a server who asks.
#[derive(Debug)]
enum Credential {
    /// Nothing: for logging in.
    None,
    /// A token that somebody else keeps current.
    File { path: PathBuf, token: Token },
    /// What a login that is under way, or over, is known by: whichever replica is asked passes it on.
    Handle(Token),
    /// A login, which is renewed here. Written by whoever renews it, read by every request.
    Login { file: LoginFile, login: Mutex<SavedLogin> },
}

/// A secret, which no Debug output shows.
#[derive(Clone)]
struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl ServerFlags {
    /// The flags of a verb that has flags of the same names for something else.
    pub(crate) fn new(
        server: String,
        token_file: Option<PathBuf>,
        ca_file: Option<PathBuf>,
    ) -> Self {
        Self { server, token_file, ca_file, timeout: None }
    }

    /// Reads the token and the authorities; asks nothing yet.
    pub(crate) fn open(&self) -> Result<Server, Failure> {
        self.open_for(Duration::from_secs(30))
    }

    /// As [`Self::open`], with another default for `--timeout`.
    pub(crate) fn open_for(&self, default_timeout: Duration) -> Result<Server, Failure> {
        let timeout = self.timeout.unwrap_or(default_timeout);
        let base = parse_address(&self.server)?.1;
        let file = LoginFile::of(&base).filter(|_| self.token_file.is_none());
        let login = match &file {
            Some(file) => file.read(&base)?,
            None => None,
        };
        if let (Some(file), Some(login)) = (file, login) {
            let ca_file = self.ca_file.clone().or_else(|| login.ca_file.clone());
            let credential = Credential::Login { file, login: Mutex::new(login) };
            return self.open_as(credential, ca_file.as_ref(), timeout);
        }
        let path = match &self.token_file {
            Some(file) => file.clone(),
            None => credentials::default_token_file()?,
        };
        let token = Token(credentials::read_token(&path)?);
        self.open_as(Credential::File { path, token }, self.ca_file.as_ref(), timeout)
    }

    /// The flags for a server that is named otherwise.
    pub(crate) fn of(server: &str, ca_file: Option<PathBuf>) -> Self {
        Self { server: server.to_owned(), token_file: None, ca_file, timeout: None }
    }

    /// As [`Self::open`], for who has nothing to show yet.
    pub(crate) fn open_stranger(&self) -> Result<Server, Failure> {
        let timeout = self.timeout.unwrap_or(Duration::from_secs(30));
        self.open_as(Credential::None, self.ca_file.as_ref(), timeout)
    }

    fn open_as(
        &self,
        credential: Credential,
        ca_file: Option<&PathBuf>,
        timeout: Duration,
    ) -> Result<Server, Failure> {
        let (url, base) = parse_address(&self.server)?;
        let trust = match ca_file {
            Some(file) => Trust::Authorities(credentials::read_authorities(file)?),
            None => Trust::Public,
        };
        let origin = Origin::of(&url, trust, timeout.min(Duration::from_secs(10)))
            .map_err(|e| Failure(format!("--server {base} cannot be used: {e}")))?;
        Ok(Server { base, origin, credential, ca_file: ca_file.cloned(), timeout })
    }
}

/// Runs a verb that asks a server. What the server refuses is printed here, with its exit code; what
/// fails is left to `main`.
pub(crate) fn run(verb: impl Future<Output = ClientResult<ExitCode>>) -> Verdict {
    match runtime::block_on(async { Ok(verb.await) })? {
        Ok(code) => Ok(code),
        Err(ClientError::Failed(failure)) => Err(failure),
        Err(ClientError::Refused(problem)) => {
            eprintln!("error: {problem}");
            Ok(ExitCode::from(problem.exit_code()))
        }
    }
}

/// Decodes an answer of which scripts are given the JSON itself, with all that is in it.
pub(crate) fn decode<T: DeserializeOwned>(answer: &Value) -> ClientResult<T> {
    T::deserialize(answer).map_err(|e| not_understood(&e))
}

fn not_understood(error: &serde_json::Error) -> ClientError {
    ClientError::Failed(Failure(format!(
        "the server's answer is not understood: {error}; are client and server of the same version? (`fairlead version`)"
    )))
}

/// The body of a request.
#[derive(Clone, Copy)]
pub(crate) enum Body<'a> {
    None,
    Json(&'a Value),
    Yaml(&'a str),
}

impl Server {
    /// A link to a path of this server.
    pub(crate) fn link(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// The authorities (PEM) that the server is trusted by; none where those are the public ones.
    pub(crate) fn authorities(&self) -> ClientResult<Option<String>> {
        let read = |file: &PathBuf| files::read(file, LARGEST_AUTHORITIES);
        Ok(self.ca_file.as_ref().map(read).transpose()?)
    }

    /// A body of lines as it comes.
    pub(crate) async fn lines(&self, route: &Route) -> ClientResult<Chunks> {
        let accept = "application/x-ndjson";
        self.open_stream(Method::GET, route, Body::None, accept).await.map(|(_, lines)| lines)
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, route: &Route) -> ClientResult<T> {
        self.request(Method::GET, route, Body::None).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        route: &Route,
        body: Body<'_>,
    ) -> ClientResult<T> {
        self.request(Method::POST, route, body).await
    }

    pub(crate) async fn put(&self, route: &Route, body: &Value) -> ClientResult<Value> {
        self.request(Method::PUT, route, Body::Json(body)).await
    }

    pub(crate) async fn patch(&self, route: &Route, body: &Value) -> ClientResult<Value> {
        self.request(Method::PATCH, route, Body::Json(body)).await
    }

    pub(crate) async fn delete(&self, route: &Route) -> ClientResult<Value> {
        self.request(Method::DELETE, route, Body::None).await
    }

    /// The JSON answer to a request.
    pub(crate) async fn request<T: DeserializeOwned>(
        &self,
        method: Method,
        route: &Route,
        body: Body<'_>,
    ) -> ClientResult<T> {
        let request = self.authorized(method, route, body, "application/json").await?;
        let exchange = async {
            let (response, connection) = self.send(request).await?;
            let bytes = transport::read(response, LARGEST_ANSWER)
                .await
                .map_err(|e| Failure(format!("{} broke off its answer: {e}", self.base)))?;
            self.origin.keep(connection);
            Ok(bytes)
        };
        let bytes = self.in_time(exchange).await?;
        // 204 and an empty 200 say the same: done.
        let bytes: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
        serde_json::from_slice(bytes).map_err(|e| not_understood(&e))
    }

    /// The body of an answer as it comes, for text.
    pub(crate) async fn text(&self, route: &Route) -> ClientResult<Chunks> {
        self.open_stream(Method::GET, route, Body::None, "text/plain").await.map(|(_, text)| text)
    }

    /// Server-sent events.
    pub(crate) async fn events(
        &self,
        method: Method,
        route: &Route,
        body: Body<'_>,
    ) -> ClientResult<Events> {
        let accept = "text/event-stream";
        let (kind, chunks) = self.open_stream(method, route, body, accept).await?;
        if !kind.starts_with(accept) {
            return Err(Failure(format!(
                "{} does not stream here; are client and server of the same version? (`fairlead version`)",
                self.base
            ))
            .into());
        }
        Ok(Events::new(chunks, self.base.clone()))
    }

    /// The content type and the chunks of an answer that may go on for ever.
    async fn open_stream(
        &self,
        method: Method,
        route: &Route,
        body: Body<'_>,
        accept: &'static str,
    ) -> ClientResult<(String, Chunks)> {
        let request = self.authorized(method, route, body, accept).await?;
        let (response, _) = self.in_time(self.send(request)).await?;
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or_default().to_owned();
        Ok((kind, chunks(response.into_body(), SILENCE.max(self.timeout + GRACE))))
    }

    pub(crate) fn address(&self) -> &str {
        &self.base
    }

    /// The same server for what only knows a login's handle, or its refresh token.
    pub(crate) fn showing(self, handle: &str) -> Self {
        Self { credential: Credential::Handle(Token(handle.to_owned())), ..self }
    }

    /// A request with what shows who asks, renewed if need be.
    async fn authorized(
        &self,
        method: Method,
        route: &Route,
        body: Body<'_>,
        accept: &'static str,
    ) -> ClientResult<Request<Full<Bytes>>> {
        let token = self.token().await?;
        self.build(method, route, body, accept, token.as_ref())
    }

    async fn token(&self) -> ClientResult<Option<Token>> {
        match &self.credential {
            Credential::None => Ok(None),
            Credential::File { token, .. } | Credential::Handle(token) => Ok(Some(token.clone())),
            Credential::Login { file, login } => {
                let known = login.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let current = if known.is_current() { known } else { self.renew(file).await? };
                let token = Token(current.access.clone());
                *login.lock().unwrap_or_else(PoisonError::into_inner) = current;
                Ok(Some(token))
            }
        }
    }

    /// Exchanges the tokens of a login for the next ones, unless another command has done that.
    async fn renew(&self, file: &LoginFile) -> ClientResult<SavedLogin> {
        let _turn = file.lock().await?;
        let again = format!("log in again: `fairlead login {}`", self.base);
        let login = file.read(&self.base)?;
        let login = login.ok_or_else(|| Failure(format!("you are logged out; {again}")))?;
        if login.is_current() {
            return Ok(login);
        }
        let body = serde_json::json!({ "refresh": login.refresh });
        let route = Route::to(["auth", "cli", "refresh"]);
        // Shown as well: it says which replica has the login.
        let shown = Token(login.refresh.clone());
        let json = "application/json";
        let request = self.build(Method::POST, &route, Body::Json(&body), json, Some(&shown))?;
        let exchange = async {
            let (response, connection) = self.send(request).await?;
            let read = transport::read(response, LARGEST_REFUSAL).await;
            let bytes =
                read.map_err(|e| Failure(format!("{} broke off its answer: {e}", self.base)));
            self.origin.keep(connection);
            Ok(bytes?)
        };
        let bytes = match self.in_time(exchange).await {
            Err(ClientError::Refused(problem)) if problem.code == "unauthenticated" => {
                let why = format!("the login to {} has ended; {again}", self.base);
                return Err(Failure(why).into());
            }
            other => other?,
        };
        let tokens: Tokens = serde_json::from_slice(&bytes).map_err(|e| not_understood(&e))?;
        let login = SavedLogin::new(&self.base, tokens, login.ca_file);
        file.write(&login)?;
        Ok(login)
    }

    fn build(
        &self,
        method: Method,
        route: &Route,
        body: Body<'_>,
        accept: &'static str,
        token: Option<&Token>,
    ) -> ClientResult<Request<Full<Bytes>>> {
        let mut head = Request::builder().uri(route.to_string());
        if let Some(Token(token)) = token {
            head = head.header("authorization", format!("Bearer {token}"));
        }
        let head = head
            .header("request-timeout", format!("{}ms", self.timeout.as_millis()))
            .header(USER_AGENT, concat!("fairlead/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, accept);
        // A stream that is packed would come in blocks.
        let coding = if accept == "application/json" { "gzip" } else { "identity" };
        let head = head.header(ACCEPT_ENCODING, coding);
        let (head, bytes) = match body {
            Body::None if matches!(method, Method::GET | Method::DELETE) => (head, Bytes::new()),
            Body::None => (head.header(CONTENT_LENGTH, 0), Bytes::new()),
            Body::Json(value) => {
                (head.header(CONTENT_TYPE, "application/json"), value.to_string().into())
            }
            Body::Yaml(text) => {
                (head.header(CONTENT_TYPE, "application/yaml"), text.to_owned().into())
            }
        };
        let request = head.method(method).body(Full::new(bytes));
        Ok(request.map_err(|e| Failure(format!("{}{route} cannot be asked: {e}", self.base)))?)
    }

    /// Sends a request; an answer that is not a success is an error.
    async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> ClientResult<(Response<Incoming>, Connection)> {
        let (response, connection) =
            self.origin.send(request).await.map_err(|e| self.no_answer(&e))?;
        let status = response.status();
        if status.is_success() || status == http::StatusCode::SWITCHING_PROTOCOLS {
            return Ok((response, connection));
        }
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|v| v.to_str().ok());
        let retry_after = retry_after.and_then(|v| v.parse::<u64>().ok());
        // A refusal that breaks off is still a refusal.
        let body = transport::read(response, LARGEST_REFUSAL).await.unwrap_or_default();
        let mut problem = Problem::read(status, &body, &self.base);
        problem.retry_after_ms = problem.retry_after_ms.or(retry_after.map(|s| s * 1000));
        if problem.code == "unauthenticated" {
            problem.hint = match &self.credential {
                Credential::None | Credential::Handle(_) => None,
                Credential::File { path, .. } => Some(format!(
                    "the token of {} is not this server's; name another with --token-file (the local server's is `token` in its --data), or `fairlead login {}`",
                    path.display(),
                    self.base
                )),
                Credential::Login { .. } => {
                    Some(format!("the login has ended; `fairlead login {}`", self.base))
                }
            };
        }
        Err(ClientError::Refused(Box::new(problem)))
    }

    async fn in_time<T>(&self, work: impl Future<Output = ClientResult<T>>) -> ClientResult<T> {
        let limit = self.timeout + GRACE;
        match timeout(limit, work).await {
            Ok(result) => result,
            Err(_) => Err(self.no_answer(&HttpError::AnswerTimeout(limit))),
        }
    }

    fn no_answer(&self, error: &HttpError) -> ClientError {
        let base = &self.base;
        ClientError::Failed(Failure(match error {
            HttpError::ConnectTimeout => {
                format!("{base} cannot be reached in time; is it the right --server?")
            }
            HttpError::AnswerTimeout(limit) => format!(
                "{base} did not answer within {}; `fairlead inflight` on its machine shows what it is doing (--timeout waits longer)",
                values::show_time(*limit)
            ),
            HttpError::NoSuchHost => {
                format!("{base}: there is no such host; is it the right --server?")
            }
            HttpError::Untrusted(cause) => format!(
                "{base} is not trusted ({cause}); name its certificate authority with --ca-file"
            ),
            error => format!(
                "{base} does not answer ({error}); is `fairlead up` running, and there? (--server)"
            ),
        }))
    }
}

/// The chunks of a body as they come.
pub(crate) type Chunks = BoxStream<'static, Result<Bytes, String>>;

/// The data of a body; a silence longer than `silence` is an error, and so ends it.
fn chunks(body: Incoming, silence: Duration) -> Chunks {
    unfold(body, move |mut body| async move {
        loop {
            let chunk = match timeout(silence, body.frame()).await {
                Ok(None) => return None,
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => Ok(data),
                    // Trailers.
                    Err(_) => continue,
                },
                Ok(Some(Err(error))) => Err(stallproof::sentence(&error)),
                Err(_) => Err(format!("nothing came for {}", values::show_time(silence))),
            };
            return Some((chunk, body));
        }
    })
    .boxed()
}

/// The address of a server, and as it is shown: without a slash at its end.
fn parse_address(url: &str) -> Result<(Uri, String), Failure> {
    let wrong = |why: &str| {
        Failure(format!(
            "--server {url:?} {why}; expected such as http://127.0.0.1:7680 or https://fairlead.example:7680"
        ))
    };
    let uri: Uri = url.parse().map_err(|_| wrong("is no address"))?;
    let Some(scheme @ ("http" | "https")) = uri.scheme_str() else {
        return Err(wrong("is neither http nor https"));
    };
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Err(wrong("has a path"));
    }
    let authority = uri.authority().filter(|a| !a.as_str().contains('@'));
    let authority = authority.ok_or_else(|| wrong("names no host, or a user"))?;
    let host = transport::host_of(authority);
    let loopback = host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    if scheme == "http" && !loopback {
        return Err(wrong("would carry the token in the clear; beyond loopback it must be https"));
    }
    let base = format!("{scheme}://{authority}");
    Ok((uri, base))
}

#[cfg(test)]
mod tests;
