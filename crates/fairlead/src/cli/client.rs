//! The client of a running Fairlead: what every verb that talks to it stands on.
//!
//! ```text
//! verb ── Route ──▶ Server ──▶ JSON │ Events (server-sent) │ Socket (WebSocket)
//!                     └─ or Trouble: what the server said no to, or why it could not be asked
//! ```
//!
//! Every request has a deadline, which the server is told, so that it is the server who says what
//! was late; ours is a little longer. A stream has one until it opens, and may be silent only for
//! [`SILENCE`] after that. The token goes to loopback or over TLS, and never follows a redirect.

pub(crate) mod across;
mod clusters;
mod events;
mod problem;
mod route;
mod socket;
mod target;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Response, Uri};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(crate) use clusters::{ClusterView, Clusters};
pub(crate) use events::{Event, Events};
pub(crate) use problem::{Problem, Trouble};
pub(crate) use route::Route;
pub(crate) use socket::{CHUNK, IN_A_ROW, Socket, Told};
pub(crate) use target::{Change, Chosen, Object, Target};

use crate::cli::values;
use crate::config::{ConfigFlags, Sources};
use crate::output::{Failure, Verdict};

pub(crate) type Answer<T> = Result<T, Trouble>;

/// How much longer we wait than the server was told to.
const GRACE: Duration = Duration::from_secs(2);
/// A stream sends something, if only a comment, every 15 s; three missed ones are no accident.
const SILENCE: Duration = Duration::from_secs(45);
/// No answer is larger: a list of a very large cluster is some tens of megabytes.
const LARGEST_ANSWER: u64 = 1 << 30;
/// A token is a line; what is larger is the wrong file.
const LARGEST_TOKEN: u64 = 4096;

/// Which server, and who asks. The same flags on every verb that talks to one.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerFlags {
    /// Where Fairlead's API is
    #[arg(
        long,
        env = "FAIRLEAD_SERVER",
        value_name = "URL",
        default_value = "http://127.0.0.1:7680"
    )]
    server: String,
    /// File with the token [default: `token` in the data directory]
    #[arg(long, env = "FAIRLEAD_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificate authority (PEM) of the server [default: the public ones]
    #[arg(long, env = "FAIRLEAD_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// For one answer; streams only have to begin within it [default: 30s, for a drain 5m]
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    timeout: Option<Duration>,
}

fn timeout(text: &str) -> Result<Duration, String> {
    values::time(text, "100ms", "5m").ok_or_else(|| "expected 100ms to 5m, such as 10s".to_owned())
}

/// A server to ask.
pub(crate) struct Server {
    base: String,
    host: String,
    port: u16,
    /// Some for https.
    tls: Option<Arc<rustls::ClientConfig>>,
    token_file: PathBuf,
    token: String,
    timeout: Duration,
    agent: ureq::Agent,
}

impl ServerFlags {
    /// Reads what is needed to ask; asks nothing yet.
    pub(crate) fn open(&self) -> Result<Server, Failure> {
        self.open_for(Duration::from_secs(30))
    }

    /// As [`Self::open`], for what takes so long unless said otherwise.
    pub(crate) fn open_for(&self, usual: Duration) -> Result<Server, Failure> {
        let timeout = self.timeout.unwrap_or(usual);
        let (base, host, port, https) = address(&self.server)?;
        let authorities = self.ca_file.as_deref().map(read_authorities).transpose()?;
        let token_file = match &self.token_file {
            Some(file) => file.clone(),
            None => default_token_file()?,
        };
        let token = read_token(&token_file)?;
        let tls = https.then(|| trust(authorities.as_deref())).transpose()?;
        let agent = agent(timeout, authorities.as_deref());
        Ok(Server { base, host, port, tls, token_file, token, timeout, agent })
    }
}

/// Verb code answers with `Trouble`; what the server said no to is told here, with its exit code.
pub(crate) fn verdict(answer: Answer<ExitCode>) -> Verdict {
    match answer {
        Ok(code) => Ok(code),
        Err(Trouble::Failed(failure)) => Err(failure),
        Err(Trouble::Said(problem)) => {
            eprintln!("error: {problem}");
            Ok(ExitCode::from(problem.exit_code()))
        }
    }
}

/// An answer as what it should be. Scripts are given the answer itself, with all that is in it.
pub(crate) fn understood<T: DeserializeOwned>(answer: &Value) -> Answer<T> {
    T::deserialize(answer).map_err(|e| not_understood(&e))
}

fn not_understood(error: &serde_json::Error) -> Trouble {
    Trouble::Failed(Failure(format!(
        "the server's answer is not understood: {error}; are client and server of the same version? (`fairlead version`)"
    )))
}

