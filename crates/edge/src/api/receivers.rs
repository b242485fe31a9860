//! Receivers: who is told of events, and how each fares. Every replica tells of what arose in it, from a queue of
//! its own: the one that is asked asks the others, and adds up.

use std::borrow::Cow;
use std::collections::BTreeMap;

use access::{Secret, Verb};
use axum::Json;
use axum::extract::{Path, State};
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use notify::{Notifier, ReceiverView, TestError};
use objects::kinds::{Receiver, ReceiverSpec};
use objects::{Expected, Id};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::replicas::{self, MissingReplica, ReplicaParts, ReplicaQuery};
use super::{Api, Body, Caller, ErrorCode, Problem, Route, Routes};

/// The resource in the cluster `-`.
pub(crate) const RECEIVERS: &str = "receivers.fairlead.dev";
/// A spec with authorities of its own, and a certificate.
const LARGEST: usize = 256 << 10;

pub(crate) fn routes() -> Routes {
    let put = Route::write(Verb::Update, RECEIVERS).body(LARGEST).recording(&["spec"]);
    Routes::default()
        .with(Route::list().all_replicas(), routes!(receivers))
        .with(put, routes!(put_receiver))
        .with(Route::write(Verb::Delete, RECEIVERS), routes!(delete_receiver))
        .with(Route::write(Verb::Update, RECEIVERS), routes!(test_receiver))
}

pub(super) fn notifier(api: &Api) -> Result<&Notifier, Problem> {
    let none = || Problem::new(ErrorCode::NotFound, "this process tells nobody of events");
    api.notifier.as_ref().ok_or_else(none)
}

/// A receiver, and how it fares in all replicas together.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ReceiverState {
    name: String,
    /// webhook, syslog, slack, teams, alertmanager, email or otlp.
    r#type: String,
    /// The spec of a `Receiver`.
    #[schema(value_type = Object)]
    spec: ReceiverSpec,
    /// idle, delivering, failing, disabled or invalid: the gravest of all replicas.
    #[schema(value_type = String)]
    state: Cow<'static, str>,
    /// Why it is failing or invalid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// Since when it is failing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    since: Option<Timestamp>,
    /// Attempts in a row that failed, in the replica that has most of them.
    attempts: u32,
    /// Notifications that wait for it.
    queued: u64,
    /// Notifications that it took since the replicas began.
    delivered: u64,
    /// Notifications that were not kept for it since the replicas began.
    dropped: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    last_delivery: Option<Timestamp>,
}

/// From the least grave.
const STATES: [&str; 5] = ["disabled", "idle", "delivering", "failing", "invalid"];

fn gravity(state: &str) -> usize {
    STATES.iter().position(|it| *it == state).unwrap_or_default()
}

impl ReceiverState {
    /// Adds how it fares in the replica `name`.
    fn add(&mut self, name: &str, other: Self) {
        if gravity(&other.state) > gravity(&self.state) {
            self.state = other.state;
            self.why = other.why.map(|why| format!("{why} (in the replica {name})"));
        }
        self.since = self.since.into_iter().chain(other.since).min();
        self.attempts = self.attempts.max(other.attempts);
        self.queued += other.queued;
        self.delivered += other.delivered;
        self.dropped += other.dropped;
        self.last_delivery = self.last_delivery.max(other.last_delivery);
    }
}

