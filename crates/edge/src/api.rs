//! The API: REST under `/api/v1`, server-sent events, WebSockets. Thin: a handler reads what is
//! asked, asks the room whose matter it is, and writes down the answer.
//!
//! ```text
//! listener ─► outside (request id, same site, safe headers) ─► pipeline (who, until when, gate, audit)
//!          ─► handler (may they?) ─► fleet, access
//! ```

mod across;
mod admission;
mod agents;
mod apply;
mod audit;
mod clusters;
mod describe;
mod exec;
mod extract;
mod forward;
mod gates;
mod inflight;
mod kinds;
mod leader;
mod listing;
mod logs;
mod meshes;
mod nodes;
mod openapi;
mod outside;
mod pages;
mod pipeline;
mod pods;
mod problem;
mod replicas;
mod resources;
mod rights;
mod roles;
mod route;
mod scope;
mod session;
mod socket;
mod sse;
mod tokens;
mod traffic;
mod users;
mod watch;

use std::net::TcpListener;
use std::sync::Arc;

use ::access::{Access, Audit};
use ::admission::Admission;
use axum::{Extension, Router};
use fleet::Fleet;
use mesh::Meshes;
use stallproof::{Ledger, Stop, Tasks};
use tokio::sync::Semaphore;

pub use agents::AgentsApi;
pub use gates::Gates;
pub use leader::{LeaderReach, LeaderRoute};
pub use problem::Problem;
pub use replicas::Replicas;
pub use traffic::Traffic;

use crate::error_code::ErrorCode;
use crate::serve::{HttpLimits, ending_connections, serve};
use crate::tls::Security;
use extract::{Body, Query};
use openapi::Document;
use pipeline::Caller;
use rights::Rights;
use route::{BASE, Route, Routes};

/// A connection costs some kilobytes, and most are idle: browsers, streams, commands that follow.
const CONNECTIONS: usize = 4096;
/// Leaves as many connections for what is not a stream.
const STREAMS: usize = CONNECTIONS / 2;

/// Everything that the handlers use. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Api {
    pub fleet: Fleet,
    pub access: Access,
    pub audit: Audit,
    pub ledger: Ledger,
    pub gates: Gates,
    /// None in a process that decides no admissions.
    admission: Option<Admission>,
    /// None in a process that listens to no agents.
    agents: Option<AgentsApi>,
    /// None in a process that counts no conversations.
    traffic: Option<Traffic>,
    /// None where no other replica can lead.
    leader: Option<LeaderRoute>,
    /// None where there are no other replicas, or where they cannot be found.
    replicas: Option<Replicas>,
    pub meshes: Meshes,
    /// Streams are its tasks, and end with it.
    pub tasks: Tasks,
    /// The hint for a caller who sees no cluster at all.
    pub no_clusters: Arc<str>,
    /// Stops when this process is about to: connections are not kept from then on.
    leaving: Option<Stop>,
    /// Whether cookies travel under TLS alone.
    secure: bool,
    /// A place for each stream that may be open.
    pub(crate) streams: Arc<Semaphore>,
}

impl Api {
    #[expect(clippy::too_many_arguments, reason = "each is a room, and it is called once")]
    pub fn new(
        fleet: Fleet,
        access: Access,
        audit: Audit,
        ledger: Ledger,
        gates: Gates,
        meshes: Meshes,
        tasks: Tasks,
        no_clusters: &str,
    ) -> Self {
        sse::expect(&ledger);
        let streams = Arc::new(Semaphore::new(STREAMS));
        let no_clusters = no_clusters.into();
        Self {
            fleet,
            access,
            audit,
            ledger,
            gates,
            meshes,
            admission: None,
            agents: None,
            traffic: None,
            leader: None,
            replicas: None,
            tasks,
            no_clusters,
            leaving: None,
            secure: false,
            streams,
        }
    }

    /// Shows what is decided about admissions.
    #[must_use]
    pub fn with_admission(self, admission: Admission) -> Self {
        Self { admission: Some(admission), ..self }
    }

    /// Ends connections after their next answer once `leaving` has stopped.
    #[must_use]
    pub fn with_leaving(self, leaving: Stop) -> Self {
        Self { leaving: Some(leaving), ..self }
    }

    /// Asks the leader for what only it has, or says where it is.
    #[must_use]
    pub fn with_leader(self, leader: LeaderRoute) -> Self {
        Self { leader: Some(leader), ..self }
    }

    /// Asks the other replicas for their parts of the audits.
    #[must_use]
    pub fn with_replicas(self, replicas: Replicas) -> Self {
        Self { replicas: Some(replicas), ..self }
    }

    /// Shows the agents, and lets more of them in.
    #[must_use]
    pub fn with_agents(self, agents: AgentsApi) -> Self {
        Self { agents: Some(agents), ..self }
    }

    /// Shows who talks to whom.
    #[must_use]
    pub fn with_traffic(self, traffic: Traffic) -> Self {
        Self { traffic: Some(traffic), ..self }
    }
}

/// Serves the API on `listener` until `tasks` stops. Waits for nothing.
pub fn start(
    mut api: Api,
    listener: TcpListener,
    security: Security,
    tasks: &Tasks,
) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let loopback = listener.local_addr()?.ip().is_loopback();
    api.secure = !security.is_plain();
    security.keep_current("api", tasks);
    tasks.spawn("gates", drop_gates(api.clone()));
    let limits = HttpLimits::of(CONNECTIONS);
    let router = ending_connections(router(&api, loopback), api.leaving);
    tasks.spawn_essential("api", serve(listener, security, router, limits, tasks.clone()));
    Ok(())
}

/// A cluster that is gone takes its gate with it.
async fn drop_gates(api: Api) {
    let stop = api.tasks.stopping();
    let mut changes = api.fleet.changes();
    while let Some(view) = stop.bound(changes.changed()).await {
        api.gates.retain(|name| view.clusters.contains_key(name));
    }
}

/// Everything under `BASE`.
fn routes() -> Routes {
    Routes::default()
        .and(clusters::routes())
        .and(kinds::routes())
        .and(resources::routes())
        .and(describe::routes())
        .and(apply::routes())
        .and(nodes::routes())
        .and(logs::routes())
        .and(exec::routes())
        .and(forward::routes())
        .and(across::routes())
        .and(meshes::routes())
        .and(session::routes())
        .and(users::routes())
        .and(roles::routes())
        .and(tokens::routes())
        .and(audit::routes())
        .and(admission::routes())
        .and(agents::routes())
        .and(traffic::routes())
        .and(inflight::routes())
        .and(openapi::routes())
}

fn router(api: &Api, loopback: bool) -> Router {
    let routes = routes();
    let document = Document::of(&routes);
    Router::new()
        .nest(BASE, routes.router(api))
        .merge(pages::routes().router(api))
        .fallback(outside::no_such_route)
        .method_not_allowed_fallback(outside::no_such_method)
        .layer(Extension(document))
        .layer(axum::middleware::from_fn_with_state(loopback, outside::outside))
        .with_state(api.clone())
}

#[cfg(test)]
mod tests;