/// What is sent with a request.
pub(crate) enum Body<'a> {
    None,
    Json(&'a Value),
    Yaml(&'a str),
}

impl Server {
    /// The answer to a GET.
    pub(crate) fn get<T: DeserializeOwned>(&self, route: &Route) -> Answer<T> {
        self.ask(&Method::GET, route, &Body::None)
    }

    /// The JSON answer to any request.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        method: &Method,
        route: &Route,
        body: &Body<'_>,
    ) -> Answer<T> {
        let mut answer = self.call(method, route, "application/json", body, false)?;
        let bytes = answer
            .body_mut()
            .with_config()
            .limit(LARGEST_ANSWER)
            .read_to_vec()
            .map_err(|e| self.broke_off(&e))?;
        // 204 and an empty 200 say the same: done.
        let bytes: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
        serde_json::from_slice(bytes).map_err(|e| not_understood(&e))
    }

    /// The body as it comes, for text.
    pub(crate) fn text(&self, route: &Route) -> Answer<impl Read> {
        let answer = self.call(&Method::GET, route, "text/plain", &Body::None, true)?;
        Ok(answer.into_body().into_with_config().limit(u64::MAX).reader())
    }

    /// Server-sent events.
    pub(crate) fn events(&self, method: &Method, route: &Route, body: &Body<'_>) -> Answer<Events> {
        let answer = self.call(method, route, "text/event-stream", body, true)?;
        if answer.body().mime_type() != Some("text/event-stream") {
            return Err(Failure(format!(
                "{} does not stream here; are client and server of the same version? (`fairlead version`)",
                self.base
            ))
            .into());
        }
        let reader = answer.into_body().into_with_config().limit(u64::MAX).reader();
        Ok(Events::new(Box::new(reader), self.base.clone()))
    }

    fn call(
        &self,
        method: &Method,
        route: &Route,
        accept: &str,
        body: &Body<'_>,
        stream: bool,
    ) -> Answer<Response<ureq::Body>> {
        let timeout = self.timeout;
        let head = http::Request::builder()
            .method(method)
            .uri(format!("{}{route}", self.base))
            .header("authorization", format!("Bearer {}", self.token))
            .header("accept", accept)
            .header("request-timeout", format!("{}ms", timeout.as_millis()));
        let head = if stream { head.header("accept-encoding", "identity") } else { head };
        let bad = |e: http::Error| Failure(format!("{}{route} cannot be asked: {e}", self.base));
        let answer = match body {
            Body::None if *method == Method::GET || *method == Method::DELETE => {
                self.run(head.body(()).map_err(bad)?, stream)
            }
            Body::None => self.run(head.body(&b""[..]).map_err(bad)?, stream),
            Body::Json(value) => {
                let head = head.header("content-type", "application/json");
                self.run(head.body(value.to_string()).map_err(bad)?, stream)
            }
            Body::Yaml(text) => {
                let head = head.header("content-type", "application/yaml");
                self.run(head.body(*text).map_err(bad)?, stream)
            }
        };
        let mut answer = answer.map_err(|e| self.silent(&e))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let retry_after = answer.headers().get("retry-after").and_then(|v| v.to_str().ok());
        let retry_after = retry_after.and_then(|v| v.parse().ok());
        // A refusal that breaks off is still a refusal.
        let text = answer.body_mut().with_config().limit(1 << 20).read_to_vec().unwrap_or_default();
        Err(self.refusal(status, retry_after, &text))
    }

    fn run(
        &self,
        request: http::Request<impl ureq::AsSendBody>,
        stream: bool,
    ) -> Result<Response<ureq::Body>, ureq::Error> {
        let request = if stream {
            self.agent
                .configure_request(request)
                .timeout_global(None)
                .timeout_recv_response(Some(self.timeout + GRACE))
                .timeout_per_read(Some(SILENCE.max(self.timeout + GRACE)))
                .build()
        } else {
            request
        };
        self.agent.run(request)
    }

    /// What an answer that is not a success says.
    fn refusal(&self, status: http::StatusCode, retry_after: Option<u64>, body: &[u8]) -> Trouble {
        let mut problem = Problem::read(status, body, &self.base);
        problem.retry_after_ms = problem.retry_after_ms.or(retry_after.map(|s| s * 1000));
        if problem.code == "unauthenticated" {
            problem.hint = Some(format!(
                "the token of {} is not this server's; name another with --token-file (the local server's is `token` in its --data)",
                self.token_file.display()
            ));
        }
        Trouble::Said(Box::new(problem))
    }

    /// The server did not answer.
    fn silent(&self, error: &ureq::Error) -> Trouble {
        let base = &self.base;
        Trouble::Failed(Failure(match error {
            ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
                format!("{base} cannot be reached in time; is it the right --server?")
            }
            ureq::Error::Timeout(_) => format!(
                "{base} did not answer within {}; `fairlead inflight` on its machine shows what it is doing (--timeout waits longer)",
                values::show_time(self.timeout + GRACE)
            ),
            ureq::Error::HostNotFound => {
                format!("{base}: there is no such host; is it the right --server?")
            }
            ureq::Error::Rustls(_) | ureq::Error::Tls(_) => untrusted(base, error),
            ureq::Error::Io(e) if tls_cause(e).is_some() => untrusted(base, e),
            ureq::Error::Io(e) => {
                format!(
                    "{base} does not answer ({e}); is `fairlead up` running, and there? (--server)"
                )
            }
            error => format!(
                "{base} does not answer ({error}); is `fairlead up` running, and there? (--server)"
            ),
        }))
    }

    fn broke_off(&self, error: &ureq::Error) -> Trouble {
        Trouble::Failed(Failure(format!("{} broke off its answer: {error}", self.base)))
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("base", &self.base).finish_non_exhaustive()
    }
}

