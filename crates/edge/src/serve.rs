//! HTTP on a listener, of version 1.1 and, where it is offered, 2 ([`http2`]), over the accept loop of [`stallproof::accept`]: deadlines on handshakes and
//! headers, and a stop that lets answers finish.
//!
//! axum's own `serve` has neither a bound nor a deadline: idle or dripping clients could hold it.

mod http2;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use axum::routing::future::RouteFuture;
use http::{HeaderValue, Request, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use stallproof::accept::{Connection, ConnectionLimits, accept};
use stallproof::{Deadline, Stop, Tasks};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower::Service;

use crate::tls::ListenerTls;

/// The limits of one listener.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// One connection more is answered 503 at once (or closed, under TLS).
    pub connections: ConnectionLimits,
    /// For the TLS handshake, and again for each request's headers, which is how long a connection
    /// may be idle.
    pub patience: Duration,
    /// For the peer to take something of what was sent. However slowly it reads, it is not cut off as
    /// long as it does.
    pub taken_within: Duration,
    /// Whether HTTP/2 is offered in the TLS handshake.
    pub http2: bool,
}

impl HttpLimits {
    /// So many connections, of which one address has half at most: an ingress, a proxy or a NAT with
    /// many users behind it is one address.
    pub const fn of(connections: usize) -> Self {
        Self::with(ConnectionLimits::shared(connections))
    }

    pub const fn with(connections: ConnectionLimits) -> Self {
        let patience = Duration::from_secs(5);
        Self { connections, patience, taken_within: TAKEN_WITHIN, http2: false }
    }

    /// The same, with HTTP/2.
    pub const fn with_http2(self) -> Self {
        Self { http2: true, ..self }
    }
}

/// The most bytes of a request's headers, which wait in memory until they are all there: what every
/// connection of a listener may take. Browsers send some kilobytes, tokens of identity providers included.
const HEADERS: usize = 32 << 10;

/// HTTP/2 in a TLS handshake.
const H2: &str = "h2";

/// A peer that takes nothing for so long is gone, or holds its connection for the sake of holding it.
pub(crate) const TAKEN_WITHIN: Duration = Duration::from_secs(30);

/// Eighths of the process's file descriptors that the connections of a listener may take. What is left
/// is for the admin endpoints and for all that is not a listener's.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DescriptorShare {
    Api = 2,
    Agents = 3,
    Webhook = 1,
}

impl DescriptorShare {
    /// `most` connections, or as many as the share allows: a listener that is full leaves descriptors
    /// for the others.
    pub(crate) fn fit(self, most: usize) -> usize {
        self.fit_to(kernel::descriptors::limit(), most)
    }

    const fn fit_to(self, descriptors: usize, most: usize) -> usize {
        let share = descriptors / 8 * self as usize;
        if share < most { share } else { most }
    }
}

/// The address at the other end of the connection, whatever a header says; in every request's
/// extensions.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// Whether the connection is one that only a program of this machine can make; in every request's
/// extensions.
#[derive(Clone, Copy, Debug)]
pub struct OverLoopback(pub bool);

/// Answers the requests of one connection.
#[derive(Clone)]
struct RouterService {
    router: Router,
    peer: Peer,
    over_loopback: OverLoopback,
}

impl hyper::service::Service<Request<Incoming>> for RouterService {
    type Response = Response;
    type Error = Infallible;
    type Future = RouteFuture<Infallible>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.peer);
        request.extensions_mut().insert(self.over_loopback);
        // A router is always ready.
        self.router.clone().call(request)
    }
}

