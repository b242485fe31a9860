//! API tokens.

use access::{NewToken, TOKENS, TokenView, Verb};
use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::{Api, Body, Caller, Problem, Route, Routes};

pub(crate) fn routes() -> Routes {
    Routes::default()
        .with(Route::read(), routes!(tokens))
        .with(
            Route::write(Verb::Create, TOKENS).recording(&["user", "expires", "description"]),
            routes!(create_token),
        )
        .with(Route::write(Verb::Delete, TOKENS), routes!(revoke_token))
}

/// Never with the secret: that is not kept.
#[derive(Serialize, ToSchema)]
struct Token {
    name: String,
    user: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// RFC 3339; none never expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    expired: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

impl From<TokenView> for Token {
    fn from(view: TokenView) -> Self {
        let TokenView { id: name, user, description, expires, expired, problem } = view;
        Self { name, user, description, expires, expired, problem }
    }
}

#[derive(Serialize, ToSchema)]
struct Tokens {
    tokens: Vec<Token>,
}

/// One's own tokens, and all for who may list them
#[utoipa::path(
    get, path = "/tokens", tag = "access",
    responses((status = 200, description = "By user and name", body = Tokens))
)]
async fn tokens(State(api): State<Api>, caller: Caller) -> Json<Tokens> {
    let tokens = api.access.administer(&caller.who).tokens();
    Json(Tokens { tokens: tokens.into_iter().map(Token::from).collect() })
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CreateToken {
    /// Oneself, unless somebody else is named.
    user: Option<String>,
    /// RFC 3339, or `never`; 90 days from now, unless said.
    expires: Option<String>,
    /// What it is for.
    description: Option<String>,
}

/// How long a token lives unless somebody says otherwise.
const LIFETIME: SignedDuration = SignedDuration::from_hours(90 * 24);

/// When a token is to expire; `None` is never, which has to be said.
fn expiry(asked: Option<&str>) -> Result<Option<Timestamp>, Problem> {
    match asked {
        None => Ok(Some(Timestamp::now() + LIFETIME)),
        Some("never") => Ok(None),
        Some(time) => time.parse().map(Some).map_err(|_| {
            Problem::invalid(format!("expires={time:?} is neither a time (RFC 3339) nor `never`"))
        }),
    }
}

/// A token, the one time that its secret is there.
#[derive(Serialize, ToSchema)]
struct Created {
    name: String,
    user: String,
    /// The secret. It is not kept and cannot be asked for again.
    token: String,
    /// RFC 3339, or `never`.
    expires: String,
}

/// Make a token; its secret is answered this once
#[utoipa::path(
    post, path = "/tokens", tag = "access", request_body = CreateToken,
    responses((status = 201, description = "Made", body = Created))
)]
async fn create_token(
    State(api): State<Api>,
    caller: Caller,
    Body(CreateToken { user, expires, description }): Body<CreateToken>,
) -> Result<(StatusCode, Json<Created>), Problem> {
    let user = user.unwrap_or_else(|| caller.who.user.to_string());
    let expires = expiry(expires.as_deref())?;
    let administration = api.access.administer(&caller.who);
    let NewToken { id: name, secret, expires } =
        administration.create_token(&user, expires, description, caller.deadline).await?;
    let token = secret.expose().to_owned();
    caller.trail.named(&name);
    caller.trail.after(&administration.token_for_audit(&name));
    let expires = expires.map_or_else(|| "never".to_owned(), |at| at.to_string());
    Ok((StatusCode::CREATED, Json(Created { name, user, token, expires })))
}

/// Revoke a token: the next request with it is refused
#[utoipa::path(
    delete, path = "/tokens/{name}", tag = "access",
    responses((status = 204, description = "Revoked"))
)]
async fn revoke_token(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let administration = api.access.administer(&caller.who);
    caller.trail.before(&administration.token_for_audit(&name));
    administration.revoke_token(&name, caller.deadline).await?;
    Ok(StatusCode::NO_CONTENT)
}
