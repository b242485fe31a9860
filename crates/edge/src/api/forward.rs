//! A connection to a port of a pod, over a WebSocket of raw bytes.
//!
//! An empty frame says that its sender writes no more. Towards the pod there is no such word: after
//! the client's, what the pod still sends is passed on until nothing has come for [`LINGER`]. A client
//! that closes the WebSocket wants no more: the pod is told, and the place is given back at once.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use access::Verb;
use access::audit::Pending;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::Response;
use fleet::resources::backend;
use fleet::resources::forward::{self, Forward};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::watch;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::forwards::{ForwardedPort, ListedForward, ended_by};
use super::pods::{PODS, PodRef};
use super::resources::choose;
use super::scope::permit;
use super::socket::{self, FromClient, Session, SessionBackend, SessionEnd, ToClient};
use super::{Api, Caller, Problem, Query, Rights, Route, Routes, sse};

/// The most bytes of one frame.
const FRAME: usize = 32 << 10;
const LINGER: Duration = Duration::from_secs(10);
/// For the kubelet to hear that a client has closed, after all that it has sent.
const GOODBYE: Duration = Duration::from_secs(2);

pub(crate) fn routes() -> Routes {
    Routes::default()
        .with(Route::write(Verb::Forward, PODS).recording(&["port"]), routes!(forward))
        .with(Route::read(), routes!(forward_target))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ForwardTargetParams {
    namespace: String,
    /// A number or a name; of a Service, its own.
    port: String,
    /// As the header `Request-Timeout`.
    #[expect(dead_code, reason = "read by the pipeline")]
    timeout: Option<String>,
}

/// Where to connect.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ForwardTarget {
    namespace: String,
    pod: String,
    /// The pod's.
    port: u16,
    /// The port that was asked for, as a number: of a Service, its own.
    asked_port: u16,
}

/// Find the pod behind a Service or a workload
///
/// A ready pod, and the port of it that a Service's port (number or name) leads to; of a workload or
/// a pod, the port itself, or that of the name. Then connect to `pods/{pod}/forward`. It needs `get`
/// on the object and `forward` on pods.
#[utoipa::path(
    get, path = "/clusters/{cluster}/resources/{kind}/{name}/forward-target", tag = "pods",
    params(ForwardTargetParams),
    responses((status = 200, description = "The pod and its port", body = ForwardTarget))
)]
async fn forward_target(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, kind, name)): Path<(String, String, String)>,
    Query(asked): Query<ForwardTargetParams>,
) -> Result<Json<ForwardTarget>, Problem> {
    let (object, namespace) = ((&*cluster, &*kind, &*name), Some(&*asked.namespace));
    let chosen = choose(&api, &caller, object, namespace, Verb::Get).await?;
    permit(&caller, &cluster, (namespace, PODS, &name), Verb::Forward)?;
    let (connection, target) = (&chosen.connection, &chosen.target);
    let found = backend::backend(connection, target, &asked.port, caller.deadline).await?;
    Ok(Json(ForwardTarget {
        namespace: asked.namespace,
        pod: found.pod,
        port: found.port,
        asked_port: found.asked,
    }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ForwardParams {
    namespace: String,
    #[param(value_type = u16, minimum = 1)]
    port: std::num::NonZeroU16,
    /// As the header `Request-Timeout`; for opening the connection.
    #[expect(dead_code, reason = "read by the pipeline")]
    timeout: Option<String>,
}

/// Connect to a port of a pod
///
/// A WebSocket of raw bytes, one for each connection; an empty frame says that its sender writes no
/// more. What went wrong is the reason of the closing frame.
#[utoipa::path(
    get, path = "/clusters/{cluster}/resources/pods/{name}/forward", tag = "pods", params(ForwardParams),
    responses((status = 101, description = "It is connected"))
)]
async fn forward(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, name)): Path<(String, String)>,
    Query(asked): Query<ForwardParams>,
    upgrade: socket::UpgradeResult,
) -> Result<Response, Problem> {
    let upgrade = upgrade?;
    let pod = PodRef { cluster: &cluster, namespace: &asked.namespace, name: &name };
    let connection = pod.connection(&api, &caller, Verb::Forward)?;
    let place = sse::open(&api, &caller, "forward", name.clone(), cluster.clone())?;
    let within = (&*cluster, Some(&*asked.namespace));
    let rights = Rights::to(&api, &caller, within, PODS, Verb::Forward);
    let port = asked.port.get();
    let port =
        forward::forward(&connection, &asked.namespace, &name, port, caller.deadline).await?;
    let task = format!("forward to {name} of {cluster}");
    let target = ForwardedPort {
        cluster: cluster.clone(),
        namespace: asked.namespace.clone(),
        pod: name.clone(),
        port: Some(asked.port.get()),
    };
    let listed = api.serving.forwards.list(&caller.who, target);
    let tunnel = Tunnel { port, audited: caller.trail.take(), listed };
    Ok(socket::open(&api, upgrade, task, (place, rights, caller.deadline), tunnel))
}

