//! Helm's releases: their history, what is in a revision, and the way back to one.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use access::{AccessRequest, Reach, Verb};
use axum::Json;
use axum::extract::{Path, State};
use fleet::resources::Target;
use fleet::resources::helm::rollback::{self, Doing, RolledBack};
use fleet::resources::helm::{self, Release, ReleaseManifest, ReleaseRevision, ReleaseValues};
use serde::{Deserialize, Serialize};
use stallproof::ledger::Outcome;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::scope::{permit, resource};
use super::{Api, Body, Caller, ErrorCode, Problem, Query, Route, Routes};

/// The resource that roles name. Not `secrets`, which Helm keeps its releases in: what is told of them
/// in lists and histories is no secret.
const RELEASES: &str = "releases.helm.sh";
/// Values and manifests may hold secrets: who may not read those reads neither.
const SECRETS: &str = "secrets";
/// A release has some tens of objects, each of which is read and written.
const UNASKED: Duration = Duration::from_secs(120);
/// A rollback that has begun is finished, whether its caller waits or not.
const WHOLE: Duration = Duration::from_secs(300);

pub(crate) fn routes() -> Routes {
    Routes::default()
        .with(Route::list(), routes!(helm_releases))
        .with(Route::list(), routes!(helm_history))
        .with(Route::list(), routes!(helm_values))
        .with(Route::list(), routes!(helm_manifest))
        .with(
            Route::write(Verb::Update, RELEASES).recording(&["revision"]).unasked(UNASKED),
            routes!(helm_rollback),
        )
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct HelmParams {
    /// All that one may see unless said.
    namespace: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct HelmReleases {
    /// By namespace and name: namespace, name, revision, status, updated.
    #[schema(value_type = Vec<Object>)]
    releases: Vec<Release>,
}

/// Helm's releases
#[utoipa::path(
    get, path = "/clusters/{cluster}/helm", tag = "resources", params(HelmParams),
    responses((status = 200, description = "By namespace and name", body = HelmReleases))
)]
async fn helm_releases(
    State(api): State<Api>,
    caller: Caller,
    Path(cluster): Path<String>,
    Query(HelmParams { namespace }): Query<HelmParams>,
) -> Result<Json<HelmReleases>, Problem> {
    match namespace.as_deref() {
        Some(namespace) => permit(&caller, &cluster, (Some(namespace), RELEASES, "*"), Verb::List)?,
        None if caller.permissions.reach(&cluster, RELEASES, Verb::List) == Reach::Nowhere => {
            let verb = Verb::List;
            let all =
                AccessRequest { cluster: &cluster, namespace: None, resource: RELEASES, verb };
            caller.may(&all)?;
        }
        None => {}
    }
    let connection = caller.connection(&api, &cluster)?;
    let mut releases = helm::releases(&connection, namespace.as_deref(), caller.deadline).await?;
    releases.retain(|release| {
        let namespace = Some(release.namespace.as_str());
        let ask =
            AccessRequest { cluster: &cluster, namespace, resource: RELEASES, verb: Verb::List };
        access::decide(&caller.permissions, &ask).is_allowed()
    });
    Ok(Json(HelmReleases { releases }))
}

#[derive(Serialize, ToSchema)]
struct HelmHistory {
    /// The newest first: revision, status, chart, app_version, description, updated.
    #[schema(value_type = Vec<Object>)]
    revisions: Vec<ReleaseRevision>,
}

/// The revisions of a release that Helm has kept
#[utoipa::path(
    get, path = "/clusters/{cluster}/helm/{namespace}/{name}/history", tag = "resources",
    responses((status = 200, description = "The newest first", body = HelmHistory))
)]
async fn helm_history(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, namespace, name)): Path<(String, String, String)>,
) -> Result<Json<HelmHistory>, Problem> {
    permit(&caller, &cluster, (Some(&namespace), RELEASES, &name), Verb::Get)?;
    let connection = caller.connection(&api, &cluster)?;
    let revisions = helm::history(&connection, &namespace, &name, caller.deadline).await?;
    Ok(Json(HelmHistory { revisions }))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct HelmValuesParams {
    /// The newest unless said.
    revision: Option<u32>,
    /// With the chart's own values.
    #[serde(default)]
    all: bool,
    /// Shows values that read like secrets.
    #[serde(default)]
    reveal: bool,
}

/// The values of a release
///
/// Those whose key reads like a secret are masked unless `reveal` asks for them. It needs `get` on
/// `releases.helm.sh` and on `secrets`, and is in the audit.
#[utoipa::path(
    get, path = "/clusters/{cluster}/helm/{namespace}/{name}/values", tag = "resources",
    params(HelmValuesParams),
    responses((status = 200, description = "revision, values, masked", body = Object))
)]
async fn helm_values(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, namespace, name)): Path<(String, String, String)>,
    Query(HelmValuesParams { revision, all, reveal }): Query<HelmValuesParams>,
) -> Result<Json<ReleaseValues>, Problem> {
    may_read(&api, &caller, (&cluster, &namespace, &name))?;
    let connection = caller.connection(&api, &cluster)?;
    let release = (&*namespace, &*name);
    let shown = (all, reveal);
    Ok(Json(helm::values(&connection, release, revision, shown, caller.deadline).await?))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct HelmManifestParams {
    /// The newest unless said.
    revision: Option<u32>,
    /// Shows the data of Secrets, and the notes.
    #[serde(default)]
    reveal: bool,
}

/// The manifest of a release
///
/// The data of Secrets are masked, and the notes left out, unless `reveal` asks for them. It needs `get`
/// on `releases.helm.sh` and on `secrets`, and is in the audit.
#[utoipa::path(
    get, path = "/clusters/{cluster}/helm/{namespace}/{name}/manifest", tag = "resources",
    params(HelmManifestParams),
    responses((status = 200, description = "revision, manifest, notes, hooks, masked", body = Object))
)]
async fn helm_manifest(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, namespace, name)): Path<(String, String, String)>,
    Query(HelmManifestParams { revision, reveal }): Query<HelmManifestParams>,
) -> Result<Json<ReleaseManifest>, Problem> {
    may_read(&api, &caller, (&cluster, &namespace, &name))?;
    let connection = caller.connection(&api, &cluster)?;
    let release = (&*namespace, &*name);
    Ok(Json(helm::manifest(&connection, release, revision, reveal, caller.deadline).await?))
}

