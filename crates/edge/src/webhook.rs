//! The admission webhook: reviews of API servers over HTTPS, answered from snapshots.
//!
//! Contract:
//! - It shares no gate, no connection and no queue with anything else: what is stuck or flooded
//!   elsewhere costs it nothing.
//! - A review's deadline is the `timeout` that its API server sends with it. What cannot be answered
//!   by then is refused at once with 503 and a time to come back. An API server takes every answer
//!   but 200 for a failed call, and does what `failurePolicy` says; so nothing is ever let in or kept
//!   out because of load by anyone but who configured that.
//! - Bodies are bounded, one by one and together: a review that finds no room for its bytes is refused
//!   before they are read.
//! - Deciding takes no lock, does no I/O and waits for nothing.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use flow::deadline::Grant;
use flow::gate::{GateConfig, Limits as InFlight, Shedding};
use flow::ledger::Outcome;
use flow::{Deadline, Gate, Ledger, MemoryGuard, Op, Pressure, Priority, Stop, Tasks};
use guard::admission::{Admission, Certificates, HERE, Undecided};
use http::{HeaderValue, StatusCode, header};
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;

use crate::serve::{Limits, ending_connections, serve};
use crate::tls::{Held, Security};

/// What an API server grants a webhook, and what it grants at most.
const GRANT: Grant = Grant { unasked: Duration::from_secs(10), most: Duration::from_secs(30) };
/// An API server takes objects of 3 MiB; a review has the new one and the old one.
const LARGEST: usize = 2 * (3 << 20) + (256 << 10);
/// The bytes of all bodies at once. A usual review has 10 KiB, so these are thousands.
const ALL: usize = 64 << 20;
/// Bodies are counted in these.
const UNIT: usize = 1 << 10;
/// For a body to come in: its sender is a machine, and near.
const BODY: Duration = Duration::from_secs(5);
/// An API server opens one for each review in flight and keeps a few dozen; several servers may.
const CONNECTIONS: usize = 1024;
/// When a refused API server should try again, within the time it has.
const COME_BACK: Duration = Duration::from_secs(1);

/// The webhook and what it stands on. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Webhook {
    admission: Admission,
    ledger: Ledger,
    gate: Gate,
    /// Units of [`UNIT`] that bodies may take.
    room: Arc<Semaphore>,
    /// Stops when this process is about to: connections are not kept from then on.
    leaving: Option<Stop>,
}

impl Webhook {
    pub fn new(admission: Admission, ledger: Ledger) -> Self {
        // In flight are mostly those whose body comes in; deciding takes microseconds.
        let limits = InFlight { min: 32, initial: 256, max: CONNECTIONS };
        let gate = Gate::new(GateConfig { limits, ..GateConfig::new("webhook") });
        let room = Arc::new(Semaphore::new(ALL / UNIT));
        Self { admission, ledger, gate, room, leaving: None }
    }

    /// Ends connections after their next answer once `leaving` has stopped.
    #[must_use]
    pub fn with_leaving(self, leaving: Stop) -> Self {
        Self { leaving: Some(leaving), ..self }
    }

    /// Lets memory pressure refuse reviews, last of all.
    pub fn heed(&self, memory: &MemoryGuard) {
        let gate = self.gate.clone();
        memory.on_change(move |pressure| {
            gate.shed(match pressure {
                Pressure::Normal | Pressure::Shedding => Shedding::None,
                Pressure::Critical => Shedding::High,
            });
        });
    }

    pub fn register(&self, registry: &mut Registry) {
        self.gate.register(registry);
    }
}

/// Serves the webhook on `listener` until `tasks` stops. Waits for nothing: handshakes fail until
/// there is a certificate.
pub fn start(
    webhook: Webhook,
    listener: TcpListener,
    certificates: Certificates,
    tasks: &Tasks,
) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let held = Arc::new(Held::default());
    let tls = Security::Held(held.clone());
    let keeping = held.clone().keep("webhook", certificates, tasks.stopping());
    tasks.spawn("webhook-certificate", keeping);
    let limits = Limits { connections: CONNECTIONS, ..Limits::default() };
    let leaving = webhook.leaving.clone();
    let router = ending_connections(router(webhook), leaving);
    let serving = serve(listener, tls, router, limits, tasks.clone());
    tasks.spawn_essential("webhook", serving);
    Ok(())
}