struct Tunnel {
    port: Forward,
    /// The audit's record, until the end is told.
    audited: Option<Pending>,
    /// In the list of port-forwards, for as long as it is open.
    listed: ListedForward,
}

/// Bytes that a session has passed on. Each direction is counted by its own half, and read by whoever lists
/// what is open.
#[derive(Debug, Default)]
pub(super) struct PassedBytes {
    pub(super) to_pod: AtomicU64,
    pub(super) from_pod: AtomicU64,
}

impl PassedBytes {
    /// Tells the audit how a session ended.
    pub(super) fn finish(&self, audited: Option<Pending>, ended: &SessionEnd) {
        let Some(mut audited) = audited else { return };
        audited.detail("bytesToPod", self.to_pod.load(Relaxed).into());
        audited.detail("bytesFromPod", self.from_pod.load(Relaxed).into());
        if let Some(reason) = ended.reason() {
            audited.detail("reason", reason.into());
        }
        audited.finish(ended.outcome());
    }
}

impl SessionBackend for Tunnel {
    async fn converse(&mut self, Session { to, from }: &mut Session) -> SessionEnd {
        let Self { port, listed, .. } = self;
        let PassedBytes { to_pod, from_pod } = listed.passed();
        let (reading, writing) = tokio::io::split(&mut *port);
        let (finished, is_finished) = watch::channel(false);
        let ended = tokio::select! {
            ended = tell(reading, to, is_finished, from_pod) => ended,
            ended = pass_on(from, writing, &finished, to_pod) => ended,
            by = listed.ended() => SessionEnd::Broke(ended_by(&by)),
        };
        if ended == SessionEnd::Gone {
            let _ = stallproof::Deadline::after(GOODBYE).bound(say_goodbye(port)).await;
        }
        ended
    }

    fn last(&mut self, ended: &SessionEnd) -> Option<Bytes> {
        self.listed.passed().finish(self.audited.take(), ended);
        None
    }
}

/// Closes the connection to the pod, after what was sent to it. Just dropping it could take back what
/// is still under way.
async fn say_goodbye(port: &mut Forward) {
    let mut rest = vec![0; FRAME];
    if port.shutdown().await.is_ok() {
        while port.read(&mut rest).await.is_ok_and(|count| count > 0) {}
    }
}

/// Sends what comes from the pod to the client.
async fn tell(
    mut reading: ReadHalf<&mut Forward>,
    to: &mut ToClient,
    mut is_finished: watch::Receiver<bool>,
    passed: &AtomicU64,
) -> SessionEnd {
    let mut buffer = vec![0; FRAME];
    loop {
        let lingering = async {
            if is_finished.wait_for(|finished| *finished).await.is_err() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(LINGER).await;
        };
        let read = tokio::select! {
            read = reading.read(&mut buffer) => read,
            () = to.gone() => return SessionEnd::Gone,
            () = lingering => return SessionEnd::Done,
        };
        let count = match read {
            Ok(count) => count,
            Err(error) => return SessionEnd::Broke(error.to_string()),
        };
        passed.fetch_add(count as u64, Relaxed);
        // Nothing more is an empty frame, as it should be.
        if to.send(Bytes::copy_from_slice(&buffer[..count])).await.is_err() {
            return SessionEnd::Gone;
        }
        if count == 0 {
            return SessionEnd::Done;
        }
    }
}

/// Sends what comes from the client to the pod.
async fn pass_on(
    from: &mut FromClient,
    mut writing: WriteHalf<&mut Forward>,
    finished: &watch::Sender<bool>,
    passed: &AtomicU64,
) -> SessionEnd {
    while let Some(frame) = from.next().await {
        if *finished.borrow() {
            continue;
        }
        if frame.is_empty() {
            finished.send_replace(true);
            continue;
        }
        let written = async {
            writing.write_all(&frame).await?;
            writing.flush().await
        };
        if let Err(error) = written.await {
            return SessionEnd::Broke(error.to_string());
        }
        passed.fetch_add(frame.len() as u64, Relaxed);
    }
    SessionEnd::Gone
}
