//! The admission webhook: reviews of API servers over HTTPS, answered from snapshots.
//!
//! Contract:
//! - It shares no gate, no connection and no queue with anything else: what is stuck or flooded
//!   elsewhere costs it nothing.
//! - A review's deadline is the `timeout` that its API server sends with it. What cannot be answered
//!   by then is refused at once with 503 and a time to come back. An API server takes every answer
//!   but 200 for a failed call, and does what `failurePolicy` says; so nothing is ever let in or kept
//!   out because of load by anyone but who configured that.
//! - Bodies are bounded, one by one and together, and charged as they arrive, before their reviews come
//!   to the gate: who sends slowly takes no place there, and is cut off when nothing comes.
//! - A review is as large as an API server can make it, and large ones are taken one after another, so
//!   that they are in nobody's way. What is larger yet, or cannot have its turn, is not read; where
//!   rules refuse, its answer is "no" with the reason, because a failed call could be admitted.
//! - Deciding takes no lock, does no I/O and waits for nothing.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use admission::{Admission, LOCAL_CLUSTER, Undecided};
use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::StreamExt;
use http::{HeaderValue, header};
use pki::Certificates;
use prometheus_client::registry::Registry;
use stallproof::deadline::Grant;
use stallproof::gate::{GateConfig, InFlightLimits, Shedding};
use stallproof::ledger::Outcome;
use stallproof::{Deadline, Gate, Ledger, MemoryGuard, Op, Pressure, Priority, Stop, Tasks};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::error_code::{ErrorCode, retry_after_seconds};
use crate::serve::{DescriptorShare, HttpLimits, ending_connections, serve};
use crate::tls::{ClientAuthorities, ListenerTls, ManagedCertificate};

/// The time that an API server grants a webhook unless it is configured, and at most.
const GRANT: Grant = Grant { unasked: Duration::from_secs(10), most: Duration::from_secs(30) };
/// An API server takes requests of 3 MiB and writes some characters as six (`\u003c`); a review has the
/// new object and the old one.
const LARGEST: usize = 2 * 6 * (3 << 20) + (1 << 20);
/// A body larger than this waits for its turn. A usual review has 10 KiB.
const LARGE: usize = 1 << 20;
/// The bytes of all bodies at once that are not large: thousands of usual reviews.
const ROOM: usize = 32 << 20;
/// Bodies are counted in these.
const UNIT: usize = 1 << 10;
/// The time for a body to come in: its sender is a machine, and near.
const BODY: Duration = Duration::from_secs(5);
/// The time for the next part of a body: some lost packets' worth.
const PART: Duration = Duration::from_secs(2);
/// The time for the rest of a large body, from its turn on.
const TURN: Duration = Duration::from_secs(2);
/// The part that is kept of a review that is not read: its version and uid are in the first few hundred
/// bytes.
const BEGINNING: usize = 16 << 10;
/// An answer is read by who has sent everything; so this much more is let go by.
const DRAINED: usize = 256 << 20;
/// An API server opens one for each review in flight and keeps a few dozen; several servers may.
const CONNECTIONS: usize = 1024;
/// When a refused API server should try again, within the time it has.
const COME_BACK: Duration = Duration::from_secs(1);

/// The webhook. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Webhook {
    admission: Admission,
    ledger: Ledger,
    gate: Gate,
    /// Units of [`UNIT`] that bodies may take.
    room: Arc<Semaphore>,
    /// The turn of the one large body.
    large: Arc<Semaphore>,
    /// Stops when this process is about to: connections are not kept from then on.
    leaving: Option<Stop>,
    /// Whose clients are let in; anybody, unless they are named.
    clients: Option<Arc<ClientAuthorities>>,
}

impl Webhook {
    pub fn new(admission: Admission, ledger: Ledger) -> Self {
        // Bodies are here before the gate, and deciding takes microseconds.
        let limits = InFlightLimits { min: 32, initial: 256, max: CONNECTIONS };
        let gate = Gate::new(GateConfig { limits, ..GateConfig::new("webhook") });
        let (room, large) = (Semaphore::new(ROOM / UNIT), Semaphore::new(1));
        let (room, large) = (Arc::new(room), Arc::new(large));
        Self { admission, ledger, gate, room, large, leaving: None, clients: None }
    }

