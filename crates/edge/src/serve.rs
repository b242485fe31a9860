//! One accept loop for every HTTP edge: bounded connections, deadlines on handshake and headers,
//! and a stop that lets answers finish.
//!
//! axum's own `serve` has neither a bound nor a deadline: idle or dripping clients could hold it.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use flow::tasks::Stop;
use flow::{Deadline, Tasks};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

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
        let stream = match accepted {
            Ok((stream, _)) => stream,
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
        let connection =
            connection(stream, tls.clone(), router.clone(), limits, stop.clone(), place);
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
    router: Router,
    limits: Limits,
    stop: Stop,
    _place: OwnedSemaphorePermit,
) {
    // Answers are small; waiting to fill a packet only adds latency.
    let _ = stream.set_nodelay(true);
    match tls {
        None => http(stream, router, limits, stop).await,
        Some(tls) => match Deadline::after(limits.patience).bound(tls.accept(stream)).await {
            Ok(Ok(stream)) => http(stream, router, limits, stop).await,
            Ok(Err(error)) => tracing::debug!(%error, "tls handshake failed"),
            Err(error) => tracing::debug!(%error, "tls handshake took too long"),
        },
    }
}

async fn http<S>(stream: S, router: Router, limits: Limits, stop: Stop)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.patience)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
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
