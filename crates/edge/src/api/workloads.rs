//! What is done with workloads beyond scaling and restarting: revisions and the way back, CronJobs run
//! now or suspended.

use access::Verb;
use axum::Json;
use axum::extract::{Path, State};
use fleet::resources::{cron, rollout};
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::resources::{Chosen, Within, choose};
use super::{Api, Body, Caller, Problem, Query, Route, Routes};

pub(crate) fn routes() -> Routes {
    Routes::default()
        .with(Route::list(), routes!(revisions))
        .with(Route::write(Verb::Update, "-"), routes!(rollback))
        .with(Route::write(Verb::Create, "-"), routes!(trigger))
        .with(Route::write(Verb::Update, "-"), routes!(suspend))
        .with(Route::write(Verb::Update, "-"), routes!(resume))
}

/// One revision of a workload.
#[derive(Serialize, ToSchema)]
struct WorkloadRevision {
    revision: i64,
    /// The ReplicaSet or ControllerRevision that keeps it.
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    created: Option<Timestamp>,
    images: Vec<String>,
    /// Why it was made, if somebody said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
    /// Whether it is what the workload is now.
    current: bool,
    /// The pods of a ReplicaSet.
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<i32>,
}

impl From<rollout::Revision> for WorkloadRevision {
    fn from(revision: rollout::Revision) -> Self {
        Self {
            revision: revision.revision,
            name: revision.name,
            created: revision.created,
            images: revision.images,
            cause: revision.cause,
            current: revision.current,
            replicas: revision.replicas,
        }
    }
}

#[derive(Serialize, ToSchema)]
struct WorkloadRevisions {
    /// The newest first.
    revisions: Vec<WorkloadRevision>,
}

/// The revisions of a Deployment, StatefulSet or DaemonSet
#[utoipa::path(
    get, path = "/clusters/{cluster}/resources/{kind}/{name}/revisions", tag = "resources",
    params(Within),
    responses((status = 200, description = "The newest first", body = WorkloadRevisions))
)]
async fn revisions(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, kind, name)): Path<(String, String, String)>,
    Query(asked): Query<Within>,
) -> Result<Json<WorkloadRevisions>, Problem> {
    let (object, namespace) = ((&*cluster, &*kind, &*name), asked.namespace.as_deref());
    let Chosen { connection, target, .. } =
        choose(&api, &caller, object, namespace, Verb::Get).await?;
    let all = rollout::revisions(&connection, &target, caller.deadline).await?;
    Ok(Json(WorkloadRevisions { revisions: all.into_iter().map(Into::into).collect() }))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Rollback {
    /// The one before the present unless said.
    revision: Option<i64>,
}

/// Go back to a revision
#[utoipa::path(
    post, path = "/clusters/{cluster}/resources/{kind}/{name}/rollback", tag = "resources",
    params(Within), request_body = Rollback,
    responses((status = 200, description = "The revision that it goes back to", body = WorkloadRevision))
)]
async fn rollback(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, kind, name)): Path<(String, String, String)>,
    Query(asked): Query<Within>,
    Body(Rollback { revision }): Body<Rollback>,
) -> Result<Json<WorkloadRevision>, Problem> {
    let (object, namespace) = ((&*cluster, &*kind, &*name), asked.namespace.as_deref());
    let Chosen { connection, target, .. } =
        choose(&api, &caller, object, namespace, Verb::Update).await?;
    let gone_to = rollout::rollback(&connection, &target, revision, caller.deadline).await?;
    caller.trail.after(&serde_json::json!({ "revision": gone_to.revision }));
    Ok(Json(gone_to.into()))
}

#[derive(Serialize, ToSchema)]
struct Triggered {
    /// The name of the Job.
    job: String,
}

/// Run a CronJob now
#[utoipa::path(
    post, path = "/clusters/{cluster}/resources/{kind}/{name}/trigger", tag = "resources",
    params(Within),
    responses((status = 201, description = "A Job was made of it", body = Triggered))
)]
async fn trigger(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, kind, name)): Path<(String, String, String)>,
    Query(asked): Query<Within>,
) -> Result<(StatusCode, Json<Triggered>), Problem> {
    let (object, namespace) = ((&*cluster, &*kind, &*name), asked.namespace.as_deref());
    let Chosen { connection, target, .. } =
        choose(&api, &caller, object, namespace, Verb::Get).await?;
    // What is made is a Job.
    let jobs = (target.namespace(), "jobs.batch", "*");
    super::scope::permit(&caller, &cluster, jobs, Verb::Create)?;
    let job = cron::trigger(&connection, &target, caller.deadline).await?;
    caller.trail.detail("job", job.as_str());
    Ok((StatusCode::CREATED, Json(Triggered { job })))
}

#[derive(Serialize, ToSchema)]
struct Suspended {
    suspended: bool,
}

/// Suspend a CronJob
#[utoipa::path(
    post, path = "/clusters/{cluster}/resources/{kind}/{name}/suspend", tag = "resources",
    params(Within),
    responses((status = 200, description = "It makes no Jobs from now on", body = Suspended))
)]
async fn suspend(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, kind, name)): Path<(String, String, String)>,
    Query(asked): Query<Within>,
) -> Result<Json<Suspended>, Problem> {
    let object = (&*cluster, &*kind, &*name);
    set_suspended(&api, &caller, object, asked.namespace.as_deref(), true).await
}

/// Let a CronJob run again
#[utoipa::path(
    post, path = "/clusters/{cluster}/resources/{kind}/{name}/resume", tag = "resources",
    params(Within),
    responses((status = 200, description = "It makes Jobs again", body = Suspended))
)]
async fn resume(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, kind, name)): Path<(String, String, String)>,
    Query(asked): Query<Within>,
) -> Result<Json<Suspended>, Problem> {
    let object = (&*cluster, &*kind, &*name);
    set_suspended(&api, &caller, object, asked.namespace.as_deref(), false).await
}

async fn set_suspended(
    api: &Api,
    caller: &Caller,
    object: (&str, &str, &str),
    namespace: Option<&str>,
    suspended: bool,
) -> Result<Json<Suspended>, Problem> {
    let Chosen { connection, target, .. } =
        choose(api, caller, object, namespace, Verb::Update).await?;
    cron::suspend(&connection, &target, suspended, caller.deadline).await?;
    caller.trail.after(&serde_json::json!({ "suspended": suspended }));
    Ok(Json(Suspended { suspended }))
}

#[cfg(test)]
mod tests;
