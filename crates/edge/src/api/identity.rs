//! Identity providers, and the mappings of their users to roles.

use access::oidc::CheckStep;
use access::{
    IDENTITY_PROVIDERS, MappingView, ProviderChange, ProviderView, ROLE_MAPPINGS, Secret, Verb,
};
use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use objects::kinds::{ClientSecret, IdentityProviderSpec, RoleMappingSpec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::{Api, Body, Caller, Problem, Route, Routes};

/// A provider with the certificates of its authorities.
const LARGEST: usize = 128 << 10;

pub(crate) fn routes() -> Routes {
    Routes::default()
        .with(Route::read(), routes!(providers))
        .with(Route::write(Verb::Update, IDENTITY_PROVIDERS).body(LARGEST), routes!(put_provider))
        .with(Route::write(Verb::Delete, IDENTITY_PROVIDERS), routes!(delete_provider))
        .with(Route::write(Verb::Update, IDENTITY_PROVIDERS), routes!(test_provider))
        .with(Route::read(), routes!(mappings))
        .with(Route::write(Verb::Update, ROLE_MAPPINGS), routes!(put_mapping))
        .with(Route::write(Verb::Delete, ROLE_MAPPINGS), routes!(delete_mapping))
}

/// An OpenID provider that users log in with.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Provider {
    /// The issuer, as its tokens name it.
    issuer: String,
    client_id: String,
    /// The Secret with the client's secret, in Fairlead's namespace. The secret itself is never shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_secret: Option<SecretKey>,
    /// Scopes asked for beside `openid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scopes: Option<Vec<String>>,
    /// The claim that is the user's name here; `email` unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user_claim: Option<String>,
    /// The claim with the user's groups; `groups` unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    groups_claim: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    redirect_uri: Option<String>,
    /// Certificate authorities (PEM).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ca: Option<String>,
    /// How often the provider is asked about a user who is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recheck_seconds: Option<u32>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SecretKey {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

impl From<IdentityProviderSpec> for Provider {
    fn from(spec: IdentityProviderSpec) -> Self {
        let secret = |ClientSecret { name, key }| SecretKey { name, key: Some(key) };
        Self {
            issuer: spec.issuer,
            client_id: spec.client_id,
            client_secret: spec.client_secret.map(secret),
            scopes: Some(spec.scopes),
            user_claim: Some(spec.user_claim),
            groups_claim: Some(spec.groups_claim),
            redirect_uri: spec.redirect_uri,
            ca: spec.ca,
            recheck_seconds: Some(spec.recheck_seconds),
        }
    }
}

impl Provider {
    /// The object, with the defaults of its kind for what is left out.
    fn spec(&self) -> Result<IdentityProviderSpec, Problem> {
        let spec = serde_json::to_value(self).and_then(serde_json::from_value);
        spec.map_err(|error| Problem::invalid(format!("the provider cannot be read: {error}")))
    }
}

#[derive(Serialize, ToSchema)]
struct NamedProvider {
    name: String,
    #[serde(flatten)]
    provider: Provider,
}

#[derive(Serialize, ToSchema)]
struct Providers {
    providers: Vec<NamedProvider>,
}

/// Every identity provider, without secrets
#[utoipa::path(
    get, path = "/oidc/providers", tag = "access",
    responses((status = 200, description = "By name", body = Providers))
)]
async fn providers(State(api): State<Api>, caller: Caller) -> Result<Json<Providers>, Problem> {
    let providers = api.access.administer(&caller.who).providers()?;
    let named = |ProviderView { name, spec }| NamedProvider { name, provider: spec.into() };
    Ok(Json(Providers { providers: providers.into_iter().map(named).collect() }))
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PutProvider {
    provider: Provider,
    /// The client's secret, to be kept in a Secret of Fairlead's.
    #[schema(value_type = Option<String>)]
    secret: Option<Secret>,
}

/// Make an identity provider, or make it what is said here
#[utoipa::path(
    put, path = "/oidc/providers/{name}", tag = "access", request_body = PutProvider,
    responses((status = 204, description = "As it is said"))
)]
async fn put_provider(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
    Body(PutProvider { provider, secret }): Body<PutProvider>,
) -> Result<StatusCode, Problem> {
    let change = ProviderChange { spec: provider.spec()?, client_secret: secret };
    let administration = api.access.administer(&caller.who);
    administration.put_provider(&name, change, caller.deadline).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Remove an identity provider; its users are logged out
#[utoipa::path(
    delete, path = "/oidc/providers/{name}", tag = "access",
    responses((status = 204, description = "Gone"))
)]
async fn delete_provider(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    api.access.administer(&caller.who).delete_provider(&name, caller.deadline).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Serialize, ToSchema)]
struct ProviderTest {
    ok: bool,
    steps: Vec<ProviderStep>,
}

