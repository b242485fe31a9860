//! Logging in and out, and who one is.

use access::{AccessRequest, AuthMethod, OpenedSession, Reach, Secret, Verb};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use stallproof::Deadline;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::pipeline::{self, ClientAddress};
use super::roles::Rule;
use super::{Api, Body, Caller, Problem, Route, Routes, logins};

/// Two thousand questions.
const QUESTIONS: usize = 512 << 10;

pub(crate) fn routes() -> Routes {
    Routes::default()
        // Strangers cannot fill the audit: their failures are folded (`logins.rs`).
        .with(Route::open(), routes!(login))
        .with(Route::write(Verb::Delete, "sessions"), routes!(logout))
        .with(Route::read(), routes!(me))
        .with(Route::read().question().body(QUESTIONS), routes!(can))
}

/// A user and the password, or the code of a login link.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Login {
    user: Option<String>,
    password: Option<String>,
    code: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct LoggedIn {
    user: String,
    /// To be sent as `x-csrf-token` with whatever changes something.
    csrf: String,
}

/// Log in: opens a session, answered as a cookie
#[utoipa::path(
    post, path = "/login", tag = "access", request_body = Login, security(()),
    responses((status = 200, description = "Logged in; the cookie is set", body = LoggedIn))
)]
async fn login(
    State(api): State<Api>,
    ClientAddress(from): ClientAddress,
    Extension(deadline): Extension<Deadline>,
    Body(login): Body<Login>,
) -> Result<Response, Problem> {
    let (user, method) = (login.user.clone(), logins::method(login.code.is_some()));
    let opened = match (login.user, login.password, login.code) {
        (Some(user), Some(password), None) => {
            api.access.login(&user, Secret::new(password), from, deadline).await
        }
        (None, None, Some(code)) => api.access.redeem(&code, from),
        _ => return Err(Problem::invalid("send `user` and `password`, or the `code` of a link")),
    };
    // Not as whom: people type passwords into the wrong field.
    let opened = opened.inspect_err(|why| tracing::warn!(%from, %why, "login refused"));
    logins::record(&api, from, method, user.as_deref(), &opened)?;
    let OpenedSession { user, cookie, csrf, .. } = opened?;
    tracing::info!(%user, %from, "logged in");
    let logged_in = LoggedIn { user: user.to_string(), csrf: csrf.expose().to_owned() };
    Ok(with_cookie(Json(logged_in), Some(&cookie), api.serving.secure))
}

/// Log out: ends the session of the cookie
#[utoipa::path(
    post, path = "/logout", tag = "access",
    responses((status = 204, description = "Logged out; the cookie is taken back"))
)]
async fn logout(State(api): State<Api>, _caller: Caller, headers: HeaderMap) -> Response {
    if let Some(cookie) = pipeline::cookie(&headers) {
        api.access.logout(cookie);
    }
    with_cookie(StatusCode::NO_CONTENT, None, api.serving.secure)
}

#[derive(Serialize, ToSchema)]
struct Me {
    user: String,
    roles: Vec<String>,
    /// How it was shown who asks: `local`, `token/…` or `session/…`.
    via: String,
    /// Of a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    csrf: Option<String>,
    /// What the roles allow and deny, role by role; a deny wins over any allow.
    permissions: Vec<RolePermissions>,
}

#[derive(Serialize, ToSchema)]
struct RolePermissions {
    role: String,
    allow: Vec<Rule>,
    deny: Vec<Rule>,
}

/// Who one is, and what one may do
#[utoipa::path(
    get, path = "/me", tag = "access",
    responses((status = 200, description = "Who asks", body = Me))
)]
async fn me(State(api): State<Api>, caller: Caller, headers: HeaderMap) -> Json<Me> {
    let own = api.access.administer(&caller.who).own();
    let csrf = matches!(caller.who.via, AuthMethod::Session(_))
        .then(|| pipeline::cookie(&headers))
        .flatten()
        .map(|cookie| access::csrf_of(cookie).expose().to_owned());
    let rules = |rules: &[objects::kinds::Rule]| rules.iter().cloned().map(Rule::from).collect();
    let permissions = caller.permissions.roles().map(|role| RolePermissions {
        role: role.name().to_string(),
        allow: rules(&role.spec().allow),
        deny: rules(&role.spec().deny),
    });
    Json(Me {
        user: caller.who.user.to_string(),
        roles: own.map(|own| own.roles).unwrap_or_default(),
        via: caller.who.via.to_string(),
        csrf,
        permissions: permissions.collect(),
    })
}

/// Questions in one request: a page with a thousand rows asks of each once.
const ASKS: usize = 2000;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CanAsks {
    /// At most 2000.
    asks: Vec<CanAsk>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CanAsk {
    /// `-` is the fleet itself.
    cluster: String,
    /// Absent: of a resource without namespaces. `*`: in at least one namespace.
    namespace: Option<String>,
    /// As roles name it: `pods`, `deployments.apps`.
    resource: String,
    /// get, list, watch, create, update, delete, scale, restart, cordon, drain, log, exec, forward.
    #[schema(value_type = String)]
    verb: Verb,
}

#[derive(Serialize, ToSchema)]
struct CanAnswers {
    /// In the order of the questions.
    answers: Vec<bool>,
}

/// Whether one may
///
/// Many questions at once: which controls a page shows. What is refused here is refused there, and the
/// other way round.
#[utoipa::path(
    post, path = "/me/can", tag = "access", request_body = CanAsks,
    responses((status = 200, description = "Yes or no, each", body = CanAnswers))
)]
async fn can(
    caller: Caller,
    Body(CanAsks { asks }): Body<CanAsks>,
) -> Result<Json<CanAnswers>, Problem> {
    if asks.len() > ASKS {
        return Err(Problem::invalid(format!(
            "these are {} questions; ask {ASKS} at most",
            asks.len()
        )));
    }
    let answer = |CanAsk { cluster, namespace, resource, verb }: &CanAsk| match namespace.as_deref()
    {
        Some("*") => caller.permissions.reach(cluster, resource, *verb) != Reach::Nowhere,
        namespace => {
            let ask = AccessRequest { cluster, namespace, resource, verb: *verb };
            access::decide(&caller.permissions, &ask).is_allowed()
        }
    };
    Ok(Json(CanAnswers { answers: asks.iter().map(answer).collect() }))
}

fn with_cookie(answer: impl IntoResponse, session: Option<&Secret>, secure: bool) -> Response {
    let mut response = answer.into_response();
    if let Ok(cookie) = HeaderValue::from_str(&pipeline::set_cookie(session, secure)) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
