//! Which kinds a cluster serves.

use access::{CLUSTERS, Verb};
use axum::Json;
use axum::extract::{Path, State};
use fleet::discovery::{FailedGroup, ServedKind};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::{Api, Caller, Problem, Route, Routes};

pub(crate) fn routes() -> Routes {
    Routes::default()
        .with(Route::list(), routes!(kinds))
        .with(Route::write(Verb::Update, CLUSTERS).local(), routes!(reset_kinds))
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Kind {
    /// The plural: `deployments`.
    name: String,
    short_names: Vec<String>,
    group: String,
    version: String,
    kind: String,
    namespaced: bool,
    verbs: Vec<String>,
}

impl From<ServedKind> for Kind {
    fn from(found: ServedKind) -> Self {
        let ServedKind { resource, namespaced, verbs, short_names, .. } = found;
        Self {
            name: resource.plural,
            short_names,
            group: resource.group,
            version: resource.version,
            kind: resource.kind,
            namespaced,
            verbs,
        }
    }
}

#[derive(Serialize, ToSchema)]
struct Failed {
    /// With its version: `metrics.k8s.io/v1beta1`.
    group: String,
    why: String,
}

impl From<FailedGroup> for Failed {
    fn from(FailedGroup { api_version: group, why }: FailedGroup) -> Self {
        Self { group, why }
    }
}

#[derive(Serialize, ToSchema)]
struct Kinds {
    kinds: Vec<Kind>,
    /// Groups that could not be asked: what they serve is missing above.
    failed: Vec<Failed>,
}

/// Every kind that the cluster serves
#[utoipa::path(
    get, path = "/clusters/{cluster}/kinds", tag = "clusters",
    responses((status = 200, description = "Each in the version that its group prefers", body = Kinds))
)]
async fn kinds(
    State(api): State<Api>,
    caller: Caller,
    Path(cluster): Path<String>,
) -> Result<Json<Kinds>, Problem> {
    let found = caller.connection(&api, &cluster)?.kinds(caller.deadline).await?;
    let kinds = found.kinds.into_iter().map(Kind::from).collect();
    Ok(Json(Kinds { kinds, failed: found.failed.into_iter().map(Failed::from).collect() }))
}

/// Forget what is known of the cluster's kinds
#[utoipa::path(
    post, path = "/clusters/{cluster}/kinds/reset", tag = "clusters",
    responses((status = 204, description = "Forgotten; the next question asks the cluster"))
)]
async fn reset_kinds(
    State(api): State<Api>,
    caller: Caller,
    Path(cluster): Path<String>,
) -> Result<StatusCode, Problem> {
    caller.may_in_fleet(CLUSTERS, Verb::Update)?;
    caller.connection(&api, &cluster)?.discovery().reset_all();
    Ok(StatusCode::NO_CONTENT)
}
