//! A connection to a port of a pod, over a WebSocket of raw bytes.
//!
//! An empty frame says that its sender writes no more. Towards the pod there is no such word: after
//! the client's, what the pod still sends is passed on until nothing has come for [`LINGER`].

use std::time::Duration;

use access::Verb;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::Response;
use fleet::resources::forward::{self, Forward};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::watch;
use utoipa::IntoParams;
use utoipa_axum::routes;

use super::door::Asker;
use super::extract::Query;
use super::pods::{PODS, Pod};
use super::problem::Problem;
use super::rights::Rights;
use super::route::{Route, Routes};
use super::socket::{self, Converse, Ended, FromClient, Session, ToClient};
use super::{Api, sse};

/// What one frame holds at most.
const FRAME: usize = 32 << 10;
const LINGER: Duration = Duration::from_secs(10);

pub(crate) fn routes() -> Routes {
    Routes::default().with(Route::write(Verb::Forward, PODS), routes!(forward))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct Asked {
    namespace: String,
    #[param(value_type = u16, minimum = 1)]
    port: std::num::NonZeroU16,
    /// As the header `Request-Timeout`; for opening the connection.
    #[expect(dead_code, reason = "read by the door")]
    timeout: Option<String>,
}

/// Connect to a port of a pod
///
/// A WebSocket of raw bytes, one for each connection; an empty frame says that its sender writes no
/// more. What went wrong is the reason of the closing frame.
#[utoipa::path(
    get, path = "/clusters/{cluster}/resources/pods/{name}/forward", tag = "pods", params(Asked),
    responses((status = 101, description = "It is connected"))
)]
async fn forward(
    State(api): State<Api>,
    asker: Asker,
    Path((cluster, name)): Path<(String, String)>,
    Query(asked): Query<Asked>,
    upgrade: socket::Asked,
) -> Result<Response, Problem> {
    let upgrade = socket::asked(upgrade)?;
    let pod = Pod { cluster: &cluster, namespace: &asked.namespace, name: &name };
    let connection = pod.connection(&api, &asker, Verb::Forward)?;
    let place = sse::place(&api, "forward", name.clone(), cluster.clone())?;
    let within = (&*cluster, Some(&*asked.namespace));
    let rights = Rights::to(&api, &asker, within, PODS, Verb::Forward);
    let port = asked.port.get();
    let port = forward::forward(&connection, &asked.namespace, &name, port, asker.deadline).await?;
    let task = format!("forward to {name} of {cluster}");
    Ok(socket::open(&api, upgrade, task, (place, rights, asker.deadline), Tunnel(port)))
}

struct Tunnel(Forward);

impl Converse for Tunnel {
    async fn converse(&mut self, Session { to, from }: &mut Session) -> Ended {
        let (reading, writing) = tokio::io::split(&mut self.0);
        let (finished, is_finished) = watch::channel(false);
        tokio::select! {
            ended = tell(reading, to, is_finished) => ended,
            ended = pass_on(from, writing, &finished) => ended,
        }
    }

    fn last(&self, _ended: &Ended) -> Option<Bytes> {
        None
    }
}

/// What the pod sends, to the client.
async fn tell(
    mut reading: ReadHalf<&mut Forward>,
    to: &mut ToClient,
    mut is_finished: watch::Receiver<bool>,
) -> Ended {
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
            () = to.gone() => return Ended::Gone,
            () = lingering => return Ended::Done,
        };
        let count = match read {
            Ok(count) => count,
            Err(error) => return Ended::Broke(error.to_string()),
        };
        // Nothing more is an empty frame, as it should be.
        if to.send(Bytes::copy_from_slice(&buffer[..count])).await.is_err() {
            return Ended::Gone;
        }
        if count == 0 {
            return Ended::Done;
        }
    }
}

/// What the client sends, to the pod.
async fn pass_on(
    from: &mut FromClient,
    mut writing: WriteHalf<&mut Forward>,
    finished: &watch::Sender<bool>,
) -> Ended {
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
            return Ended::Broke(error.to_string());
        }
    }
    Ended::Gone
}