/// Decides, and notes the read in the audit.
fn may_read(
    api: &Api,
    caller: &Caller,
    (cluster, namespace, name): (&str, &str, &str),
) -> Result<(), Problem> {
    permit(caller, cluster, (Some(namespace), RELEASES, name), Verb::Get)?;
    permit(caller, cluster, (Some(namespace), SECRETS, name), Verb::Get)?;
    let within = (cluster, Some(namespace));
    caller.note_read(api, Verb::Get, within, (RELEASES, Some(name)), serde_json::Map::new())
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct HelmRollbackParams {
    /// Asks the server what would come of each object, and changes nothing.
    #[serde(default)]
    dry_run: bool,
    /// As the header `Request-Timeout`; two minutes unless said.
    #[expect(dead_code, reason = "read by the pipeline")]
    timeout: Option<String>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct HelmRollback {
    /// The one before the newest unless said.
    revision: Option<u32>,
}

/// Go back to a revision of a release
///
/// As `helm rollback` does it: a new revision with the old one's chart, values and manifest; the objects are
/// merged three-way, and those go that the old revision has not. Hooks are not run: `hooksNotRun` names them.
/// Everything is looked at before anything is written; what cannot be done rightly is refused. Once it has
/// begun it is finished, whether its caller waits or not. It needs `update` on `releases.helm.sh`, and what
/// is done with each object on that.
#[utoipa::path(
    post, path = "/clusters/{cluster}/helm/{namespace}/{name}/rollback", tag = "resources",
    params(HelmRollbackParams), request_body = HelmRollback,
    responses((
        status = 200, description = "revision, to, from, objects, hooksNotRun, warnings", body = Object
    ))
)]
async fn helm_rollback(
    State(api): State<Api>,
    caller: Caller,
    Path((cluster, namespace, name)): Path<(String, String, String)>,
    Query(asked): Query<HelmRollbackParams>,
    Body(HelmRollback { revision }): Body<HelmRollback>,
) -> Result<Json<RolledBack>, Problem> {
    permit(&caller, &cluster, (Some(&namespace), RELEASES, &name), Verb::Update)?;
    let connection = caller.connection(&api, &cluster)?;
    let refused = Mutex::new(None);
    let permitted = |target: &Target, doing: Doing| {
        let verbs: &[Verb] = match doing {
            Doing::Replace => &[Verb::Get, Verb::Create, Verb::Update],
            Doing::Delete => &[Verb::Get, Verb::Delete],
        };
        let resource = resource(target.resource());
        let object = (target.namespace(), &*resource, target.name());
        let may = |verb: &Verb| permit(&caller, &cluster, object, *verb);
        verbs.iter().try_for_each(may).map_err(|problem| {
            let why = problem.detail().to_owned();
            *refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem);
            fleet::Error::Invalid(why)
        })
    };
    let release = (&*namespace, &*name);
    let planned = rollback::plan(&connection, release, revision, permitted, caller.deadline).await;
    let plan = match (planned, refused.into_inner().unwrap_or_else(PoisonError::into_inner)) {
        (_, Some(problem)) => return Err(problem),
        (planned, None) => planned?,
    };
    let op = api.ledger.begin("helm-rollback", name.clone(), cluster.clone());
    let (dry_run, task) = (asked.dry_run, format!("helm rollback of {name} in {cluster}"));
    let running = api.tasks.spawn(task, async move {
        let run = op.in_span(plan.run(dry_run, stallproof::Deadline::after(WHOLE))).await;
        op.finish(if run.is_ok() { Outcome::Done } else { Outcome::Failed });
        run
    });
    let done = running.await;
    let done = done.map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()))??;
    caller.trail.before(&serde_json::json!({ "revision": done.from }));
    caller.trail.after(&serde_json::json!({ "revision": done.revision, "to": done.to }));
    caller.trail.detail("objects", done.objects.len());
    caller.trail.detail("failed", done.failed());
    Ok(Json(done))
}

#[cfg(test)]
mod tests;
