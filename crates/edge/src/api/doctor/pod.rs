//! The doctor of a process in a pod: its debug port is found and asked through the cluster.
//!
//! Contract: it needs what a forwarded port needs, asks with GET alone, and changes nothing in the pod.
//! Each answer is one connection, and all answers together have [`LARGEST`](super::LARGEST) bytes at
//! most. Everything is within the caller's deadline, and ends when the process stops.

use std::cell::Cell;
use std::time::Duration;

use access::Verb;
use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use doctor::Options;
use doctor::live::pod::{PROBE, PodPorts, debug_ports};
use doctor::live::{Fetch, Live};
use fleet::Connection;
use fleet::resources::{self, forward};
use http::header;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use serde::Deserialize;
use stallproof::{Deadline, Stop};
use tokio::runtime::Handle;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::super::extract::whole;
use super::super::pods::{PODS, PodRef};
use super::super::scope::permit;
use super::super::{Api, Caller, ErrorCode, Problem, Query, Route, Routes};
use super::{LARGEST, examined};

/// The search takes half a minute at most, two dumps of a large process some seconds each.
const UNASKED: Duration = Duration::from_secs(120);
/// Between the two dumps, unless said.
const PAUSE: u64 = 5;
/// The longest time between the two dumps: a thread waits for it.
const LONGEST_PAUSE: u64 = 30;

pub(super) fn routes() -> Routes {
    let route = Route::write(Verb::Forward, PODS).recording(&["port"]).unasked(UNASKED);
    Routes::default().with(route, routes!(doctor_of_pod))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct DoctorOfPodParams {
    namespace: String,
    /// As the header `Request-Timeout`; two minutes unless said.
    #[expect(dead_code, reason = "read by the pipeline")]
    timeout: Option<String>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct DoctorOfPod {
    /// The port that serves profiles or metrics; it is looked for unless said.
    port: Option<u16>,
    /// Between the two dumps; 5 unless said, 30 at most.
    pause_seconds: Option<u64>,
}

/// Examine a process in a pod
///
/// Looks for the port that serves profiles or metrics, asks it twice, some seconds apart, and answers
/// what `fairlead doctor pod/NAME -o json` answers. It needs `get` and `forward` on pods.
#[utoipa::path(
    post, path = "/clusters/{cluster}/resources/pods/{name}/doctor", tag = "pods",
    params(DoctorOfPodParams), request_body = Option<DoctorOfPod>,
    responses((status = 200, description = "The findings", body = Object))
)]
async fn doctor_of_pod(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, name)): Path<(String, String)>,
    Query(asked): Query<DoctorOfPodParams>,
    request: Request,
) -> Result<Response, Problem> {
    let pod = PodRef { cluster: &cluster, namespace: &asked.namespace, name: &name };
    let connection = pod.connection(&api, &caller, Verb::Forward)?;
    permit(&caller, &cluster, (Some(&asked.namespace), PODS, &name), Verb::Get)?;
    let how = how(&whole(request, &()).await?)?;
    let deadline = caller.deadline;
    let within = Some(&*asked.namespace);
    let object = resources::get(&connection, "pods.v1.", within, &name, deadline).await?;
    let object = serde_json::to_value(object).unwrap_or_default();
    let ports = how.port.map_or_else(|| debug_ports(&object), |port| vec![port]);
    let known = PodPorts { pod: name.clone(), ports };
    let process = PodProcess {
        handle: Handle::current(),
        stop: api.tasks.stopping(),
        connection,
        namespace: asked.namespace,
        known,
        deadline,
        left: Cell::new(LARGEST),
    };
    let pause = Duration::from_secs(how.pause_seconds.unwrap_or(PAUSE));
    examined(&api, (name, cluster), deadline, move || examine(&process, pause)).await
}