#[derive(Serialize, ToSchema)]
struct ProviderStep {
    step: &'static str,
    ok: bool,
    /// What was found, or what is wrong and what to do.
    says: String,
}

/// Try an identity provider step by step, as far as that goes without a user
#[utoipa::path(
    post, path = "/oidc/providers/{name}/test", tag = "access",
    responses((status = 200, description = "How each step went", body = ProviderTest))
)]
async fn test_provider(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<ProviderTest>, Problem> {
    caller.may_in_fleet(IDENTITY_PROVIDERS, Verb::Update)?;
    let steps = api.access.check_provider(&name, caller.deadline).await?;
    let step = |CheckStep { step, ok, says }| ProviderStep { step, ok, says };
    let steps: Vec<_> = steps.into_iter().map(step).collect();
    Ok(Json(ProviderTest { ok: steps.iter().all(|step| step.ok), steps }))
}

/// Gives roles to users of a provider by what it says of them.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Mapping {
    provider: String,
    /// The claim that is looked at; the provider's groups claim unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    claim: Option<String>,
    /// One of these.
    values: Vec<String>,
    roles: Vec<String>,
}

#[derive(Serialize, ToSchema)]
struct NamedMapping {
    name: String,
    #[serde(flatten)]
    mapping: Mapping,
    /// What is wrong with it, for a person to mend.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
}

#[derive(Serialize, ToSchema)]
struct Mappings {
    mappings: Vec<NamedMapping>,
}

/// Every mapping of groups to roles
#[utoipa::path(
    get, path = "/oidc/mappings", tag = "access",
    responses((status = 200, description = "By name", body = Mappings))
)]
async fn mappings(State(api): State<Api>, caller: Caller) -> Result<Json<Mappings>, Problem> {
    let mappings = api.access.administer(&caller.who).mappings()?;
    let named = |MappingView { name, spec, problems }| {
        let RoleMappingSpec { provider, claim, values, roles } = spec;
        NamedMapping { name, mapping: Mapping { provider, claim, values, roles }, problems }
    };
    Ok(Json(Mappings { mappings: mappings.into_iter().map(named).collect() }))
}

/// Make a mapping, or make it what is said here; nobody grants more than they have
#[utoipa::path(
    put, path = "/oidc/mappings/{name}", tag = "access", request_body = Mapping,
    responses((status = 204, description = "As it is said"))
)]
async fn put_mapping(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
    Body(Mapping { provider, claim, values, roles }): Body<Mapping>,
) -> Result<StatusCode, Problem> {
    let spec = RoleMappingSpec { provider, claim, values, roles };
    api.access.administer(&caller.who).put_mapping(&name, spec, caller.deadline).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Remove a mapping
#[utoipa::path(
    delete, path = "/oidc/mappings/{name}", tag = "access",
    responses((status = 204, description = "Gone"))
)]
async fn delete_mapping(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    api.access.administer(&caller.who).delete_mapping(&name, caller.deadline).await?;
    Ok(StatusCode::NO_CONTENT)
}
