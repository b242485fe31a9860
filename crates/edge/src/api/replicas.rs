//! Reads of which every replica has a part (the audits). The replica that is asked asks the others on
//! behalf of the caller, and answers with all parts together.
//!
//! ```text
//! client ──► one replica ──┬─► its own part ──────────────────────┬──► all parts, and who is missing
//!                          └─► pass ──► the others, all at once ──┘
//! ```
//!
//! Contract:
//! - Reads, and what one of the replicas is named for ([`pass_on`]), which that one writes to its audit.
//! - One hop: who is asked with a pass ([`super::leader`]) answers with its own part.
//! - Each replica decides by the user's permissions, as it knows them.
//! - A replica that cannot be asked, refuses or takes too long costs its own part: the answer names it.
//! - The others are the pods of the controller's Deployment. Where there are none (an embedded store, a
//!   process outside of a pod), nobody is asked.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::body::to_bytes;
use axum::response::Response;
use futures::future::join_all;
use http::{HeaderMap, HeaderValue, Uri};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stallproof::Deadline;
use utoipa::ToSchema;

use super::leader::{LARGEST, LeaderReach, has_pass};
use super::{Api, Caller, ErrorCode, Problem};

/// The controller's pods.
const LABEL: &str = "app.kubernetes.io/name=fairlead-controller";
/// Nobody runs more controllers; each is one request.
const MOST: u32 = 64;
/// The time for one replica's part, unless the caller has less.
pub(crate) const PATIENCE: Duration = Duration::from_secs(8);
/// The share of the caller's time that the others have; the rest is for putting the parts together.
const SHARE: f64 = 0.8;

const NO_REACH: &str =
    "replicas ask each other only with `api.tls: auto` and with certificates for agents";
const NOT_YET: &str = "this replica has no key of the replicas yet; ask again";

/// The other replicas: pods in one namespace.
#[derive(Clone)]
pub struct Replicas {
    pub client: kube::Client,
    pub namespace: String,
    /// The address of this one, which is not asked.
    pub here: IpAddr,
}

impl std::fmt::Debug for Replicas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { namespace, here, .. } = self;
        f.debug_struct("Replicas").field("namespace", namespace).field("here", here).finish()
    }
}

/// A replica whose part is not in the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct MissingReplica {
    /// Its pod; `-` for all others, when they are not known.
    pub(crate) replica: String,
    pub(crate) why: String,
}

impl MissingReplica {
    pub(crate) fn new(replica: impl Into<String>, why: impl Into<String>) -> Self {
        Self { replica: replica.into(), why: why.into() }
    }
}

/// The parts that the other replicas answered with.
#[derive(Debug)]
pub(crate) struct ReplicaParts<T> {
    /// By the name of the replica.
    pub(crate) told: Vec<(String, T)>,
    pub(crate) missing: Vec<MissingReplica>,
}

impl<T> Default for ReplicaParts<T> {
    fn default() -> Self {
        Self { told: Vec::new(), missing: Vec::new() }
    }
}

/// A question to the others.
#[derive(Debug)]
pub(crate) struct ReplicaQuery<'a> {
    /// Below the API's base.
    pub(crate) path: &'a str,
    pub(crate) query: Vec<(&'static str, String)>,
}

/// The other replicas, if this request is one to ask them: there are some, and it is not one of them who
/// asks.
pub(crate) fn to_ask<'a>(api: &'a Api, headers: &HeaderMap) -> Option<&'a Replicas> {
    api.replicas.as_ref().filter(|_| !has_pass(headers))
}

/// Names the others where they are not asked at all.
pub(crate) async fn not_asked(
    replicas: &Replicas,
    why: &str,
    deadline: Deadline,
) -> Vec<MissingReplica> {
    match replicas.others(deadline.within(PATIENCE)).await {
        Ok(others) => others.into_iter().map(|it| MissingReplica::new(it.name, why)).collect(),
        Err(why) => vec![MissingReplica::new("-", why)],
    }
}

/// The other replicas, to be asked one by one.
pub(crate) async fn others(
    replicas: &Replicas,
    deadline: Deadline,
) -> Result<Vec<Replica>, MissingReplica> {
    let others = replicas.others(deadline.within(PATIENCE)).await;
    others.map_err(|why| MissingReplica::new("-", why))
}

/// Asks all others at once.
pub(crate) async fn ask<T: DeserializeOwned>(
    api: &Api,
    replicas: &Replicas,
    caller: &Caller,
    question: &ReplicaQuery<'_>,
) -> ReplicaParts<T> {
    let mut parts = ReplicaParts::default();
    let deadline = caller.deadline.within(caller.deadline.remaining().mul_f64(SHARE).min(PATIENCE));
    let others = match replicas.others(deadline).await {
        Ok(others) => others,
        Err(why) => {
            parts.missing.push(MissingReplica::new("-", why));
            return parts;
        }
    };
    let asking = others.into_iter().map(|other| async move {
        let answer = other.ask(api, caller, question, deadline).await;
        (other, answer)
    });
    for (Replica { name, .. }, answer) in join_all(asking).await {
        match answer {
            Ok(part) => parts.told.push((name, part)),
            Err(why) => parts.missing.push(MissingReplica::new(name, why)),
        }
    }
    parts
}

