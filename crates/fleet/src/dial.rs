//! `Dialer`: opens a connection to an API server, step by step, each with its own limit.
//!
//! Contract:
//! - The steps are `resolve`, `tcp`, `proxy` (when there is one) and `tls`. Each is bounded, timed and
//!   recorded; an error names its step. kube's own connector has one limit for all of them.
//! - The kernel notices a dead connection within [`SILENT`], also under a watch that waits for events.
//! - At most [`LOOKUPS`] names are looked up at once. A lookup that hangs (the C library's cannot be
//!   cancelled) keeps its place until it returns, so that a dead name server costs a bounded number of
//!   threads. Addresses need no lookup and wait for nobody.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, Uri};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use kube::client::ConfigExt;
use parking_lot::Mutex;
use rustix::net::sockopt;
use rustls::pki_types::ServerName;
use serde::Serialize;
use stallproof::{Deadline, Tasks};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tower::Service;

use crate::config::Timing;
use crate::credentials::{Endpoint, Redacted, bare};
use crate::failure::{Failure, Reason, short, tls_error};
use crate::local_address::{AddressGuard, first_local, literal};

/// Well below tokio's 512 blocking threads, on which the C library's lookups run.
const LOOKUPS: usize = 128;
/// A connection on which nothing that was sent is acknowledged for this long is dead.
const SILENT: Duration = Duration::from_secs(30);

/// One step of connecting to a cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    pub name: &'static str,
    pub ok: bool,
    #[serde(rename = "tookMs", serialize_with = "millis")]
    pub took: Duration,
}

fn millis<S: serde::Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(took.as_micros() as f64 / 1000.0)
}

/// The steps of the newest connection. The dialer writes them, reports read them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steps(Arc<Mutex<Vec<Step>>>);

impl Steps {
    pub(crate) fn take(&self) -> Vec<Step> {
        std::mem::take(&mut self.0.lock())
    }

    /// Runs one step and records its result and time.
    pub(crate) async fn run<T, E>(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let began = Instant::now();
        let result = work.await;
        self.0.lock().push(Step { name, ok: result.is_ok(), took: began.elapsed() });
        result
    }
}

/// Looks up host names, a bounded number at once.
#[derive(Clone, Debug)]
pub(crate) struct Resolver {
    lookups: Arc<Semaphore>,
    tasks: Tasks,
}

impl Resolver {
    pub(crate) fn new(tasks: &Tasks) -> Self {
        Self { lookups: Arc::new(Semaphore::new(LOOKUPS)), tasks: tasks.clone() }
    }

    /// The addresses of a name, as far as they are found in time.
    pub(crate) async fn addresses(&self, host: &str, deadline: Deadline) -> Vec<IpAddr> {
        let found = deadline.bound(self.resolve(host, 0)).await;
        let found = found.ok().and_then(Result::ok).unwrap_or_default();
        found.into_iter().map(|address| address.ip()).collect()
    }

    async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, Cause> {
        if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let place = Arc::clone(&self.lookups).acquire_owned().await;
        let host = host.to_owned();
        // A task of its own, which no deadline drops: it frees its place when the lookup has ended.
        let stop = self.tasks.stopping();
        let lookup = self.tasks.spawn("look up a name", async move {
            let _place = place;
            stop.bound(tokio::net::lookup_host((host, port)))
                .await
                .map(|found| found.map(Vec::from_iter).map_err(|error| error.to_string()))
        });
        match lookup.await {
            Ok(Some(Ok(addresses))) if addresses.is_empty() => {
                Err(Cause::Name("it has no address".to_owned()))
            }
            Ok(Some(found)) => found.map_err(Cause::Name),
            Ok(None) => Err(Cause::Name("we are stopping".to_owned())),
            Err(error) => Err(Cause::Name(error.to_string())),
        }
    }
}

