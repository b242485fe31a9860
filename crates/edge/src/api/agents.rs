//! Agents: which nodes report, tokens to enrol more, and certificates that hold no longer.

use std::time::Duration;

use access::Verb;
use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use jiff::Timestamp;
use pki::agents::{
    Authority, DEFAULT_TTL, MadeToken, NotMade, NotRevoked, NotRevokedToken, Refused, TokenRecord,
};
use serde::{Deserialize, Serialize};
use traffic::agents::{AgentView, Agents};
use traffic::ingest::ActiveIngest;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::leader::not_here;
use super::{Api, Body, Caller, ErrorCode, Problem, Route, Routes};

/// The resources in the cluster `-`.
const AGENTS: &str = "agents.fairlead.dev";
const TOKENS: &str = "agenttokens.fairlead.dev";

/// The agents and their authority, which the handlers answer from.
#[derive(Clone, Debug)]
pub struct AgentsApi {
    pub agents: Agents,
    /// None where there is no TLS.
    pub authority: Option<Authority>,
    /// The agents are joined to the replica that counts.
    pub active: ActiveIngest,
}

pub(crate) fn routes() -> Routes {
    Routes::default()
        .with(Route::read().at_leader(), routes!(agents))
        .with(Route::read(), routes!(agent_tokens))
        .with(
            Route::write(Verb::Create, TOKENS).named_by("node").recording(&["node", "ttlSeconds"]),
            routes!(create_agent_token),
        )
        .with(Route::write(Verb::Delete, TOKENS), routes!(revoke_agent_token))
        .with(Route::write(Verb::Delete, AGENTS), routes!(revoke_agent))
}

/// A node's agent, and how it is doing.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct NodeAgent {
    node: String,
    /// alive; away (no connection at the moment), silent (not heard for minutes), left.
    state: String,
    version: String,
    kernel: String,
    cores: u32,
    /// Bytes.
    memory: u64,
    addresses: Vec<String>,
    /// Greater at every start of the agent.
    incarnation: u64,
    /// RFC 3339.
    #[schema(value_type = String)]
    joined: Timestamp,
    #[schema(value_type = String)]
    heard: Timestamp,
    /// Batches of this incarnation: counted, and in a checkpoint on disk.
    counted_through: u64,
    durable_through: u64,
    batches: u64,
    records: u64,
    /// Batches that were told to come back.
    refused: u64,
    /// What the agent had to drop since its start: totals, of which against the rules, and times at
    /// which the kernel had told more than was read.
    dropped_totals: u64,
    dropped_violations: u64,
    overruns: u64,
}

impl From<AgentView> for NodeAgent {
    fn from(view: AgentView) -> Self {
        let facts = &view.facts;
        Self {
            node: view.node.to_string(),
            state: view.state.to_string(),
            version: facts.version.clone(),
            kernel: facts.kernel.clone(),
            cores: facts.cores,
            memory: facts.memory,
            addresses: facts.addresses.iter().map(ToString::to_string).collect(),
            incarnation: facts.incarnation,
            joined: view.joined,
            heard: view.heard,
            counted_through: view.through,
            durable_through: view.durable,
            batches: view.batches,
            records: view.records,
            refused: view.refused,
            dropped_totals: view.dropped.totals,
            dropped_violations: view.dropped.violations,
            overruns: view.dropped.overruns,
        }
    }
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct NodeAgents {
    /// How often agents are asked to report.
    interval_ms: u64,
    agents: Vec<NodeAgent>,
}

/// The agents that joined, by node
#[utoipa::path(
    get, path = "/guard/agents", tag = "guard",
    responses((status = 200, description = "By node", body = NodeAgents))
)]
async fn agents(State(api): State<Api>, caller: Caller) -> Result<Json<NodeAgents>, Problem> {
    caller.may_in_fleet(AGENTS, Verb::List)?;
    let AgentsApi { agents, active, .. } = desk(&api)?;
    if active.ingest().is_none() {
        return Err(not_here(&api, "agents"));
    }
    let interval_ms = u64::try_from(agents.interval().as_millis()).unwrap_or(u64::MAX);
    let agents = agents.list().into_iter().map(NodeAgent::from).collect();
    Ok(Json(NodeAgents { interval_ms, agents }))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct CreateAgentToken {
    /// The one node that may use it; any, unless one is named.
    node: Option<String>,
    /// For how long it may be used: an hour, unless said; a week at most.
    ttl_seconds: Option<u64>,
}

/// A token, the one time that it is shown.
#[derive(Serialize, ToSchema)]
struct AgentToken {
    /// By which it is listed and revoked.
    id: String,
    /// What a node enrols with. It is not kept and cannot be asked for again.
    token: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// RFC 3339.
    #[schema(value_type = String)]
    expires: Timestamp,
}

/// Make a token with which a node enrols; it is answered this once
#[utoipa::path(
    post, path = "/guard/agents/token", tag = "guard", request_body = CreateAgentToken,
    responses((status = 201, description = "Made", body = AgentToken))
)]
async fn create_agent_token(
    State(api): State<Api>,
    caller: Caller,
    Body(CreateAgentToken { node, ttl_seconds }): Body<CreateAgentToken>,
) -> Result<(StatusCode, Json<AgentToken>), Problem> {
    caller.may_in_fleet(TOKENS, Verb::Create)?;
    let ttl = ttl_seconds.map_or(DEFAULT_TTL, Duration::from_secs);
    let by = &caller.who.user;
    let made = authority(&api)?.make_token(node.as_deref(), ttl, by, caller.deadline).await;
    let MadeToken { id, token, record } = made.map_err(|error| match &error {
        NotMade::Refused(Refused::NotYet) => not_yet(error.to_string()),
        NotMade::Refused(_) => Problem::invalid(error.to_string()),
        NotMade::TooMany => Problem::new(ErrorCode::Conflict, error.to_string()),
        NotMade::Store(error) => error.into(),
    })?;
    caller.trail.detail("id", id.as_str());
    caller.trail.detail("expires", record.until.to_string());
    let token = token.expose().to_owned();
    Ok((StatusCode::CREATED, Json(AgentToken { id, token, node, expires: record.until })))
}

