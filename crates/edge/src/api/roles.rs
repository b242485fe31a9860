//! Roles.

use access::{ROLES, RoleView, Verb};
use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use objects::kinds::AccessRoleSpec;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::{Api, Body, Caller, ErrorCode, Problem, Route, Routes};

pub(crate) fn routes() -> Routes {
    Routes::default()
        .with(Route::read(), routes!(roles))
        .with(
            Route::write(Verb::Create, ROLES).named_by("name").recording(&["allow", "deny"]),
            routes!(create_role),
        )
        .with(Route::write(Verb::Update, ROLES).recording(&["allow", "deny"]), routes!(put_role))
        .with(Route::write(Verb::Delete, ROLES), routes!(delete_role))
}

/// Globs (`*` and `?`), each matched against the whole word.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    /// `-`, which no glob matches, is the fleet itself.
    clusters: Vec<String>,
    /// A cluster-scoped resource is in the namespace `-`.
    namespaces: Vec<String>,
    /// As kubectl writes them: `pods`, `deployments.apps`.
    resources: Vec<String>,
    /// get, list, watch, create, update, delete, scale, restart, cordon, drain, log, exec, forward.
    verbs: Vec<String>,
}

impl From<objects::kinds::Rule> for Rule {
    fn from(rule: objects::kinds::Rule) -> Self {
        let objects::kinds::Rule { clusters, namespaces, resources, verbs } = rule;
        Self { clusters, namespaces, resources, verbs }
    }
}

impl From<Rule> for objects::kinds::Rule {
    fn from(Rule { clusters, namespaces, resources, verbs }: Rule) -> Self {
        Self { clusters, namespaces, resources, verbs }
    }
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Role {
    name: String,
    /// Always there, and not to be changed.
    built_in: bool,
    allow: Vec<Rule>,
    /// Wins over what any role allows.
    deny: Vec<Rule>,
    /// What of it cannot be read, or never applies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
}

impl From<RoleView> for Role {
    fn from(RoleView { name, built_in, rules, problems }: RoleView) -> Self {
        let own = |rules: Vec<objects::kinds::Rule>| rules.into_iter().map(Rule::from).collect();
        Self { name, built_in, allow: own(rules.allow), deny: own(rules.deny), problems }
    }
}

#[derive(Serialize, ToSchema)]
struct Roles {
    roles: Vec<Role>,
}

/// Every role, the built-in ones too
#[utoipa::path(
    get, path = "/roles", tag = "access",
    responses((status = 200, description = "By name", body = Roles))
)]
async fn roles(State(api): State<Api>, caller: Caller) -> Result<Json<Roles>, Problem> {
    let roles = api.access.administer(&caller.who).roles()?;
    Ok(Json(Roles { roles: roles.into_iter().map(Role::from).collect() }))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Rules {
    #[serde(default)]
    allow: Vec<Rule>,
    #[serde(default)]
    deny: Vec<Rule>,
}

impl From<Rules> for AccessRoleSpec {
    fn from(Rules { allow, deny }: Rules) -> Self {
        let stored = |rules: Vec<Rule>| rules.into_iter().map(Into::into).collect();
        Self { allow: stored(allow), deny: stored(deny) }
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CreateRole {
    name: String,
    #[serde(default)]
    allow: Vec<Rule>,
    #[serde(default)]
    deny: Vec<Rule>,
}

/// Make a role
#[utoipa::path(
    post, path = "/roles", tag = "access", request_body = CreateRole,
    responses((status = 201, description = "Made", body = Role))
)]
async fn create_role(
    State(api): State<Api>,
    caller: Caller,
    Body(CreateRole { name, allow, deny }): Body<CreateRole>,
) -> Result<(StatusCode, Json<Role>), Problem> {
    let administration = api.access.administer(&caller.who);
    administration.create_role(&name, Rules { allow, deny }.into(), caller.deadline).await?;
    caller.trail.after(&administration.role_for_audit(&name));
    Ok((StatusCode::CREATED, Json(shown(&api, &caller, &name)?)))
}

/// Make a role, or make it what is said here
#[utoipa::path(
    put, path = "/roles/{name}", tag = "access", request_body = Rules,
    responses((status = 200, description = "As it is now", body = Role))
)]
async fn put_role(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
    Body(rules): Body<Rules>,
) -> Result<Json<Role>, Problem> {
    let administration = api.access.administer(&caller.who);
    let rules = AccessRoleSpec::from(rules);
    let known = administration.roles()?.iter().any(|role| role.name == name);
    caller.trail.before(&administration.role_for_audit(&name));
    if known {
        administration.update_role(&name, rules, caller.deadline).await?;
    } else {
        administration.create_role(&name, rules, caller.deadline).await?;
    }
    caller.trail.after(&administration.role_for_audit(&name));
    Ok(Json(shown(&api, &caller, &name)?))
}

/// Remove a role that nobody has
#[utoipa::path(
    delete, path = "/roles/{name}", tag = "access",
    responses((status = 204, description = "Gone"))
)]
async fn delete_role(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let administration = api.access.administer(&caller.who);
    caller.trail.before(&administration.role_for_audit(&name));
    administration.delete_role(&name, caller.deadline).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn shown(api: &Api, caller: &Caller, name: &str) -> Result<Role, Problem> {
    let roles = api.access.administer(&caller.who).roles()?;
    let role = roles.into_iter().find(|role| role.name == name);
    // Written, and not told yet by our own watch.
    role.map(Role::from).ok_or_else(|| {
        Problem::new(
            ErrorCode::NotReady,
            format!("the role {name} is written, and not in force here yet"),
        )
    })
}