/// Once `leaving` has stopped, every answer ends its connection, so that its client opens another one,
/// elsewhere: one that was idle when the listener closes might be used at that very moment.
pub(crate) fn ending_connections(router: Router, leaving: Option<Stop>) -> Router {
    let Some(leaving) = leaving else { return router };
    router.layer(axum::middleware::map_response(move |mut response: Response| {
        let upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if leaving.is_stopped() && !upgraded {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        std::future::ready(response)
    }))
}

const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Serves `router` on `listener` until `tasks` stops, then lets open answers finish: connections are
/// tasks of that group too, whose shutdown bounds them.
pub async fn serve(
    listener: TcpListener,
    security: ListenerTls,
    router: Router,
    limits: HttpLimits,
    tasks: Tasks,
) {
    let protocols: &[&str] = if limits.http2 { &[H2, "http/1.1"] } else { &["http/1.1"] };
    let tls = security.acceptor(protocols);
    let loopback = match listener.local_addr() {
        Ok(address) if address.ip().is_loopback() => Loopback::All,
        _ if matches!(security, ListenerTls::ManagedBeyondLoopback(_)) => Loopback::OfConnection,
        _ => Loopback::None,
    };
    // As many refusals at once as connections; beyond that, a connection is closed without a word.
    let refusals = Arc::new(Semaphore::new(limits.connections.total));
    let refuse = |stream| {
        // Under TLS nothing can be said before a handshake, which is what there is no room for.
        if tls.is_none()
            && let Ok(place) = refusals.clone().try_acquire_owned()
        {
            tasks.spawn("refusal", refuse(stream, place));
        }
    };
    let serve = |connection: Connection<TcpStream>| {
        let over_loopback = match loopback {
            Loopback::All => true,
            Loopback::None => false,
            Loopback::OfConnection => is_to_loopback(&connection.stream),
        };
        let may_be_plain = over_loopback && matches!(loopback, Loopback::OfConnection);
        let tls = tls.clone().map(|acceptor| Tls { acceptor, may_be_plain });
        let service = (router.clone(), OverLoopback(over_loopback));
        serve_connection(connection, tls, service, limits, tasks.clone())
    };
    accept(listener, "connection", limits.connections, &tasks, serve, refuse).await;
}

/// Which connections of a listener are over loopback.
#[derive(Clone, Copy)]
enum Loopback {
    All,
    None,
    /// Connections to a loopback address.
    OfConnection,
}

/// The kernel delivers to a loopback address only what was sent on this machine.
fn is_to_loopback(stream: &TcpStream) -> bool {
    stream.local_addr().is_ok_and(|local| local.ip().to_canonical().is_loopback())
}

struct Tls {
    acceptor: TlsAcceptor,
    may_be_plain: bool,
}

impl Tls {
    /// Whether the client begins a handshake; only where it may do otherwise.
    async fn is_wanted(&self, stream: &TcpStream) -> bool {
        /// The first byte of a TLS record with a handshake in it; no request begins so.
        const HANDSHAKE: u8 = 22;
        let mut first = [0];
        !self.may_be_plain
            || !matches!(stream.peek(&mut first).await, Ok(1) if first[0] != HANDSHAKE)
    }
}

/// Answers 503, then reads what the client still sends: closing at once would reset the connection
/// and take the answer with it.
async fn refuse(mut stream: TcpStream, _place: OwnedSemaphorePermit) {
    let answer = async {
        stream.write_all(FULL).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(64 << 10), &mut tokio::io::sink()).await
    };
    // Whether the client took it is its own affair.
    let _ = Deadline::after(Duration::from_secs(1)).bound(answer).await;
}

async fn serve_connection(
    connection: Connection<TcpStream>,
    tls: Option<Tls>,
    (router, over_loopback): (Router, OverLoopback),
    limits: HttpLimits,
    tasks: Tasks,
) {
    let Connection { stream, peer, place: _place, stop } = connection;
    let Some(peer) = peer.map(Peer) else { return };
    end_when_nothing_is_taken(&stream, limits.taken_within);
    let service = RouterService { router, peer, over_loopback };
    // Answers are small; waiting to fill a packet only adds latency.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return http(stream, service, limits, stop).await };
    let deadline = Deadline::after(limits.patience);
    match deadline.bound(tls.is_wanted(&stream)).await {
        Ok(true) => {}
        Ok(false) => return http(stream, service, limits, stop).await,
        Err(error) => return tracing::debug!(%error, "nothing was said"),
    }
    let Some(stream) = handshake(tls.acceptor, stream, deadline).await else { return };
    if stream.get_ref().1.alpn_protocol() == Some(H2.as_bytes()) {
        // On the heap, so that connections of the other kind do not take its room.
        Box::pin(http2::serve(stream, service, limits, (stop, tasks))).await;
    } else {
        http(stream, service, limits, stop).await;
    }
}

/// Bounds how long the peer may take nothing of what was sent.
pub(crate) fn end_when_nothing_is_taken(stream: &TcpStream, time: Duration) {
    if let Err(error) = kernel::sockets::end_when_nothing_is_taken(stream, time) {
        tracing::debug!(%error, "a peer that takes nothing will not be cut off");
    }
}

/// The TLS stream; none if the peer does not manage the handshake by the deadline.
pub(crate) async fn handshake(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    deadline: Deadline,
) -> Option<TlsStream<TcpStream>> {
    // On the heap while it lasts: a connection is held for days, its handshake for milliseconds.
    match deadline.bound(Box::pin(acceptor.accept(stream))).await {
        Ok(accepted) => {
            accepted.inspect_err(|error| tracing::debug!(%error, "tls handshake failed")).ok()
        }
        Err(error) => {
            tracing::debug!(%error, "tls handshake took too long");
            None
        }
    }
}

async fn http<S>(stream: S, service: RouterService, limits: HttpLimits, stop: Stop)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.patience)
        .max_buf_size(HEADERS)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    drain_at(stop, Box::pin(connection), http1::UpgradeableConnection::graceful_shutdown).await;
}

/// Runs a connection to its end; once `stop` is set, lets it finish what it has begun.
///
/// The connection is boxed, so that this future and those it is moved through have a pointer's size.
pub(crate) async fn drain_at<C>(
    stop: Stop,
    mut connection: Pin<Box<C>>,
    graceful_shutdown: fn(Pin<&mut C>),
) where
    C: Future<Output = hyper::Result<()>>,
{
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.stopped() => {
            graceful_shutdown(connection.as_mut());
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended early");
    }
}

#[cfg(test)]
mod tests;