    /// Ends connections after their next answer once `leaving` has stopped.
    #[must_use]
    pub fn with_leaving(self, leaving: Stop) -> Self {
        Self { leaving: Some(leaving), ..self }
    }

    /// Takes reviews only of API servers that show a certificate of these authorities.
    #[must_use]
    pub fn with_clients(self, clients: Arc<ClientAuthorities>) -> Self {
        Self { clients: Some(clients), ..self }
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
    let held = Arc::new(ManagedCertificate::default());
    let tls = match &webhook.clients {
        None => ListenerTls::Managed(held.clone()),
        Some(clients) => ListenerTls::ManagedForClients(held.clone(), clients.clone()),
    };
    tls.keep_current("webhook", tasks);
    let keeping = held.clone().follow("webhook", certificates, tasks.stopping());
    tasks.spawn("webhook-certificate", keeping);
    let limits = HttpLimits::of(DescriptorShare::Webhook.fit(CONNECTIONS));
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
    admit(state, Path(LOCAL_CLUSTER.to_owned()), request).await
}

async fn admit(
    State(webhook): State<Webhook>,
    Path(cluster): Path<String>,
    request: Request,
) -> Response {
    if !webhook.admission.knows(&cluster) {
        return WebhookError::of(&Undecided::NoSuchCluster(cluster)).into_response();
    }
    let op = webhook.ledger.begin("admission", "review", cluster.clone());
    match op.in_span(webhook.answer(&cluster, request, &op)).await {
        Ok(answer) => {
            op.finish(Outcome::Done);
            ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], answer)
                .into_response()
        }
        Err(refusal) => {
            op.finish(refusal.code.outcome());
            refusal.into_response()
        }
    }
}

impl Webhook {
    async fn answer(
        &self,
        cluster: &str,
        request: Request,
        op: &Op,
    ) -> Result<Vec<u8>, WebhookError> {
        let deadline = Deadline::of_http(request.headers(), request.uri().query(), GRANT)
            .map_err(|error| WebhookError::new(ErrorCode::Invalid, error.to_string()))?;
        op.step("body");
        let arrived = self.take(request, deadline).await?;
        op.step("gate");
        let permit = self.gate.admit(Priority::High, deadline).await.map_err(|refused| {
            WebhookError::overloaded(refused.to_string(), refused.retry_after)
        })?;
        op.step("decide");
        let decided = match arrived {
            ReceivedBody::Whole(body, charged) => {
                let decided = self.admission.review(cluster, &body);
                drop((body, charged));
                decided
            }
            ReceivedBody::Unread { beginning, why } => {
                permit.ignore();
                self.admission.refuse_unread(cluster, &beginning, &why)
            }
        };
        decided.map_err(|undecided| WebhookError::of(&undecided))
    }

    /// Takes a body in, as far as there is room for it.
    async fn take(
        &self,
        request: Request,
        deadline: Deadline,
    ) -> Result<ReceivedBody<'_>, WebhookError> {
        let announced = length(&request).unwrap_or_default();
        let most = if announced > LARGEST { BEGINNING } else { LARGEST };
        let mut arriving = request.into_body().into_data_stream();
        let (mut body, mut charged) = (Vec::new(), BodyCharge::default());
        let mut until = deadline.within(BODY);
        loop {
            let chunk = match until.within(PART).bound(arriving.next()).await {
                Ok(Some(Ok(chunk))) => chunk,
                Ok(None) => return Ok(ReceivedBody::Whole(body, charged)),
                Ok(Some(Err(error))) => {
                    let why = format!("the body cannot be read: {error}");
                    return Err(WebhookError::new(ErrorCode::Invalid, why));
                }
                Err(_) => {
                    let why = "the body did not come in time".to_owned();
                    return Err(WebhookError::new(ErrorCode::SlowBody, why));
                }
            };
            let size = body.len() + chunk.len();
            let unread = if size > most {
                Some(format!("the review has more than {LARGEST} bytes, so that it was not read"))
            } else if size > LARGE && charged.turn.is_none() {
                // Half of the time is left to say so.
                let wait = deadline.within(deadline.remaining() / 2);
                charged.turn = wait.bound(self.large.acquire()).await.ok().and_then(Result::ok);
                charged.room = None;
                until = deadline.within(TURN);
                let why = "the review is large and others that are came first, so that it was not \
                           read: try again";
                charged.turn.is_none().then(|| why.to_owned())
            } else {
                if charged.turn.is_none() {
                    charged.cover(size, &self.room, deadline).await?;
                }
                None
            };
            body.extend_from_slice(&chunk);
            if let Some(why) = unread {
                drop(charged);
                body.truncate(BEGINNING);
                body.shrink_to_fit();
                drain(arriving, until).await;
                return Ok(ReceivedBody::Unread { beginning: body, why });
            }
        }
    }
}

