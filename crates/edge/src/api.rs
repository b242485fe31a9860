//! The API: REST under `/api/v1`, server-sent events, WebSockets. Thin: a handler reads what is
//! asked, asks the room whose matter it is, and writes down the answer.
//!
//! ```text
//! listener ─► outside (request id, same site, safe headers) ─► pipeline (who, until when, gate, audit)
//!          ─► handler (may they?) ─► fleet, access
//! ```

mod across;
mod admission;
mod affinity;
mod agents;
mod apply;
mod audit;
mod auth;
mod clusters;
mod compress;
mod console;
mod describe;
mod doctor;
mod effective;
mod evidence;
mod exec;
mod exports;
mod extract;
mod forward;
mod forwards;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod gates;
mod helm;
mod identity;
mod images;
mod inflight;
mod kinds;
mod kube_api;
mod kubeconfig;
mod leader;
mod listing;
mod live;
mod login_links;
mod logins;
mod logs;
mod meshes;
mod namespaces;
mod net;
mod nodes;
mod openapi;
mod outside;
mod pages;
mod pipeline;
mod pods;
mod policies;
mod problem;
mod receivers;
mod related;
mod replay;
mod replicas;
mod resources;
mod responses;
mod rights;
mod roles;
mod route;
mod scope;
mod self_review;
mod session;
mod shells;
mod socket;
mod sse;
mod sums;
mod tokens;
mod traffic;
mod trail;
mod usage_history;
mod users;
mod watch;
mod workloads;
mod yaml;

use std::net::TcpListener;
use std::sync::Arc;

use ::access::audit::recording::Recordings;
use ::access::{Access, Audit};
use ::admission::Admission;
use axum::{Extension, Router};
use fleet::Fleet;
use mesh::Meshes;
use notify::Notifier;
use objects::Objects;
use programs::ActivePrograms;
use stallproof::{Ledger, Stop, Tasks, Watchdog};

pub use agents::AgentsApi;
pub use gates::Gates;
pub use kubeconfig::OwnCertificate;
pub use leader::{LeaderReach, LeaderRoute};
pub use problem::Problem;
pub use replicas::Replicas;
pub use traffic::{ObservedCluster, Traffic};

use crate::error_code::ErrorCode;
use crate::serve::{DescriptorShare, HttpLimits, ending_connections, serve};
use crate::tls::ListenerTls;
use extract::{Body, Query};
use openapi::Document;
use pipeline::Caller;
use rights::Rights;
use route::{BASE, Route, Routes};

/// A connection costs some kilobytes, and most are idle: browsers, streams, commands that follow.
const CONNECTIONS: usize = 4096;

fn connections() -> usize {
    DescriptorShare::Api.fit(CONNECTIONS)
}

/// Everything that the handlers use. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Api {
    pub fleet: Fleet,
    pub access: Access,
    pub audit: Audit,
    /// None where shells are not recorded.
    pub recordings: Option<Recordings>,
    pub ledger: Ledger,
    pub gates: Gates,
    pub meshes: Meshes,
    /// None in a process that decides no admissions.
    pub admission: Option<Admission>,
    /// None in a process that listens to no agents.
    pub agents: Option<AgentsApi>,
    /// None in a process that counts no conversations.
    pub traffic: Option<Traffic>,
    /// None in a process that tells nobody of events.
    pub notifier: Option<Notifier>,
    /// None in a process that compiles no policies.
    pub programs: Option<ActivePrograms>,
    /// None where no other replica can lead.
    pub leader: Option<LeaderRoute>,
    /// None where there are no other replicas, or where they cannot be found.
    pub replicas: Option<Replicas>,
    /// The store, for what people write that has no room of its own here: address pools.
    pub objects: Objects,
    /// Knows what makes no progress; none where nobody watches.
    pub watchdog: Option<Arc<Watchdog>>,
    /// Streams are its tasks, and end with it.
    pub tasks: Tasks,
    /// The hint for a caller who sees no cluster at all.
    pub no_clusters: Arc<str>,
    /// Stops when this process is about to: connections are not kept from then on.
    pub leaving: Option<Stop>,
    /// None where others make the certificate, or where there is none.
    pub own_certificate: Option<OwnCertificate>,
    pub serving: Serving,
}

/// How the API is served; [`start`] knows.
#[derive(Clone, Debug, Default)]
pub struct Serving {
    /// Whether cookies travel under TLS alone.
    secure: bool,
    /// What each user has open at the socket.
    shares: live::UserShares,
    /// Port-forwards that are open.
    forwards: forwards::Forwards,
    /// Requests whose sessions are in other replicas.
    passed_on: affinity::PassedOn,
}

/// Serves the API on `listener` until `tasks` stops. Waits for nothing.
pub fn start(
    mut api: Api,
    listener: TcpListener,
    security: ListenerTls,
    tasks: &Tasks,
) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let loopback = listener.local_addr()?.ip().is_loopback();
    api.serving.secure = !security.is_plain();
    security.keep_current("api", tasks);
    tasks.spawn("gates", drop_gates(api.clone()));
    tasks.spawn("node-shells", shells::remove_leftovers(api.clone()));
    let limits = HttpLimits::of(connections()).with_http2();
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
        .and(namespaces::routes())
        .and(resources::routes())
        .and(describe::routes())
        .and(related::routes())
        .and(evidence::routes())
        .and(apply::routes())
        .and(nodes::routes())
        .and(logs::routes())
        .and(exec::routes())
        .and(shells::routes())
        .and(forward::routes())
        .and(forwards::routes())
        .and(kube_api::routes())
        .and(kubeconfig::routes())
        .and(across::routes())
        .and(meshes::routes())
        .and(session::routes())
        .and(login_links::routes())
        .and(auth::routes())
        .and(identity::routes())
        .and(users::routes())
        .and(roles::routes())
        .and(tokens::routes())
        .and(audit::routes())
        .and(admission::routes())
        .and(images::routes())
        .and(agents::routes())
        .and(traffic::routes())
        .and(receivers::routes())
        .and(responses::routes())
        .and(policies::routes())
        .and(inflight::routes())
        .and(live::routes())
        .and(doctor::routes())
        .and(replay::routes())
        .and(helm::routes())
        .and(effective::routes())
        .and(net::routes())
        .and(sums::routes())
        .and(usage_history::routes())
        .and(workloads::routes())
        .and(openapi::routes())
}

fn router(api: &Api, loopback: bool) -> Router {
    sse::expect(&api.ledger);
    let routes = routes();
    let document = Document::of(&routes);
    Router::new()
        .nest(BASE, routes.router(api))
        .merge(pages::routes().and(auth::pages()).router(api))
        .fallback(console::file_or_page)
        .method_not_allowed_fallback(outside::no_such_method)
        .layer(Extension(document))
        .layer(axum::middleware::from_fn_with_state((api.clone(), loopback), outside::outside))
        .with_state(api.clone())
}

#[cfg(test)]
mod tests;
