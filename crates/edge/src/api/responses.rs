//! Response rules: what is done about events.

use access::Verb;
use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use kube::ResourceExt;
use objects::kinds::{ResponseRule, ResponseRuleSpec};
use objects::{Expected, Id};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::receivers::notifier;
use super::{Api, Body, Caller, Problem, Route, Routes};

/// The resource in the cluster `-`.
pub(crate) const RESPONSES: &str = "responserules.fairlead.dev";

pub(crate) fn routes() -> Routes {
    Routes::default()
        .with(Route::list(), routes!(responses))
        .with(Route::write(Verb::Update, RESPONSES).recording(&["spec"]), routes!(put_response))
        .with(Route::write(Verb::Delete, RESPONSES), routes!(delete_response))
}

/// A response rule.
#[derive(Serialize, ToSchema)]
struct ListedResponse {
    name: String,
    /// The spec of a `ResponseRule`.
    #[schema(value_type = Object)]
    spec: ResponseRuleSpec,
    /// active, disabled, or invalid: then it does nothing, or tells nobody.
    state: &'static str,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct ResponseList {
    responses: Vec<ListedResponse>,
}

/// Every response rule, in the order in which they are looked at
#[utoipa::path(
    get, path = "/responses", tag = "receivers",
    responses((status = 200, description = "By priority and name", body = ResponseList))
)]
async fn responses(State(api): State<Api>, caller: Caller) -> Result<Json<ResponseList>, Problem> {
    caller.may_in_fleet(RESPONSES, Verb::List)?;
    let listed = notifier(&api)?.rules().into_iter().map(|(rule, why)| ListedResponse {
        name: rule.name_any(),
        spec: rule.spec.clone(),
        state: match &why {
            _ if rule.spec.disabled => "disabled",
            Some(_) => "invalid",
            None => "active",
        },
        why,
    });
    Ok(Json(ResponseList { responses: listed.collect() }))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PutResponse {
    /// The spec of a `ResponseRule`.
    #[schema(value_type = Object)]
    spec: ResponseRuleSpec,
}

#[derive(Serialize, ToSchema)]
struct WrittenResponse {
    name: String,
    #[schema(value_type = Object)]
    spec: ResponseRuleSpec,
}

/// Create a response rule, or replace its spec
#[utoipa::path(
    put, path = "/responses/{name}", tag = "receivers", request_body = PutResponse,
    responses((status = 200, description = "As stored", body = WrittenResponse))
)]
async fn put_response(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
    Body(PutResponse { spec }): Body<PutResponse>,
) -> Result<Json<WrittenResponse>, Problem> {
    caller.may_in_fleet(RESPONSES, Verb::Update)?;
    let id = Id::cluster(name.as_str());
    let there = api.objects.get::<ResponseRule>(&id, caller.deadline).await?;
    let rule = match there {
        Some(rule) => ResponseRule { spec, metadata: rule.metadata },
        None => ResponseRule::new(&name, spec),
    };
    let written = api.objects.apply(&rule, Expected::Any, caller.deadline).await?;
    Ok(Json(WrittenResponse { name, spec: written.spec }))
}

/// Delete a response rule
#[utoipa::path(
    delete, path = "/responses/{name}", tag = "receivers",
    responses((status = 204, description = "Gone"))
)]
async fn delete_response(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    caller.may_in_fleet(RESPONSES, Verb::Delete)?;
    api.objects.delete::<ResponseRule>(&Id::cluster(name), Expected::Any, caller.deadline).await?;
    Ok(StatusCode::NO_CONTENT)
}
