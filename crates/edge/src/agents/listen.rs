//! Connections of agents: bounded by what they have proved, each bounded in what it may hold.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use pki::agents::{Authority, Bearer};
use protocol::Executor;
use rustls::ServerConfig;
use stallproof::{Deadline, Snapshot, Tasks};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

use super::{ReportSink, Server, tls};

/// Handshakes at once: one takes a millisecond of a core, so this is a second's work.
const HANDSHAKES: usize = 512;
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Connections without a certificate, and how long one may last: enrolling is one call.
const STRANGERS: usize = 128;
const STRANGER: Duration = Duration::from_secs(30);
/// Calls at once on a connection: an agent has two streams and makes one call beside them.
const STREAMS: u32 = 8;
/// What may be on its way to us on one stream, and on a connection, before anybody reads it.
const STREAM_WINDOW: u32 = 64 << 10;
const WINDOW: u32 = 128 << 10;
/// What may wait to be sent on a stream.
const SENDING: usize = 64 << 10;
const HEADERS: u32 = 8 << 10;
/// Finds out that the other end is gone.
const PING: Duration = Duration::from_secs(20);
const PONG: Duration = Duration::from_secs(10);

/// Who makes a call.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) address: SocketAddr,
    /// Of the certificate that it proved, if it did.
    pub(super) bearer: Option<Bearer>,
}

/// Places, by what was proved.
struct Places {
    handshakes: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
    /// Twice the agents there may be: who comes back does so before the old connection is seen to be
    /// dead.
    agents: Arc<Semaphore>,
}

pub(super) async fn serve<C: ReportSink>(listener: TcpListener, server: Server<C>) {
    let tasks = server.tasks.clone();
    let stop = tasks.stopping();
    let config = Arc::new(Snapshot::new(None));
    if let Some(authority) = server.authority.clone() {
        tasks.spawn("agents-certificate", keep(config.clone(), authority, tasks.clone()));
    }
    let places = Arc::new(Places {
        handshakes: Arc::new(Semaphore::new(HANDSHAKES)),
        strangers: Arc::new(Semaphore::new(STRANGERS)),
        agents: Arc::new(Semaphore::new(2 * server.agents.limits().agents)),
    });
    loop {
        let accepted = tokio::select! {
            () = stop.stopped() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, mostly. Accepting again at once would spin.
                tracing::warn!(%error, "cannot accept an agent's connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // A socket of both families has IPv4 in the words of IPv6.
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        // Nothing can be said before a handshake, which is what there is no room for.
        let Ok(place) = places.handshakes.clone().try_acquire_owned() else { continue };
        let connection = connection(
            stream,
            address,
            server.clone(),
            config.read(Clone::clone),
            places.clone(),
            place,
        );
        tasks.spawn("agent", connection);
    }
}

/// Serves with what is current.
async fn keep(
    config: Arc<Snapshot<Option<Arc<ServerConfig>>>>,
    authority: Authority,
    tasks: Tasks,
) {
    let stop = tasks.stopping();
    let mut changes = authority.changes();
    let mut before = None;
    loop {
        let serving = authority.serving();
        if let Some(serving) = serving.filter(|serving| before.as_ref() != Some(serving)) {
            match tls::server(&serving) {
                Ok(made) => {
                    config.update(|config| {
                        *config = Some(made);
                        true
                    });
                }
                Err(error) => {
                    let error = stallproof::sentence(&error);
                    tracing::warn!(
                        error,
                        "the agents' certificate is unusable, keeping the old one"
                    );
                }
            }
            before = Some(serving);
        }
        if stop.bound(changes.changed()).await.is_none() {
            return;
        }
    }
}

async fn connection<C: ReportSink>(
    stream: TcpStream,
    address: SocketAddr,
    server: Server<C>,
    config: Option<Arc<ServerConfig>>,
    places: Arc<Places>,
    handshaking: OwnedSemaphorePermit,
) {
    // Answers are small; waiting to fill a packet only adds latency.
    let _ = stream.set_nodelay(true);
    if server.authority.is_none() {
        let Ok(_place) = places.agents.clone().try_acquire_owned() else { return };
        drop(handshaking);
        return http(stream, server, Caller { address, bearer: None }).await;
    }
    let Some(config) = config else { return };
    // On the heap while it lasts: what an agent holds for days is its connection, not its handshake.
    let accepted = Box::pin(TlsAcceptor::from(config).accept(stream));
    let stream = match Deadline::after(HANDSHAKE).bound(accepted).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%address, %error, "tls handshake failed"),
        Err(error) => return tracing::debug!(%address, %error, "tls handshake took too long"),
    };
    let bearer = tls::bearer(stream.get_ref().1.peer_certificates());
    let known = bearer.is_some();
    let place = if known { &places.agents } else { &places.strangers };
    let Ok(_place) = place.clone().try_acquire_owned() else { return };
    drop(handshaking);
    let serving = http(stream, server, Caller { address, bearer });
    if known {
        serving.await;
    } else {
        let _ = Deadline::after(STRANGER).bound(serving).await;
    }
}

/// A future of a pointer's size: one that holds a connection by value holds it once for each place that
/// it is moved through.
fn http<S, C>(stream: S, server: Server<C>, caller: Caller) -> impl Future<Output = ()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    C: ReportSink,
{
    let (tasks, stop) = (server.tasks.clone(), server.tasks.stopping());
    let service = service_fn(move |request| server.clone().answer(caller.clone(), request));
    let connection = http2::Builder::new(Executor(tasks))
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_send_buf_size(SENDING)
        .max_header_list_size(HEADERS)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PONG)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = Box::pin(connection);
    async move {
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stop.stopped() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "an agent's connection ended early");
        }
    }
}
