//! The admin surface: health, metrics, and what is in flight, late, stuck or locked.
//!
//! It runs on a thread of its own with a small runtime of its own and reads only published values,
//! so it answers while every worker of the main runtime is blocked.

mod access;
mod debug;
mod health;
mod scrape;

use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use http::{HeaderMap, StatusCode, header};
use prometheus_client::registry::Registry;
use stallproof::accept::{ConnectionLimits, WhenFull};
use stallproof::ledger::Outcome;
use stallproof::{Deadline, Ledger, Readiness, Tasks, Watchdog};

use crate::exposition::Exposition;
use crate::reply;
use crate::same_site::same_site;
use crate::serve::{HttpLimits, serve};
use crate::tls::ListenerTls;

pub use access::Token;

/// Probes and scrapes have a few. Whoever holds all of them, a probe is answered: a new connection takes
/// the place of the oldest.
const CONNECTIONS: ConnectionLimits =
    ConnectionLimits { when_full: WhenFull::CutOldest, ..ConnectionLimits::shared(64) };
/// An admin answer takes milliseconds; one that takes this long is not coming.
const PATIENCE: Duration = Duration::from_secs(5);

/// Reads and changes what is logged.
pub trait LogLevel: Send + Sync {
    fn get(&self) -> String;
    /// `Err` says what is wrong with `directives`.
    fn set(&self, directives: &str) -> Result<(), String>;
}

/// Everything that the admin pages show.
pub struct Admin {
    pub ledger: Ledger,
    pub watchdog: Arc<Watchdog>,
    pub readiness: Readiness,
    pub registry: Arc<Registry>,
    pub log: Box<dyn LogLevel>,
    /// Serve profiles; off unless asked for, since taking one costs the process.
    pub profiling: bool,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").field("profiling", &self.profiling).finish_non_exhaustive()
    }
}

/// The listener of the admin pages, and how it is secured.
#[derive(Debug)]
pub struct AdminListener {
    pub listener: TcpListener,
    pub tls: ListenerTls,
    /// The configured token. Without one, `/metrics` is open on loopback and closed beyond it.
    pub token: Option<Token>,
    /// The token of the data directory's owner, for `/debug` over loopback.
    pub owner: Option<Token>,
}

/// The running admin surface. Dropping it stops it.
#[derive(Debug)]
pub struct AdminThread {
    tasks: Tasks,
    thread: Option<JoinHandle<()>>,
}

impl Drop for AdminThread {
    fn drop(&mut self) {
        self.tasks.stop("the process ends");
        if let Some(thread) = self.thread.take() {
            // It answers what it has and leaves within its own grace; a panic there was logged.
            let _ = thread.join();
        }
    }
}

/// Starts the admin surface on its own thread.
pub fn start(admin: Admin, reach: AdminListener) -> std::io::Result<AdminThread> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // Profiles are taken here, off the thread that answers.
        .max_blocking_threads(2)
        .thread_name("admin-blocking")
        .build()?;
    reach.listener.set_nonblocking(true)?;
    let tasks = Tasks::new("admin");
    let running = tasks.clone();
    let thread = std::thread::Builder::new()
        .name("admin".to_owned())
        .spawn(move || runtime.block_on(run(admin, reach, running)))?;
    Ok(AdminThread { tasks, thread: Some(thread) })
}

async fn run(admin: Admin, reach: AdminListener, tasks: Tasks) {
    let listener = match tokio::net::TcpListener::from_std(reach.listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "the admin listener cannot be used");
            return;
        }
    };
    let guard = access::TokenGuard { token: reach.token, owner: reach.owner };
    reach.tls.keep_current("admin", &tasks);
    let router = router(Arc::new(admin), Arc::new(guard)).layer(Extension(tasks.clone()));
    serve(listener, reach.tls, router, HttpLimits::with(CONNECTIONS), tasks.clone()).await;
    tasks.shutdown(Duration::from_secs(1)).await;
}

