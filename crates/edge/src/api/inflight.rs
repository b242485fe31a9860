//! The operations in flight in this process.

use access::Verb;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use stallproof::ledger::Filter;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::{Api, Caller, Problem, Query, Route, Routes};

/// The resource in the cluster `-`.
const INFLIGHT: &str = "inflight.fairlead.dev";

pub(crate) fn routes() -> Routes {
    Routes::default().with(Route::read(), routes!(inflight))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct InflightParams {
    /// Such as `rest`.
    kind: Option<String>,
    /// A cluster, mostly.
    tenant: Option<String>,
    /// The most to show, oldest first; 1000 unless said.
    limit: Option<usize>,
}

#[derive(Serialize, ToSchema)]
struct Inflight {
    /// Kind, key, tenant, age, step, what it waits on; oldest first.
    #[schema(value_type = Vec<Object>)]
    operations: Vec<stallproof::ledger::OpView>,
}

/// What is in flight, oldest first
#[utoipa::path(
    get, path = "/inflight", tag = "about", params(InflightParams),
    responses((status = 200, description = "Oldest first", body = Inflight))
)]
async fn inflight(
    State(api): State<Api>,
    caller: Caller,
    Query(InflightParams { kind, tenant, limit }): Query<InflightParams>,
) -> Result<Json<Inflight>, Problem> {
    caller.may_in_fleet(INFLIGHT, Verb::List)?;
    let limit = limit.unwrap_or_else(|| Filter::default().limit);
    Ok(Json(Inflight { operations: api.ledger.in_flight(&Filter { kind, tenant, limit }) }))
}
