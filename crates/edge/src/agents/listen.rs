//! Connections of agents: bounded by what they have proved, each bounded in what it may hold.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use pki::agents::{Authority, Bearer};
use protocol::Executor;
use rustls::ServerConfig;
use stallproof::accept::{Connection, ConnectionLimits, accept, counted_as};
use stallproof::gate::{GateConfig, InFlightLimits};
use stallproof::{Deadline, Gate, Priority, Rates, Snapshot, Stop, Tasks};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::paced::Paced;
use super::{ReportSink, Server, tls};
use crate::serve::{DescriptorShare, TAKEN_WITHIN, drain_at, end_when_nothing_is_taken, handshake};

/// Handshakes at once: one takes a millisecond of a core, so this is a second's work.
const HANDSHAKES: usize = 512;
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Handshakes of one address (for IPv6 a /64 network): so many at once, then one every so often. They take
/// a fifth of a core then. A NAT with a thousand nodes behind it is one address.
const OF_ADDRESS: u32 = 1024;
const OF_ADDRESS_EVERY: Duration = Duration::from_millis(5);
/// Addresses that were here within the last seconds.
const ADDRESSES: usize = 16_384;
/// Connections without a certificate, and how long one may last: enrolling is one call.
const STRANGERS: usize = 128;
const STRANGER: Duration = Duration::from_secs(30);
/// Connections of one node: its agent has one, and comes back before the old one is seen to be dead.
const OF_NODE: usize = 4;
/// Calls at once on a connection: an agent has two streams and makes one call beside them.
const STREAMS: u32 = 8;
/// Bytes that an agent may have sent on one stream, and on its connection, before they are read.
const STREAM_WINDOW: u32 = 64 << 10;
const WINDOW: u32 = 128 << 10;
/// Bytes that may wait to be sent on a stream.
const SENDING: usize = 64 << 10;
const HEADERS: u32 = 8 << 10;
/// Pings find out that the other end is gone.
const PING: Duration = Duration::from_secs(20);
const PONG: Duration = Duration::from_secs(10);

/// The agent at the other end of a connection.
#[derive(Clone, Debug)]
pub(super) struct AgentPeer {
    pub(super) address: SocketAddr,
    /// The node that its certificate speaks for; none without a certificate.
    pub(super) bearer: Option<Bearer>,
}

impl AgentPeer {
    /// Who shares with others: a node, or the address of who has not proved that it is one.
    pub(super) fn share(&self) -> Arc<str> {
        match &self.bearer {
            Some(bearer) => bearer.node.clone(),
            None => counted_as(self.address.ip()).to_string().into(),
        }
    }
}

/// Connections after their handshake, by what was proved in it.
#[derive(Clone)]
struct ProvenLimits {
    /// Shared by address: who holds many keeps no node from enrolling.
    strangers: Gate,
    /// Twice the agents there may be: an agent comes back before its old connection is seen to be dead.
    agents: Arc<Semaphore>,
    nodes: Arc<NodeConnections>,
}

/// How many connections each node has.
#[derive(Debug, Default)]
struct NodeConnections {
    /// Written when a connection of a node begins and ends.
    open: Mutex<HashMap<Arc<str>, usize>>,
}

/// A connection among those of its node.
#[derive(Debug)]
struct NodeConnection {
    among: Arc<NodeConnections>,
    node: Arc<str>,
}

impl NodeConnections {
    fn open(self: &Arc<Self>, node: &Arc<str>) -> Option<NodeConnection> {
        let mut open = self.open.lock();
        let of_node = open.entry(node.clone()).or_default();
        if *of_node >= OF_NODE {
            return None;
        }
        *of_node += 1;
        Some(NodeConnection { among: self.clone(), node: node.clone() })
    }
}

impl Drop for NodeConnection {
    fn drop(&mut self) {
        let mut open = self.among.open.lock();
        if let Some(of_node) = open.get_mut(&self.node) {
            *of_node -= 1;
            if *of_node == 0 {
                open.remove(&self.node);
            }
        }
    }
}