/// Why dialling failed, and in which step.
#[derive(Debug)]
pub(crate) struct DialError {
    step: &'static str,
    /// The server or the proxy that was dialled.
    peer: String,
    through_proxy: bool,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    Name(String),
    Io(io::Error),
    Tls(rustls::Error),
    Proxy(String),
    Late(Duration),
    /// The address may not be connected to.
    Local(IpAddr, &'static str),
}

impl DialError {
    pub(crate) fn failure(&self, server: &str) -> Failure {
        let peer =
            if self.through_proxy { format!("the proxy {}", self.peer) } else { server.to_owned() };
        match &self.cause {
            Cause::Name(why) => {
                let host = self.peer.split("://").last().unwrap_or(&self.peer);
                Failure::new(Reason::Name, format!("the name in {host} cannot be found: {why}"))
            }
            Cause::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => Failure::new(
                Reason::Refused,
                format!("{peer} refuses connections: nothing listens there, or a firewall says no"),
            ),
            Cause::Io(error) => {
                Failure::new(Reason::Network, format!("{peer} cannot be reached: {error}"))
            }
            Cause::Tls(error) => Failure::of_tls(error, &peer),
            Cause::Proxy(why) => Failure::new(
                Reason::Proxy,
                format!("the proxy {} does not connect us to {server}: {why}", self.peer),
            ),
            Cause::Local(address, kind) => Failure::new(
                Reason::Setup,
                format!(
                    "{peer} is at {kind} ({address}), which is not connected to for a cluster that somebody \
                     imported; where that is meant, set fleet.local-imports to allow"
                ),
            ),
            Cause::Late(limit) => {
                let (what, reason) = match self.step {
                    "resolve" => ("the lookup of its name did not end", Reason::Name),
                    "tcp" => ("it does not take the connection", Reason::Timeout),
                    "proxy" => ("the proxy does not answer", Reason::Proxy),
                    _ => (
                        "it takes the connection and does not finish the TLS handshake",
                        Reason::Timeout,
                    ),
                };
                Failure::new(reason, format!("{peer}: {what} within {}", short(*limit)))
            }
        }
    }
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.failure(&self.peer).why)
    }
}

impl std::error::Error for DialError {}

/// Resolves a name and connects, with TLS to a proxy that needs it.
#[derive(Clone)]
struct Tcp {
    resolver: Resolver,
    limit: Duration,
    steps: Steps,
    proxy_tls: Option<Tls>,
    to_proxy: bool,
    /// Connects to no address of this machine.
    refuse_local: bool,
}

#[derive(Clone)]
struct Tls {
    connector: TlsConnector,
    /// The name to verify; `None` means the host that is dialled.
    name: Option<ServerName<'static>>,
    limit: Duration,
}

/// Opens connections to one endpoint.
#[derive(Clone)]
pub(crate) struct Dialer {
    guard: AddressGuard,
    route: Route,
    tls: Option<Tls>,
    limit: Duration,
    steps: Steps,
}

#[derive(Clone)]
enum Route {
    Direct(Tcp),
    Http(Tunnel<Tcp>, String),
    Socks(SocksV5<Tcp>, String),
}

impl Dialer {
    pub(crate) fn new(
        endpoint: &Endpoint,
        tls: rustls::ClientConfig,
        resolver: &Resolver,
        timing: &Timing,
        steps: &Steps,
    ) -> Result<Self, Failure> {
        let secure = endpoint.server.scheme_str() != Some("http");
        let tls = secure.then(|| Tls::new(tls, endpoint.tls_server_name.as_deref(), timing.tls));
        let tcp = Tcp {
            resolver: resolver.clone(),
            limit: timing.connect,
            steps: steps.clone(),
            proxy_tls: None,
            to_proxy: false,
            refuse_local: match endpoint.proxy {
                Some(_) => endpoint.guard.checks_proxy(),
                None => endpoint.guard.refuse_local,
            },
        };
        Ok(Self {
            guard: endpoint.guard,
            route: Route::new(endpoint.proxy.as_ref(), tcp, timing)?,
            tls: tls.transpose()?,
            limit: timing.connect,
            steps: steps.clone(),
        })
    }

    async fn dial(mut self, server: Uri) -> Result<Transport, DialError> {
        // Only the steps of the newest connection are kept.
        drop(self.steps.take());
        if self.guard.refuse_local
            && let Some((address, kind)) = first_local(literal(&server))
        {
            let (peer, cause) = (bare(&server), Cause::Local(address, kind));
            return Err(DialError { step: "resolve", peer, through_proxy: false, cause });
        }
        let stream = match &mut self.route {
            Route::Direct(tcp) => tcp.call(server.clone()).await?,
            Route::Http(tunnel, proxy) => {
                let through = tunnel.call(server.clone());
                through_proxy(&self.steps, self.limit, proxy, through).await?
            }
            Route::Socks(socks, proxy) => {
                let through = socks.call(server.clone());
                through_proxy(&self.steps, self.limit, proxy, through).await?
            }
        };
        match &self.tls {
            Some(tls) => tls.handshake(&self.steps, stream, &server, false).await,
            None => Ok(stream),
        }
    }
}