/// A body, as far as it was taken.
enum ReceivedBody<'w> {
    Whole(Vec<u8>, BodyCharge<'w>),
    Unread { beginning: Vec<u8>, why: String },
}

/// The memory that a body takes while it is here.
#[derive(Default)]
struct BodyCharge<'w> {
    room: Option<SemaphorePermit<'w>>,
    /// The turn of a large body, in place of room.
    turn: Option<SemaphorePermit<'w>>,
}

impl<'w> BodyCharge<'w> {
    async fn cover(
        &mut self,
        size: usize,
        room: &'w Semaphore,
        deadline: Deadline,
    ) -> Result<(), WebhookError> {
        let had = self.room.as_ref().map_or(0, SemaphorePermit::num_permits);
        let more = u32::try_from(size.div_ceil(UNIT).saturating_sub(had)).unwrap_or(u32::MAX);
        let Ok(Ok(more)) = deadline.within(COME_BACK).bound(room.acquire_many(more)).await else {
            let why = "too many bytes of other reviews are being read".to_owned();
            return Err(WebhookError::overloaded(why, COME_BACK));
        };
        match &mut self.room {
            Some(room) => room.merge(more),
            None => self.room = Some(more),
        }
        Ok(())
    }
}

/// Lets what is left of a body go by.
async fn drain(mut arriving: axum::body::BodyDataStream, until: Deadline) {
    let all = async {
        let mut drained = 0;
        while let Some(Ok(chunk)) = arriving.next().await {
            drained += chunk.len();
            if drained > DRAINED {
                return;
            }
        }
    };
    // Who does not send it in time gets the answer before.
    let _ = until.bound(all).await;
}

/// The announced length of a body.
fn length(request: &Request) -> Option<usize> {
    let length = request.headers().get(header::CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

/// No answer; the API server does what its `failurePolicy` says.
#[derive(Debug)]
struct WebhookError {
    code: ErrorCode,
    why: String,
    come_back: Option<Duration>,
}

impl WebhookError {
    fn new(code: ErrorCode, why: String) -> Self {
        Self { code, why, come_back: None }
    }

    fn overloaded(why: String, after: Duration) -> Self {
        Self { come_back: Some(after), ..Self::new(ErrorCode::Overloaded, why) }
    }

    fn of(undecided: &Undecided) -> Self {
        let why = undecided.to_string();
        match undecided {
            Undecided::NotReady | Undecided::ImagesNotReady => Self::overloaded(why, COME_BACK),
            Undecided::NoSuchCluster(_) => Self::new(ErrorCode::NoSuchCluster, why),
            Undecided::Malformed(_) => Self::new(ErrorCode::Invalid, why),
            Undecided::Unread(_) => Self::new(ErrorCode::TooLarge, why),
        }
    }
}

impl IntoResponse for WebhookError {
    fn into_response(self) -> Response {
        let mut response = (self.code.status(), self.why).into_response();
        if let Some(after) = self.come_back {
            response.headers_mut().insert(header::RETRY_AFTER, retry_after_seconds(after).into());
        }
        response
    }
}

#[cfg(test)]
mod tests;