/// Has the replica of this name do what is asked, and answers as it does. The request has no body.
pub(crate) async fn pass_on(
    api: &Api,
    replicas: &Replicas,
    caller: &Caller,
    request: http::Request<()>,
    name: &str,
) -> Result<Response, Problem> {
    let away = |why: String| Problem::new(ErrorCode::NotReady, why);
    let others = replicas.others(caller.deadline.within(PATIENCE)).await.map_err(away)?;
    let other = others.into_iter().find(|other| other.name == name).ok_or_else(|| {
        let detail = format!("there is no other replica {name}; what it had has ended with it");
        Problem::new(ErrorCode::NotFound, detail)
    })?;
    let cannot = |why: &str| away(format!("the replica {name} cannot be asked: {why}"));
    let reach = api.leader.as_ref().and_then(|leader| leader.reach.as_ref());
    let reach = reach.ok_or_else(|| cannot(NO_REACH))?;
    let address = SocketAddr::new(other.address, reach.port);
    let bundle = reach.certificates.bundle().ok_or_else(|| cannot(NOT_YET))?;
    let who = api.access.name_for_replica(&caller.who);
    let asked = reach.request(&who, &request, address).ok_or_else(|| cannot(NOT_YET))?;
    let answer = reach.ask(address, &bundle, asked, &api.tasks, caller.deadline);
    match caller.deadline.within(PATIENCE).bound(answer).await {
        Ok(answer) => answer.map_err(|why| cannot(&why)),
        Err(_) => Err(cannot("it did not answer in time")),
    }
}

/// Another replica.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Replica {
    pub(crate) name: String,
    address: IpAddr,
}

impl Replicas {
    /// The other replicas whose pods have begun and not ended, by name.
    async fn others(&self, deadline: Deadline) -> Result<Vec<Replica>, String> {
        let pods = kube::Api::<Pod>::namespaced(self.client.clone(), &self.namespace);
        let params = ListParams::default().labels(LABEL).limit(MOST);
        let unknown = |why: &str| format!("the other replicas are not known: {why}");
        let listed = deadline.bound(pods.list(&params)).await;
        let listed = listed.map_err(|_| unknown("the API server did not answer in time"))?;
        let listed = listed.map_err(|error| unknown(&stallproof::sentence(&error)))?;
        let mut others: Vec<_> = listed.items.iter().filter_map(|pod| self.other(pod)).collect();
        others.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(others)
    }

    /// None for this one, and for a pod that has no process.
    fn other(&self, pod: &Pod) -> Option<Replica> {
        let status = pod.status.as_ref()?;
        let phase = status.phase.as_deref().unwrap_or_default();
        let addresses = status.pod_ips.iter().flatten().map(|it| it.ip.as_str());
        let mut addresses = addresses.chain(status.pod_ip.as_deref());
        let is_here = addresses.any(|it| it.parse() == Ok(self.here));
        if is_here || matches!(phase, "Succeeded" | "Failed") {
            return None;
        }
        let address = status.pod_ip.as_deref()?.parse().ok()?;
        Some(Replica { name: pod.metadata.name.clone()?, address })
    }
}

impl Replica {
    /// Its part, or why there is none.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        api: &Api,
        caller: &Caller,
        question: &ReplicaQuery<'_>,
        deadline: Deadline,
    ) -> Result<T, String> {
        let reach = api.leader.as_ref().and_then(|leader| leader.reach.as_ref());
        let reach = reach.ok_or(NO_REACH)?;
        let asked = self.answer(reach, api, caller, question, deadline);
        let answer = deadline.bound(asked).await;
        let response = answer.map_err(|_| format!("{} did not answer in time", self.address))??;
        let is_good = response.status().is_success();
        let body = to_bytes(response.into_body(), LARGEST).await.map_err(|e| e.to_string())?;
        if is_good {
            let read = serde_json::from_slice(&body);
            return read.map_err(|error| format!("its answer is not understood: {error}"));
        }
        let problem = serde_json::from_slice::<ProblemDetail>(&body);
        Err(problem.map_or_else(|_| "it refused".to_owned(), |problem| problem.detail))
    }

    async fn answer(
        &self,
        reach: &LeaderReach,
        api: &Api,
        caller: &Caller,
        question: &ReplicaQuery<'_>,
        deadline: Deadline,
    ) -> Result<Response, String> {
        let address = SocketAddr::new(self.address, reach.port);
        let bundle = reach.certificates.bundle().ok_or(NOT_YET)?;
        let uri = question.uri().map_err(|error| error.to_string())?;
        let mut request = reach
            .question(&api.access.name_for_replica(&caller.who), &uri, address)
            .ok_or(NOT_YET)?;
        // So that it tells what it found by then.
        let patience = format!("{}ms", deadline.remaining().as_millis().max(1));
        if let Ok(patience) = HeaderValue::from_str(&patience) {
            request.headers_mut().insert("request-timeout", patience);
        }
        reach.ask(address, &bundle, request, &api.tasks, deadline).await
    }
}

impl ReplicaQuery<'_> {
    fn uri(&self) -> Result<Uri, http::uri::InvalidUri> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(&self.query);
        match self.query.is_empty() {
            true => Uri::try_from(self.path),
            false => Uri::try_from(format!("{}?{}", self.path, query.finish())),
        }
    }
}

/// The sentence of a problem document.
#[derive(Deserialize)]
struct ProblemDetail {
    detail: String,
}

#[cfg(test)]
mod tests;