/// A token that a node may enrol with.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AgentTokenInfo {
    id: String,
    /// The one node that may use it; any, if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// The user who made it.
    created_by: String,
    /// RFC 3339.
    #[schema(value_type = String)]
    created: Timestamp,
    #[schema(value_type = String)]
    expires: Timestamp,
}

#[derive(Serialize, ToSchema)]
struct AgentTokens {
    tokens: Vec<AgentTokenInfo>,
}

/// The tokens that a node may enrol with, oldest first; their secrets are not kept
#[utoipa::path(
    get, path = "/guard/agents/tokens", tag = "guard",
    responses((status = 200, description = "Oldest first", body = AgentTokens))
)]
async fn agent_tokens(
    State(api): State<Api>,
    caller: Caller,
) -> Result<Json<AgentTokens>, Problem> {
    caller.may_in_fleet(TOKENS, Verb::List)?;
    let tokens = authority(&api)?.tokens();
    let tokens = tokens.ok_or_else(|| not_yet(Refused::NotYet.to_string()))?;
    let mut tokens: Vec<_> = tokens
        .into_iter()
        .map(|(id, TokenRecord { node, made, until, by })| AgentTokenInfo {
            id,
            node,
            created_by: by,
            created: made,
            expires: until,
        })
        .collect();
    tokens.sort_by(|a, b| (a.created, &a.id).cmp(&(b.created, &b.id)));
    Ok(Json(AgentTokens { tokens }))
}

/// Refuse a token from now on
///
/// What nodes were given for it holds; revoke them, too, if they are not to be trusted.
#[utoipa::path(
    delete, path = "/guard/agents/tokens/{name}", tag = "guard",
    params(("name" = String, Path, description = "The token's id")),
    responses((status = 204, description = "Revoked"))
)]
async fn revoke_agent_token(
    State(api): State<Api>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    caller.may_in_fleet(TOKENS, Verb::Delete)?;
    let revoked = authority(&api)?.revoke_token(&id, caller.deadline).await;
    revoked.map_err(|error| match &error {
        NotRevokedToken::Unknown(_) => Problem::new(ErrorCode::NotFound, error.to_string()),
        NotRevokedToken::NotYet => not_yet(error.to_string()),
        NotRevokedToken::Store(error) => error.into(),
    })?;
    Ok(StatusCode::NO_CONTENT)
}

/// Refuse what a node was given until now: its certificate, and tokens
///
/// At once, also what it has open. A token that is made later lets it in again.
#[utoipa::path(
    post, path = "/guard/agents/{node}/revoke", tag = "guard",
    params(("node" = String, Path, description = "The node's name")),
    responses((status = 204, description = "Revoked"))
)]
async fn revoke_agent(
    State(api): State<Api>,
    caller: Caller,
    Path(node): Path<String>,
) -> Result<StatusCode, Problem> {
    caller.may_in_fleet(AGENTS, Verb::Delete)?;
    let revoked = authority(&api)?.revoke(&node, caller.deadline).await;
    revoked.map_err(|error| match &error {
        NotRevoked::BadName => Problem::invalid(error.to_string()),
        NotRevoked::NotYet => not_yet(error.to_string()),
        NotRevoked::Store(error) => error.into(),
    })?;
    Ok(StatusCode::NO_CONTENT)
}

fn not_yet(why: String) -> Problem {
    Problem::new(ErrorCode::NotReady, why).come_back(Duration::from_secs(1))
}

fn desk(api: &Api) -> Result<&AgentsApi, Problem> {
    let none = || Problem::new(ErrorCode::NotFound, "this process does not listen to agents");
    api.agents.as_ref().ok_or_else(none)
}

fn authority(api: &Api) -> Result<&Authority, Problem> {
    let none = || {
        let detail = "agents speak to this process without TLS, on loopback, and need no token; with \
                      --agents-listen beyond loopback they do";
        Problem::new(ErrorCode::NotFound, detail)
    };
    desk(api)?.authority.as_ref().ok_or_else(none)
}

#[cfg(test)]
mod tests;