fn router(webhook: Webhook) -> Router {
    Router::new()
        .route("/admit", post(admit_here))
        .route("/admit/{cluster}", post(admit))
        .with_state(webhook)
}

async fn admit_here(state: State<Webhook>, request: Request) -> Response {
    admit(state, Path(HERE.to_owned()), request).await
}

async fn admit(
    State(webhook): State<Webhook>,
    Path(cluster): Path<String>,
    request: Request,
) -> Response {
    if !webhook.admission.knows(&cluster) {
        return Refusal::of(&Undecided::NoSuchCluster(cluster)).into_response();
    }
    let op = webhook.ledger.begin("admission", "review", cluster.clone());
    match webhook.answer(&cluster, request, &op).await {
        Ok(answer) => {
            op.finish(Outcome::Done);
            ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], answer)
                .into_response()
        }
        Err(refusal) => {
            op.finish(refusal.outcome);
            refusal.into_response()
        }
    }
}

impl Webhook {
    async fn answer(&self, cluster: &str, request: Request, op: &Op) -> Result<Vec<u8>, Refusal> {
        let deadline = Deadline::of_http(request.headers(), request.uri().query(), GRANT).map_err(
            |error| Refusal::new(StatusCode::BAD_REQUEST, Outcome::Done, error.to_string()),
        )?;
        op.step("gate");
        let permit = self
            .gate
            .admit(Priority::High, deadline)
            .await
            .map_err(|refused| Refusal::overloaded(refused.to_string(), refused.retry_after))?;
        op.step("room");
        let size = length(&request).unwrap_or(LARGEST);
        if size > LARGEST {
            permit.ignore();
            return Err(Refusal::too_large());
        }
        let units = u32::try_from(size.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let room = deadline.within(COME_BACK).bound(self.room.acquire_many(units)).await;
        let Ok(Ok(room)) = room else {
            permit.ignore();
            let why = "too many bytes of other reviews are being read".to_owned();
            return Err(Refusal::overloaded(why, COME_BACK));
        };
        op.step("body");
        let body = deadline.within(BODY).bound(to_bytes(request.into_body(), LARGEST)).await;
        let body = match body {
            Ok(Ok(body)) => body,
            Ok(Err(error)) => {
                permit.ignore();
                // One that was announced shorter and is longer, or that was cut off.
                let why = format!("the body cannot be read: {error}");
                return Err(Refusal::new(StatusCode::BAD_REQUEST, Outcome::Failed, why));
            }
            Err(_) => {
                permit.ignore();
                let why = "the body did not come in time".to_owned();
                return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, Outcome::Expired, why));
            }
        };
        op.step("decide");
        let decided = self.admission.review(cluster, &body);
        drop(room);
        decided.map_err(|undecided| Refusal::of(&undecided))
    }
}

/// The announced length of a body.
fn length(request: &Request) -> Option<usize> {
    let length = request.headers().get(header::CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

/// No answer; the API server does what its `failurePolicy` says.
#[derive(Debug)]
struct Refusal {
    status: StatusCode,
    outcome: Outcome,
    why: String,
    come_back: Option<Duration>,
}

impl Refusal {
    fn new(status: StatusCode, outcome: Outcome, why: String) -> Self {
        Self { status, outcome, why, come_back: None }
    }

    fn overloaded(why: String, after: Duration) -> Self {
        let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, Outcome::Refused, why);
        Self { come_back: Some(after), ..refusal }
    }

    fn too_large() -> Self {
        let why = format!("a review has {LARGEST} bytes at most");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, Outcome::Done, why)
    }

    fn of(undecided: &Undecided) -> Self {
        let why = undecided.to_string();
        match undecided {
            Undecided::NotReady => Self::overloaded(why, COME_BACK),
            Undecided::NoSuchCluster(_) => Self::new(StatusCode::NOT_FOUND, Outcome::Done, why),
            Undecided::Malformed(_) => Self::new(StatusCode::BAD_REQUEST, Outcome::Done, why),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.why).into_response();
        if let Some(after) = self.come_back {
            // Rounded up: who comes back on the dot should find room.
            let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
            response.headers_mut().insert(header::RETRY_AFTER, seconds.max(1).into());
        }
        response
    }
}

#[cfg(test)]
mod tests;
