//! Helm's releases and their history, without values.

use access::{AccessRequest, Reach, Verb};
use axum::Json;
use axum::extract::{Path, State};
use fleet::resources::helm::{self, Release, ReleaseRevision};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::scope::permit;
use super::{Api, Caller, Problem, Query, Route, Routes};

/// The resource that roles name. Not `secrets`, which Helm keeps its releases in: what is told of them
/// here is no secret.
const RELEASES: &str = "releases.helm.sh";

pub(crate) fn routes() -> Routes {
    Routes::default()
        .with(Route::list(), routes!(helm_releases))
        .with(Route::list(), routes!(helm_history))
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