type Shared = State<Arc<Admin>>;

fn router(admin: Arc<Admin>, guard: Arc<access::TokenGuard>) -> Router {
    let open =
        Router::new().route("/livez", get(health::livez)).route("/readyz", get(health::readyz));
    let guarded = Router::new()
        .route("/", get(index))
        .route("/metrics", get(metrics))
        .route_layer(middleware::from_fn_with_state(guard.clone(), access::authenticate));
    let debug = Router::new()
        .route("/debug/inflight", get(debug::inflight))
        .route("/debug/stalls", get(debug::stalls))
        .route("/debug/locks", get(debug::locks_held))
        .route("/debug/stacks", get(debug::stacks))
        .route("/debug/log", get(debug::log_level).put(debug::set_log_level))
        .route_layer(middleware::from_fn_with_state(guard.clone(), access::authenticate_owner));
    let profiles = Router::new()
        .route("/debug/pprof/profile", get(debug::cpu_profile))
        .route("/debug/pprof/heap", get(debug::heap_profile))
        .route_layer(middleware::from_fn_with_state(guard, access::authenticate_owner));
    open.merge(guarded)
        .merge(debug)
        .route_layer(middleware::from_fn(bounded))
        // A profile takes as long as it was asked to.
        .merge(profiles)
        .fallback(|| async {
            reply::text(StatusCode::NOT_FOUND, &format!("no such page\n\n{INDEX}"))
        })
        .layer(middleware::from_fn_with_state(admin.clone(), recorded))
        .layer(Extension(Arc::<scrape::Scrape>::default()))
        .layer(middleware::from_fn(same_site))
        .with_state(admin)
}

const INDEX: &str = "\
/livez                            is the process making progress?
/readyz                           is each component ready, and if not, why?
/metrics                          Prometheus or OpenMetrics text
/debug/inflight                   what is in flight, oldest first (?kind= ?tenant= ?limit=)
/debug/stalls                     what owes progress and makes none
/debug/locks                      who holds and who waits
/debug/stacks                     the stack of every thread
/debug/log                        what is logged; PUT a level to change it
/debug/pprof/profile?seconds=10   CPU profile (with admin.profiling)
/debug/pprof/heap                 heap profile (with admin.profiling)

Tables for people; JSON with `?format=json` or `Accept: application/json`.
/debug needs a token, even on loopback: that of admin.token-file, or of the data directory.";

async fn index() -> Response {
    reply::text(StatusCode::OK, &format!("fairlead admin\n\n{INDEX}"))
}

async fn metrics(
    State(admin): Shared,
    Extension(scrape): Extension<Arc<scrape::Scrape>>,
    headers: HeaderMap,
) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|a| a.to_str().ok());
    let exposition = Exposition::accepted(accept);
    match scrape.text(exposition, &admin.registry) {
        Ok(body) => {
            let mut answer = Response::new(body.into());
            answer.headers_mut().insert(
                header::CONTENT_TYPE,
                http::HeaderValue::from_static(exposition.content_type()),
            );
            answer
        }
        Err(_) => reply::text(StatusCode::INTERNAL_SERVER_ERROR, "a metric cannot be written"),
    }
}

/// No admin answer outlives its patience.
async fn bounded(request: Request, next: Next) -> Response {
    Deadline::after(PATIENCE)
        .bound(next.run(request))
        .await
        .unwrap_or_else(|expired| reply::text(StatusCode::GATEWAY_TIMEOUT, &expired.to_string()))
}

/// Every admin request is itself on the ledger.
async fn recorded(State(admin): Shared, request: Request, next: Next) -> Response {
    let op = admin.ledger.begin("admin", request.uri().path().to_owned(), "local");
    let answer = op.in_span(next.run(request)).await;
    op.finish(if answer.status().is_server_error() { Outcome::Failed } else { Outcome::Done });
    answer
}
