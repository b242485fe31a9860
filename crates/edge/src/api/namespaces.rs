//! The namespaces of a cluster that one may see.

use axum::Json;
use axum::extract::{Path, State};
use fleet::resources::{self, ListQuery};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::{Api, Caller, ErrorCode, Problem, Route, Routes};

pub(crate) fn routes() -> Routes {
    Routes::default().with(Route::list(), routes!(namespaces))
}

#[derive(Serialize, ToSchema)]
struct Namespaces {
    /// By name.
    namespaces: Vec<String>,
    /// The cluster does not let us list namespaces: these are the ones that one's roles name.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    derived: bool,
}

/// The namespaces that one may see
///
/// Also for who may not list namespaces: what a role speaks of may be known. Where the cluster itself
/// does not let them be listed, they are those that one's roles name.
#[utoipa::path(
    get, path = "/clusters/{cluster}/namespaces", tag = "resources",
    responses((status = 200, description = "By name", body = Namespaces))
)]
async fn namespaces(
    State(api): State<Api>,
    caller: Caller,
    Path(cluster): Path<String>,
) -> Result<Json<Namespaces>, Problem> {
    let connection = caller.connection(&api, &cluster)?;
    let seen = |name: &str| caller.permissions.may_see_namespace(&cluster, name);
    let query = ListQuery::of("namespaces.v1.");
    match resources::table(&connection, &query, caller.deadline).await {
        Ok(all) => {
            let names = all.rows.into_iter().map(|row| row.name).filter(|name| seen(name));
            let mut namespaces: Vec<_> = names.collect();
            namespaces.sort();
            Ok(Json(Namespaces { namespaces, derived: false }))
        }
        Err(error) => {
            let problem = Problem::from(error);
            let refused = matches!(problem.code, ErrorCode::Refused | ErrorCode::Forbidden);
            let named = caller.permissions.named_namespaces(&cluster);
            if !refused || named.is_empty() {
                return Err(problem);
            }
            Ok(Json(Namespaces { namespaces: named.into_iter().collect(), derived: true }))
        }
    }
}