/// The rustls error inside an I/O error: the connection was made, and not trusted.
fn tls_cause(error: &std::io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

fn untrusted(base: &str, cause: &dyn std::fmt::Display) -> String {
    format!("{base} is not trusted ({cause}); name its certificate authority with --ca-file")
}

/// Base (without a slash at its end), host, port, and whether it is https.
fn address(url: &str) -> Result<(String, String, u16, bool), Failure> {
    let wrong = |why: &str| {
        Failure(format!(
            "--server {url:?} {why}; expected such as http://127.0.0.1:7680 or https://fairlead.example:7680"
        ))
    };
    let uri: Uri = url.parse().map_err(|_| wrong("is no address"))?;
    let https = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(wrong("is neither http nor https")),
    };
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Err(wrong("has a path"));
    }
    let authority = uri.authority().filter(|a| !a.as_str().contains('@'));
    let authority = authority.ok_or_else(|| wrong("names no host, or a user"))?;
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let loopback = host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    if !https && !loopback {
        return Err(wrong("would carry the token in the clear; beyond loopback it must be https"));
    }
    let port = authority.port_u16().unwrap_or(if https { 443 } else { 80 });
    let scheme = if https { "https" } else { "http" };
    Ok((format!("{scheme}://{authority}"), host, port, https))
}

fn default_token_file() -> Result<PathBuf, Failure> {
    let resolved = Sources::of_this_process(&ConfigFlags::default()).resolve();
    let resolved = resolved.map_err(|problems| {
        Failure(format!(
            "the configuration that says where the token is cannot be read ({}); name the token with --token-file",
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        ))
    })?;
    Ok(resolved.config.data.join("token"))
}

fn read_token(file: &Path) -> Result<String, Failure> {
    let shown = file.display();
    let failed = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => Failure(format!(
            "there is no token at {shown}; is `fairlead up` running? If its --data is elsewhere, set --token-file DATA/token (or FAIRLEAD_TOKEN_FILE)"
        )),
        std::io::ErrorKind::PermissionDenied => Failure(format!(
            "the token at {shown} may not be read by you: only by whoever runs `fairlead up`; ask for a token of your own (`fairlead tokens create`) and name it with --token-file"
        )),
        _ => Failure(format!("the token at {shown} cannot be read: {e}")),
    };
    let open = std::fs::File::open(file).map_err(failed)?;
    let mut text = String::new();
    open.take(LARGEST_TOKEN + 1).read_to_string(&mut text).map_err(failed)?;
    let token = text.trim();
    let fits = text.len() as u64 <= LARGEST_TOKEN && token.bytes().all(|b| b.is_ascii_graphic());
    if token.is_empty() || !fits {
        return Err(Failure(format!(
            "{shown} does not hold a token: expected one line of letters"
        )));
    }
    Ok(token.to_owned())
}

fn read_authorities(file: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let shown = file.display();
    let wrong = |why: String| Failure(format!("--ca-file {shown} {why}"));
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file)
        .map_err(|e| wrong(format!("cannot be read: {e}")))?
        .collect();
    let found = found.map_err(|e| wrong(format!("is not PEM: {e}")))?;
    if found.is_empty() {
        return Err(wrong("holds no certificate".to_owned()));
    }
    Ok(found)
}

fn agent(timeout: Duration, authorities: Option<&[CertificateDer<'static>]>) -> ureq::Agent {
    let mut tls = ureq::tls::TlsConfig::builder();
    if let Some(authorities) = authorities {
        let owned = |der: &CertificateDer<'_>| ureq::tls::Certificate::from_der(der).to_owned();
        let roots: Vec<_> = authorities.iter().map(owned).collect();
        tls = tls.root_certs(ureq::tls::RootCerts::new_with_certs(&roots));
    }
    ureq::Agent::config_builder()
        .tls_config(tls.build())
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .timeout_connect(Some(timeout.min(Duration::from_secs(10))))
        .timeout_global(Some(timeout + GRACE))
        .user_agent(concat!("fairlead/", env!("CARGO_PKG_VERSION")))
        .build()
        .into()
}

/// What a WebSocket trusts: the same as the agent.
fn trust(
    authorities: Option<&[CertificateDer<'static>]>,
) -> Result<Arc<rustls::ClientConfig>, Failure> {
    let mut roots = rustls::RootCertStore::empty();
    match authorities {
        Some(authorities) => {
            for authority in authorities {
                roots
                    .add(authority.clone())
                    .map_err(|e| Failure(format!("--ca-file holds no usable authority: {e}")))?;
            }
        }
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Failure(format!("TLS cannot be set up: {e}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests;
