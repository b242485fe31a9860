//! An egress pod: its network namespace is set up for clients, it says that it is ready, counts what it
//! carries, and at its end waits for connections to end.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use net::egress::{Gateway, GatewaySettings, READY_PORT};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use stallproof::{Deadline, Stop, Tasks};
use tokio::net::TcpListener;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::config::Config;
use crate::daemon::process::{self, Process, Told};
use crate::output::Failure;

/// How often connections are counted, and at the end whether there are any.
const COUNTED: Duration = Duration::from_secs(10);
const DRAINED: Duration = Duration::from_millis(500);
/// For one count: some hundred thousand connections take a tenth of a second.
const COUNT: Duration = Duration::from_secs(5);
/// After an accept that failed: there are no more descriptors, for instance.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, Default)]
struct UseMetrics {
    clients: Gauge,
    connections: Gauge,
}

pub(crate) fn begin(
    config: &Config,
    process: &Process,
    registry: &mut Registry,
) -> Result<Told, Failure> {
    let settings = GatewaySettings { port: config.net.egress_port };
    let gateway = Arc::new(Gateway::set_up(settings).map_err(|e| process::explain(&e))?);
    let metrics = UseMetrics::default();
    let UseMetrics { clients, connections } = metrics.clone();
    registry.register("egress_clients", "Addresses of pods with connections here", clients);
    registry.register("egress_connections", "Connections of other pods", connections);
    let tasks = &process.tasks;
    let listener = listen()?;
    tasks.spawn_essential("egress-ready", answer(listener, tasks.stopping()));
    tasks.spawn_essential("egress-use", count(gateway, metrics, tasks.clone()));
    Ok(vec![("egress", format!("UDP port {}, ready at TCP port {READY_PORT}", settings.port))])
}

/// Listens in both families where the kernel has both.
fn listen() -> Result<TcpListener, Failure> {
    let bind = |address: SocketAddr| {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    };
    let all = SocketAddr::from((Ipv6Addr::UNSPECIFIED, READY_PORT));
    let ipv4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, READY_PORT));
    bind(all)
        .or_else(|_| bind(ipv4))
        .map_err(|error| Failure(format!("port {READY_PORT} cannot be listened on: {error}")))
}

/// Whoever connects learns that the pod is ready, and nothing else; it is not when it ends.
async fn answer(listener: TcpListener, stop: Stop) {
    while let Some(accepted) = stop.bound(listener.accept()).await {
        if let Err(error) = accepted {
            warn!(%error, "a probe was not answered");
            sleep(PAUSE).await;
        }
    }
}

/// Counts until the process is to end, and then until there is nothing to count: the process' grace ends
/// that wait.
async fn count(gateway: Arc<Gateway>, metrics: UseMetrics, tasks: Tasks) {
    let stop = tasks.stopping();
    loop {
        let (counting, deadline) = (gateway.clone(), Deadline::after(COUNT));
        let counted = tasks.spawn_blocking("egress-count", deadline, move || counting.usage());
        let counted = match counted.await {
            Ok(running) => running.await.ok(),
            Err(_) => None,
        };
        match counted {
            Some(Ok(used)) => {
                let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
                metrics.clients.set(gauge(used.clients));
                metrics.connections.set(gauge(used.connections));
                if stop.is_stopped() && used.connections == 0 {
                    info!("no connection is left");
                    return;
                }
            }
            Some(Err(error)) => warn!(error = %stallproof::sentence(&error), "nothing counted"),
            None if stop.is_stopped() => return,
            None => {}
        }
        match stop.is_stopped() {
            true => sleep(DRAINED).await,
            false => drop(stop.bound(sleep(COUNTED)).await),
        }
    }
}
