//! Users.

use access::{NewUser, Secret, USERS, UserChange, UserView, Verb};
use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::pipeline::ClientAddress;
use super::{Api, Body, Caller, ErrorCode, Problem, Route, Routes};

pub(crate) fn routes() -> Routes {
    Routes::default()
        .with(Route::read(), routes!(users))
        .with(
            Route::write(Verb::Create, USERS).named_by("name").recording(&["roles"]),
            routes!(create_user),
        )
        .with(Route::read(), routes!(user))
        .with(
            Route::write(Verb::Update, USERS).recording(&["roles", "disabled"]),
            routes!(change_user),
        )
        .with(Route::write(Verb::Delete, USERS), routes!(delete_user))
        .with(Route::write(Verb::Update, USERS).recording(&["revokeTokens"]), routes!(set_password))
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct User {
    name: String,
    roles: Vec<String>,
    disabled: bool,
    has_password: bool,
    /// The identity provider that vouches for them, while they are logged in.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    /// What is wrong with it, for a person to mend.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
}

impl From<UserView> for User {
    fn from(view: UserView) -> Self {
        let UserView { name, roles, disabled, has_password, provider, problems } = view;
        Self { name, roles, disabled, has_password, provider, problems }
    }
}

#[derive(Serialize, ToSchema)]
struct Users {
    users: Vec<User>,
}

/// Every user
#[utoipa::path(
    get, path = "/users", tag = "access",
    responses((status = 200, description = "By name", body = Users))
)]
async fn users(State(api): State<Api>, caller: Caller) -> Result<Json<Users>, Problem> {
    let users = api.access.administer(&caller.who).users()?;
    Ok(Json(Users { users: users.into_iter().map(User::from).collect() }))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CreateUser {
    name: String,
    #[serde(default)]
    roles: Vec<String>,
    /// Without one, the user has tokens only.
    password: Option<String>,
}

/// Make a user
#[utoipa::path(
    post, path = "/users", tag = "access", request_body = CreateUser,
    responses((status = 201, description = "Made", body = User))
)]
async fn create_user(
    State(api): State<Api>,
    caller: Caller,
    Body(new): Body<CreateUser>,
) -> Result<(StatusCode, Json<User>), Problem> {
    let CreateUser { name, roles, password } = new;
    let new = NewUser { name, roles, password: password.map(Secret::new) };
    let administration = api.access.administer(&caller.who);
    let user = administration.create_user(new, caller.deadline).await?;
    caller.trail.after(&administration.user_for_audit(&user.name));
    Ok((StatusCode::CREATED, Json(user.into())))
}

/// One user; oneself needs no permission
#[utoipa::path(
    get, path = "/users/{name}", tag = "access",
    responses((status = 200, description = "The user", body = User))
)]
async fn user(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<User>, Problem> {
    let administration = api.access.administer(&caller.who);
    let found = if *name == *caller.who.user {
        administration.own()
    } else {
        administration.users()?.into_iter().find(|user| user.name == name)
    };
    let found =
        found.ok_or_else(|| Problem::new(ErrorCode::NotFound, format!("there is no user {name}")));
    Ok(Json(found?.into()))
}

/// What is left out stays as it is.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ChangeUser {
    roles: Option<Vec<String>>,
    disabled: Option<bool>,
}

/// Give a user other roles, disable or enable
#[utoipa::path(
    patch, path = "/users/{name}", tag = "access", request_body = ChangeUser,
    responses((status = 200, description = "As it is now", body = User))
)]
async fn change_user(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
    Body(ChangeUser { roles, disabled }): Body<ChangeUser>,
) -> Result<Json<User>, Problem> {
    let change = UserChange { roles, disabled };
    let administration = api.access.administer(&caller.who);
    caller.trail.before(&administration.user_for_audit(&name));
    let user = administration.update_user(&name, change, caller.deadline).await?;
    caller.trail.after(&administration.user_for_audit(&name));
    Ok(Json(user.into()))
}

/// Remove a user; sessions and tokens go too
#[utoipa::path(
    delete, path = "/users/{name}", tag = "access",
    responses((status = 204, description = "Gone"))
)]
async fn delete_user(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let administration = api.access.administer(&caller.who);
    caller.trail.before(&administration.user_for_audit(&name));
    administration.delete_user(&name, caller.deadline).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SetPassword {
    password: String,
    /// To change one's own without the permission to change users.
    present: Option<String>,
    /// Revoke the user's tokens as well, as after a theft. Otherwise they stay as they are.
    #[serde(default)]
    revoke_tokens: bool,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct PasswordSet {
    tokens_revoked: usize,
    /// Tokens that the user still has.
    tokens_kept: usize,
}

/// Set a password; ends the user's sessions, and on request the tokens
#[utoipa::path(
    put, path = "/users/{name}/password", tag = "access", request_body = SetPassword,
    responses((status = 200, description = "Set", body = PasswordSet))
)]
async fn set_password(
    State(api): State<Api>,
    caller: Caller,
    ClientAddress(from): ClientAddress,
    Path(name): Path<String>,
    Body(SetPassword { password, present, revoke_tokens }): Body<SetPassword>,
) -> Result<Json<PasswordSet>, Problem> {
    let administration = api.access.administer(&caller.who);
    caller.trail.detail("change", "password");
    let password = Secret::new(password);
    match present {
        Some(present) if *name == *caller.who.user => {
            let present = Secret::new(present);
            administration.change_own_password(present, password, from, caller.deadline).await?;
        }
        _ => administration.set_password(&name, password, caller.deadline).await?,
    }
    let tokens_revoked = if revoke_tokens {
        administration.revoke_tokens_of(&name, caller.deadline).await?
    } else {
        0
    };
    let tokens_kept = administration.count_tokens(&name);
    caller.trail.detail("tokensRevoked", tokens_revoked);
    caller.trail.detail("tokensKept", tokens_kept);
    Ok(Json(PasswordSet { tokens_revoked, tokens_kept }))
}