/// Connects through the proxy; an error says what the proxy answered.
async fn through_proxy<E: std::error::Error + 'static>(
    steps: &Steps,
    limit: Duration,
    proxy: &str,
    tunnel: impl Future<Output = Result<Transport, E>>,
) -> Result<Transport, DialError> {
    let error =
        |cause| DialError { step: "proxy", peer: proxy.to_owned(), through_proxy: true, cause };
    // The connection to the proxy has its own limit; this adds the time for the proxy's answer.
    let work = async {
        match Deadline::after(limit * 3).bound(tunnel).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(tunnel)) => {
                let mut said = tunnel.to_string();
                let mut cause = tunnel.source();
                while let Some(error) = cause {
                    said = error.to_string();
                    cause = error.source();
                }
                let mut said = said.trim_start_matches("tunnel error: ").to_owned();
                if said.contains("authorization required") {
                    said.push_str("; put user and password into proxy-url");
                }
                Err(error(Cause::Proxy(said)))
            }
            Err(_) => Err(error(Cause::Late(limit * 3))),
        }
    };
    steps.run("proxy", work).await
}

impl Route {
    fn new(proxy: Option<&Redacted<Uri>>, mut tcp: Tcp, timing: &Timing) -> Result<Self, Failure> {
        let Some(Redacted(proxy)) = proxy else { return Ok(Self::Direct(tcp)) };
        let shown = bare(proxy);
        tcp.to_proxy = true;
        let user = proxy.authority().and_then(|authority| authority.as_str().rsplit_once('@'));
        let user = user.map(|(user, _)| decoded(user));
        match proxy.scheme_str() {
            Some(scheme @ ("http" | "https")) => {
                if scheme == "https" {
                    // The proxy is verified by the system's authorities, not by the cluster's.
                    let config = kube::Config::new(proxy.clone()).rustls_client_config();
                    let config = config.map_err(|error| {
                        Failure::setup(format!(
                            "TLS to the proxy {shown} cannot be set up: {error}"
                        ))
                    })?;
                    tcp.proxy_tls = Some(Tls::new(config, None, timing.tls)?);
                }
                let mut tunnel = Tunnel::new(proxy.clone(), tcp);
                if let Some(user) = user {
                    use base64::Engine as _;
                    let pair = base64::prelude::BASE64_STANDARD.encode(user);
                    let header = HeaderValue::try_from(format!("Basic {pair}")).map_err(|_| {
                        Failure::setup(format!("the user of the proxy {shown} cannot be sent"))
                    })?;
                    tunnel = tunnel.with_auth(header);
                }
                Ok(Self::Http(tunnel, shown))
            }
            Some("socks5" | "socks5h") => {
                let mut socks = SocksV5::new(proxy.clone(), tcp);
                if let Some(user) = user {
                    let (user, password) = user.split_once(':').unwrap_or((&user, ""));
                    socks = socks.with_auth(user.to_owned(), password.to_owned());
                }
                Ok(Self::Socks(socks, shown))
            }
            _ => Err(Failure::setup(format!(
                "proxy-url {shown} is none that can be used; it must begin with http://, https:// \
                 or socks5://"
            ))),
        }
    }
}