pub(super) async fn serve<C: ReportSink>(listener: TcpListener, server: Server<C>) {
    let tasks = server.tasks.clone();
    let config = Arc::new(Snapshot::new(None));
    if let Some(authority) = server.authority.clone() {
        tasks.spawn("agents-certificate", keep(config.clone(), authority, tasks.clone()));
    }
    let most = 2 * server.agents.limits().agents;
    let all = DescriptorShare::Agents.fit(most + STRANGERS + HANDSHAKES);
    let (handshakes, strangers) = (HANDSHAKES.min(all / 4), STRANGERS.min(all / 8));
    let limits = ProvenLimits {
        strangers: Gate::new(GateConfig {
            limits: InFlightLimits { min: strangers, initial: strangers, max: strangers },
            queue: 0,
            ..GateConfig::new("agents-unproven")
        }),
        agents: Arc::new(Semaphore::new(most.min(all - handshakes - strangers))),
        nodes: Arc::default(),
    };
    let rates = Rates::new(OF_ADDRESS, OF_ADDRESS_EVERY, ADDRESSES);
    let serve = |connection: Connection<TcpStream>| {
        let from = connection.peer.map(|peer| counted_as(peer.ip()));
        let config = config.read(Clone::clone);
        let in_time = from.is_some_and(|from| rates.take(&from, Instant::now()).is_ok());
        let serving = serve_connection(connection, server.clone(), config, limits.clone());
        async move {
            if in_time {
                serving.await;
            }
        }
    };
    // Nothing can be said before a handshake, which is what there is no room for.
    accept(listener, "agent", ConnectionLimits::shared(handshakes), &tasks, serve, drop).await;
}

/// Keeps `config` at the authority's current certificate.
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

async fn serve_connection<C: ReportSink>(
    connection: Connection<TcpStream>,
    server: Server<C>,
    config: Option<Arc<ServerConfig>>,
    limits: ProvenLimits,
) {
    let Connection { stream, peer, place: handshaking, stop } = connection;
    let Some(address) = peer else { return };
    end_when_nothing_is_taken(&stream, TAKEN_WITHIN);
    // Answers are small; waiting to fill a packet only adds latency.
    let _ = stream.set_nodelay(true);
    if server.authority.is_none() {
        let Ok(_place) = limits.agents.try_acquire_owned() else { return };
        drop(handshaking);
        return http(stream, server, AgentPeer { address, bearer: None }, stop).await;
    }
    let Some(config) = config else { return };
    let deadline = Deadline::after(HANDSHAKE);
    let Some(stream) = handshake(config.into(), stream, deadline).await else { return };
    let bearer = tls::bearer(stream.get_ref().1.peer_certificates());
    // Whose certificate does not hold is a stranger, who is told so and may enrol.
    let node = bearer.as_ref().filter(|bearer| server.holds(bearer)).map(|bearer| &bearer.node);
    let known = node.is_some();
    let of_node = node.map(|node| limits.nodes.open(node));
    if let Some(None) = of_node {
        return tracing::debug!(?bearer, "the node has as many connections as it may have");
    }
    let peer = AgentPeer { address, bearer };
    if known {
        let Ok(_place) = limits.agents.try_acquire_owned() else { return };
        drop(handshaking);
        http(stream, server, peer, stop).await;
    } else {
        let from = counted_as(address.ip()).to_string();
        let Ok(_place) = limits.strangers.try_admit_for(&from, Priority::Normal) else { return };
        drop(handshaking);
        let served = http(Paced::new(stream), server, peer, stop);
        let _ = Deadline::after(STRANGER).bound(served).await;
    }
}

fn http<S, C>(stream: S, server: Server<C>, peer: AgentPeer, stop: Stop) -> impl Future<Output = ()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    C: ReportSink,
{
    let tasks = server.tasks.clone();
    let service = service_fn(move |request| server.clone().answer(peer.clone(), request));
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
    drain_at(stop, Box::pin(connection), http2::Connection::graceful_shutdown)
}