impl From<ReceiverView> for ReceiverState {
    fn from(view: ReceiverView) -> Self {
        let ReceiverView { name, spec, wrong, queued, delivered, dropped, last_delivery, failing } =
            view;
        let (failure, since, attempts) = match failing {
            Some((why, since, attempts)) => (Some(why), Some(since), attempts),
            None => (None, None, 0),
        };
        let state = match (&wrong, &failure) {
            _ if spec.disabled => "disabled",
            (Some(_), _) => "invalid",
            (None, Some(_)) => "failing",
            (None, None) if queued > 0 => "delivering",
            (None, None) => "idle",
        };
        let r#type = spec.types().join(",");
        let why = wrong.or(failure);
        Self {
            name,
            r#type,
            spec,
            state: state.into(),
            why,
            since,
            attempts,
            queued,
            delivered,
            dropped,
            last_delivery,
        }
    }
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
struct ReceiverList {
    receivers: Vec<ReceiverState>,
    /// Replicas whose queues are not in this.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    missing: Vec<MissingReplica>,
}

impl ReceiverList {
    /// Adds up the queues of all replicas. One that only another replica has heard of is listed too.
    fn merge(&mut self, parts: ReplicaParts<Self>) {
        self.missing.extend(parts.missing);
        for (replica, part) in parts.told {
            for other in part.receivers {
                match self.receivers.iter_mut().find(|it| it.name == other.name) {
                    Some(known) => known.add(&replica, other),
                    None => self.receivers.push(other),
                }
            }
        }
        self.receivers.sort_by(|one, other| one.name.cmp(&other.name));
    }
}

/// Every receiver, without secrets
///
/// Every replica has a queue for each of them: all replicas are asked, and what they have is added up.
#[utoipa::path(
    get, path = "/receivers", tag = "receivers",
    responses((status = 200, description = "By name", body = ReceiverList))
)]
async fn receivers(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
) -> Result<Json<ReceiverList>, Problem> {
    caller.may_in_fleet(RECEIVERS, Verb::List)?;
    let (receivers, synced) = notifier(&api)?.receivers();
    if !synced {
        let problem = Problem::new(ErrorCode::NotReady, "the receivers have not been read yet");
        return Err(problem.come_back(std::time::Duration::from_secs(1)));
    }
    let receivers = receivers.into_iter().map(ReceiverState::from).collect();
    let mut list = ReceiverList { receivers, missing: Vec::new() };
    if let Some(replicas) = replicas::to_ask(&api, &headers) {
        let question = ReplicaQuery { path: "/receivers", query: Vec::new() };
        list.merge(replicas::ask(&api, replicas, &caller, &question).await);
    }
    Ok(Json(list))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PutReceiver {
    /// The spec of a `Receiver`.
    #[schema(value_type = Object)]
    spec: ReceiverSpec,
    /// What is secret of it, by key (`hmac-key`, `url`, `password`, …), to be kept in a Secret of Fairlead's,
    /// which the spec then names.
    #[serde(default)]
    #[schema(value_type = std::collections::HashMap<String, String>)]
    secret: BTreeMap<String, Secret>,
}

#[derive(Serialize, ToSchema)]
struct WrittenReceiver {
    name: String,
    #[schema(value_type = Object)]
    spec: ReceiverSpec,
}

/// Create a receiver, or replace its spec
#[utoipa::path(
    put, path = "/receivers/{name}", tag = "receivers", request_body = PutReceiver,
    responses((status = 200, description = "As stored", body = WrittenReceiver))
)]
async fn put_receiver(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
    Body(PutReceiver { mut spec, secret }): Body<PutReceiver>,
) -> Result<Json<WrittenReceiver>, Problem> {
    caller.may_in_fleet(RECEIVERS, Verb::Update)?;
    let notifier = notifier(&api)?;
    if !secret.is_empty() {
        spec.secret = Some(Notifier::secret_name(&name));
    }
    let id = Id::cluster(name.as_str());
    let there = api.objects.get::<Receiver>(&id, caller.deadline).await?;
    let receiver = match there {
        Some(receiver) => Receiver { spec, metadata: receiver.metadata },
        None => Receiver::new(&name, spec),
    };
    let written = api.objects.apply(&receiver, Expected::Any, caller.deadline).await?;
    if !secret.is_empty() {
        let values = secret.into_iter().map(|(key, value)| (key, value.expose().to_owned()));
        notifier.keep_secret(&written, values.collect(), caller.deadline).await?;
    }
    Ok(Json(WrittenReceiver { name, spec: written.spec }))
}

/// Delete a receiver, and what waits for it
#[utoipa::path(
    delete, path = "/receivers/{name}", tag = "receivers",
    responses((status = 204, description = "Gone"))
)]
async fn delete_receiver(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    caller.may_in_fleet(RECEIVERS, Verb::Delete)?;
    api.objects.delete::<Receiver>(&Id::cluster(name), Expected::Any, caller.deadline).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Serialize, ToSchema)]
struct ReceiverTest {
    taken: bool,
    /// Why it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// Send a receiver a test notification at once, past its queue
#[utoipa::path(
    post, path = "/receivers/{name}/test", tag = "receivers",
    responses((status = 200, description = "Whether it was taken", body = ReceiverTest))
)]
async fn test_receiver(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<ReceiverTest>, Problem> {
    caller.may_in_fleet(RECEIVERS, Verb::Update)?;
    match notifier(&api)?.test(&name, &caller.who.user, caller.deadline).await {
        Ok(()) => Ok(Json(ReceiverTest { taken: true, why: None })),
        Err(error @ TestError::Unknown(_)) => {
            Err(Problem::new(ErrorCode::NotFound, error.to_string()))
        }
        Err(error) => {
            Ok(Json(ReceiverTest { taken: false, why: Some(stallproof::sentence(&error)) }))
        }
    }
}

#[cfg(test)]
mod tests;