/// Decodes percent escapes, such as `%40` for `@`.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = (*first == b'%' && tail.len() >= 2)
            .then(|| std::str::from_utf8(&tail[..2]).ok())
            .flatten()
            .filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Tcp {
    fn error(&self, step: &'static str, peer: &Uri, cause: Cause) -> DialError {
        DialError { step, peer: bare(peer), through_proxy: self.to_proxy, cause }
    }

    async fn connect(self, peer: Uri) -> Result<Transport, DialError> {
        let deadline = Deadline::after(self.limit);
        let late = |_| Cause::Late(self.limit);
        let host = peer.host().unwrap_or_default().to_owned();
        let port = peer.port_u16().unwrap_or(match peer.scheme_str() {
            Some("http") => 80,
            Some("socks5" | "socks5h") => 1080,
            _ => 443,
        });
        let lookup = async {
            deadline.bound(self.resolver.resolve(&host, port)).await.map_err(late).flatten()
        };
        let addresses = self.steps.run("resolve", lookup).await;
        let addresses = addresses.map_err(|cause| self.error("resolve", &peer, cause))?;
        // One address of this machine among others is one too many.
        let ips = addresses.iter().map(SocketAddr::ip);
        if let Some((address, kind)) = first_local(ips).filter(|_| self.refuse_local) {
            return Err(self.error("resolve", &peer, Cause::Local(address, kind)));
        }
        let connecting = async {
            // Each address gets a share of the time left, so that a dead one does not hide the others.
            let mut last = Cause::Late(self.limit);
            for (index, address) in addresses.iter().enumerate() {
                let left = u32::try_from(addresses.len() - index).unwrap_or(1);
                let share = deadline.within(deadline.remaining() / left);
                match share.bound(TcpStream::connect(address)).await {
                    Ok(Ok(stream)) => return Ok(stream),
                    Ok(Err(error)) => last = Cause::Io(error),
                    Err(_) => {}
                }
            }
            Err(last)
        };
        let stream = self.steps.run("tcp", connecting).await;
        let stream = stream.map_err(|cause| self.error("tcp", &peer, cause))?;
        set_keepalive(&stream).map_err(|error| self.error("tcp", &peer, Cause::Io(error)))?;
        let stream = transport(stream);
        match &self.proxy_tls {
            Some(tls) => tls.handshake(&self.steps, stream, &peer, true).await,
            None => Ok(stream),
        }
    }
}

/// Has the kernel end a connection whose other side has disappeared.
fn set_keepalive(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SILENT / 2)?;
    sockopt::set_tcp_keepintvl(stream, SILENT / 6)?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    sockopt::set_tcp_user_timeout(stream, u32::try_from(SILENT.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}

impl Tls {
    fn new(
        mut config: rustls::ClientConfig,
        name: Option<&str>,
        limit: Duration,
    ) -> Result<Self, Failure> {
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name = name.map(|name| ServerName::try_from(name.to_owned())).transpose();
        let name = name
            .map_err(|_| Failure::setup("tls-server-name is neither a DNS name nor an address"))?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name, limit })
    }

    async fn handshake(
        &self,
        steps: &Steps,
        stream: Transport,
        peer: &Uri,
        to_proxy: bool,
    ) -> Result<Transport, DialError> {
        let host = peer.host().unwrap_or_default().trim_matches(['[', ']']);
        let work = async {
            let name = match &self.name {
                Some(name) => name.clone(),
                None => ServerName::try_from(host.to_owned())
                    .map_err(|_| Cause::Name("it is no valid host name".to_owned()))?,
            };
            match Deadline::after(self.limit)
                .bound(self.connector.connect(name, stream.into_inner()))
                .await
            {
                Ok(Ok(stream)) => Ok(transport(stream)),
                Ok(Err(error)) => Err(match tls_error(&error) {
                    Some(tls) => Cause::Tls(tls.clone()),
                    None => Cause::Io(error),
                }),
                Err(_) => Err(Cause::Late(self.limit)),
            }
        };
        let result = steps.run(if to_proxy { "proxy-tls" } else { "tls" }, work).await;
        result.map_err(|cause| DialError {
            step: "tls",
            peer: bare(peer),
            through_proxy: to_proxy,
            cause,
        })
    }
}

type Dialling = Pin<Box<dyn Future<Output = Result<Transport, DialError>> + Send>>;

impl Service<Uri> for Tcp {
    type Response = Transport;
    type Error = DialError;
    type Future = Dialling;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, peer: Uri) -> Dialling {
        Box::pin(self.clone().connect(peer))
    }
}

impl Service<Uri> for Dialer {
    type Response = Transport;
    type Error = DialError;
    type Future = Dialling;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Dialling {
        Box::pin(self.clone().dial(server))
    }
}

trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// An open connection, with or without TLS.
pub(crate) struct OpenStream(Box<dyn ByteStream>);

/// An open connection in the form that hyper takes.
type Transport = TokioIo<OpenStream>;

fn transport(stream: impl ByteStream + 'static) -> Transport {
    TokioIo::new(OpenStream(Box::new(stream)))
}

impl Connection for OpenStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for OpenStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for OpenStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