fn how(body: &Bytes) -> Result<DoctorOfPod, Problem> {
    if body.is_empty() {
        return Ok(DoctorOfPod::default());
    }
    let how: DoctorOfPod = serde_json::from_slice(body).map_err(|error| {
        Problem::invalid(format!("the body is not the JSON that is expected here: {error}"))
    })?;
    if how.port == Some(0) {
        return Err(Problem::invalid("there is no port 0"));
    }
    if how.pause_seconds.is_some_and(|pause| pause > LONGEST_PAUSE) {
        let detail = format!("pauseSeconds is {LONGEST_PAUSE} at most");
        return Err(Problem::invalid(detail));
    }
    Ok(how)
}

/// Looks for the port, asks it, and says what is wrong.
fn examine(process: &PodProcess, pause: Duration) -> Result<String, Problem> {
    let probe = Probe(process);
    let Some(address) = process.known.search(&probe, &mut |_| {}) else {
        let detail = process.known.nothing("as `port`");
        return Err(Problem::new(ErrorCode::NotFound, detail));
    };
    let live = Some(Live { pause, fetch: process });
    let options = Options { now: Some(Timestamp::now()), live };
    let (report, _) = doctor::examine_inputs(&[address], &options, &mut |_| {});
    Ok(doctor::render::json(&report))
}

/// Asks a pod through its cluster: `http://POD:PORT` is a port of the pod.
#[derive(Debug)]
struct PodProcess {
    handle: Handle,
    stop: Stop,
    connection: Connection,
    namespace: String,
    known: PodPorts,
    deadline: Deadline,
    /// Bytes that may still be answered.
    left: Cell<usize>,
}

impl PodProcess {
    fn fetch(&self, url: &str, deadline: Deadline) -> Result<(u16, Vec<u8>), String> {
        let (port, path) =
            self.known.page(url).ok_or_else(|| format!("{url} is no page of the pod"))?;
        let ask = self.ask(port, if path.is_empty() { "/" } else { path }, deadline);
        let answer = self.handle.block_on(self.stop.bound(deadline.bound(ask)));
        let (status, body) = answer
            .ok_or_else(|| "the server is stopping".to_owned())?
            .map_err(|_| "no answer in time".to_owned())??;
        self.left.set(self.left.get().saturating_sub(body.len()));
        Ok((status, body.into()))
    }

    async fn ask(&self, port: u16, path: &str, deadline: Deadline) -> Result<(u16, Bytes), String> {
        let (namespace, pod) = (&self.namespace, &self.known.pod);
        let port = forward::forward(&self.connection, namespace, pod, port, deadline).await;
        let port = port.map_err(|error| stallproof::sentence(&error))?;
        let handshake = http1::handshake(TokioIo::new(port)).await;
        let (mut sender, connection) = handshake.map_err(|error| stallproof::sentence(&error))?;
        let request = http::Request::builder()
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::CONNECTION, "close")
            .header(header::USER_AGENT, concat!("fairlead/", env!("CARGO_PKG_VERSION")))
            .body(Empty::<Bytes>::new())
            .map_err(|error| error.to_string())?;
        let exchange = async {
            let answer = sender.send_request(request).await;
            let answer = answer.map_err(|error| stallproof::sentence(&error))?;
            let status = answer.status().as_u16();
            let body = Limited::new(answer.into_body(), self.left.get()).collect().await;
            let body = body.map_err(|error| {
                if error.is::<http_body_util::LengthLimitError>() {
                    format!("its answers have more than {} MiB", LARGEST >> 20)
                } else {
                    error.to_string()
                }
            })?;
            Ok((status, body.to_bytes()))
        };
        // The end of the connection is told to whoever waits for the answer.
        let driven = async {
            let _ = connection.await;
            std::future::pending().await
        };
        tokio::select! {
            answer = exchange => answer,
            answer = driven => answer,
        }
    }
}

impl Fetch for PodProcess {
    fn get(&self, url: &str) -> Result<(u16, Vec<u8>), String> {
        self.fetch(url, self.deadline)
    }
}

/// Asks for the small page that tells a debug port.
#[derive(Debug)]
struct Probe<'a>(&'a PodProcess);

impl Fetch for Probe<'_> {
    fn get(&self, url: &str) -> Result<(u16, Vec<u8>), String> {
        self.0.fetch(url, self.0.deadline.within(PROBE))
    }
}

#[cfg(test)]
mod tests;
