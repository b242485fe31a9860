//! One accept loop for every HTTP edge: bounded connections, deadlines on handshake and headers,
//! and a stop that lets answers finish.
//!
//! axum's own `serve` has neither a bound nor a deadline: idle or dripping clients could hold it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use axum::routing::future::RouteFuture;
use flow::tasks::Stop;
use flow::{Deadline, Tasks};
use http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tower::Service;

/// What one listener may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once; one more is answered 503 at once (or closed, under TLS).
    pub connections: usize,
    /// For the TLS handshake, and again for each request's headers.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 256, patience: Duration::from_secs(5) }
    }
}

/// Who is at the other end of the connection, whatever a header says; in every request's extensions.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// What a connection's requests are answered by.
#[derive(Clone)]
struct Answers {
    router: Router,
    peer: Peer,
}

impl hyper::service::Service<Request<Incoming>> for Answers {
    type Response = Response;
    type Error = Infallible;
    type Future = RouteFuture<Infallible>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.peer);
        // A router is always ready.
        self.router.clone().call(request)
    }
}

const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Serves `router` on `listener` until `tasks` stops, then lets open answers finish: connections are
/// tasks of that group too, whose shutdown bounds them.
pub async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    limits: Limits,
    tasks: Tasks,
) {
    let stop = tasks.stopping();
    let places = Arc::new(Semaphore::new(limits.connections));
    // As many refusals at once as connections; beyond that, a connection is closed without a word.
    let refusals = Arc::new(Semaphore::new(limits.connections));
    loop {
        let accepted = tokio::select! {
            () = stop.stopped() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, mostly. Accepting again at once would spin.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            // Under TLS nothing can be said before a handshake, which is what there is no room for.
            if tls.is_none()
                && let Ok(place) = refusals.clone().try_acquire_owned()
            {
                tasks.spawn("refusal", refuse(stream, place));
            }
            continue;
        };
        let answers = Answers { router: router.clone(), peer: Peer(peer) };
        let connection = connection(stream, tls.clone(), answers, limits, stop.clone(), place);
        tasks.spawn("connection", connection);
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

async fn connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    answers: Answers,
    limits: Limits,
    stop: Stop,
    _place: OwnedSemaphorePermit,
) {
    // Answers are small; waiting to fill a packet only adds latency.
    let _ = stream.set_nodelay(true);
    match tls {
        None => http(stream, answers, limits, stop).await,
        Some(tls) => match Deadline::after(limits.patience).bound(tls.accept(stream)).await {
            Ok(Ok(stream)) => http(stream, answers, limits, stop).await,
            Ok(Err(error)) => tracing::debug!(%error, "tls handshake failed"),
            Err(error) => tracing::debug!(%error, "tls handshake took too long"),
        },
    }
}

async fn http<S>(stream: S, answers: Answers, limits: Limits, stop: Stop)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.patience)
        .serve_connection(TokioIo::new(stream), answers)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.stopped() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended early");
    }
}
