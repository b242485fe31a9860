//! Logging in other than with a password: browsers with an identity provider, and command lines.
//!
//! Contract: routes that wait for a provider have a gate of their own, so that one that hangs keeps nobody
//! from logging in with a password. Who asks from where is in the log; secrets are not.

use std::net::IpAddr;
use std::time::Duration;

use access::audit::LoginFailure;
use access::oidc::{DevicePoll, OidcAnswer, OidcError, OidcStart, callback_path};
use access::{AuthMethod, CliCredential, Identity, OpenedSession, Secret};
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde::{Deserialize, Serialize};
use stallproof::Deadline;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::console::page;
use super::pages::escape;
use super::pipeline::{self, ClientAddress};
use super::{Api, Body, Problem, Query, Route, Routes, affinity};

/// Ties a login to the browser that began it.
pub(crate) const COOKIE: &str = "fairlead-oidc";

pub(crate) fn routes() -> Routes {
    Routes::default()
        .with(Route::open(), routes!(methods))
        .with(Route::open_at_provider(), routes!(begin_device))
        .with(Route::open_at_provider(), routes!(poll_device))
        .with(Route::open(), routes!(cli_login))
        .with(Route::open(), routes!(cli_refresh))
        .with(Route::open(), routes!(cli_logout))
}

/// What browsers are sent to, outside of the API.
pub(crate) fn pages() -> Routes {
    Routes::default()
        .with(Route::open(), routes!(methods_page))
        .with(Route::open_at_provider(), routes!(start))
        .with(Route::open_at_provider(), routes!(callback))
}

/// How one can log in.
#[derive(Serialize, ToSchema)]
struct LoginMethods {
    /// With the name and password of a user of Fairlead's own.
    password: bool,
    oidc: Vec<OidcMethod>,
}

#[derive(Serialize, ToSchema)]
struct OidcMethod {
    name: String,
    /// Where a browser begins.
    start: String,
}

/// How one can log in
#[utoipa::path(
    get, path = "/auth/methods", tag = "access", security(()),
    responses((status = 200, description = "Password, and identity providers by name", body = LoginMethods))
)]
async fn methods(State(api): State<Api>) -> Json<LoginMethods> {
    let method = |name: String| OidcMethod { start: format!("/auth/oidc/{name}/start"), name };
    let oidc = api.access.identity_providers().into_iter().map(method).collect();
    Json(LoginMethods { password: true, oidc })
}

#[utoipa::path(get, path = "/auth/methods")]
async fn methods_page(state: State<Api>) -> Json<LoginMethods> {
    methods(state).await
}

#[utoipa::path(get, path = "/auth/oidc/{provider}/start")]
async fn start(
    State(api): State<Api>,
    Extension(deadline): Extension<Deadline>,
    Path(provider): Path<String>,
    headers: HeaderMap,
) -> Response {
    let redirect_uri = own_callback(&api, &headers, &provider);
    match api.access.begin_oidc(&provider, &redirect_uri, deadline).await {
        Ok(OidcStart { location, cookie, lasts }) => {
            let cookie = bound_cookie(cookie.expose(), lasts, api.serving.secure);
            redirect(&location, &[cookie])
        }
        Err(error) => refused(&error),
    }
}

#[derive(Debug, Deserialize)]
struct Answer {
    #[serde(default)]
    state: String,
    code: Option<Secret>,
    error: Option<String>,
    error_description: Option<String>,
    iss: Option<String>,
}

#[utoipa::path(get, path = "/auth/oidc/{provider}/callback")]
async fn callback(
    State(api): State<Api>,
    ClientAddress(from): ClientAddress,
    Extension(deadline): Extension<Deadline>,
    Path(provider): Path<String>,
    method: Method,
    Query(answer): Query<Answer>,
    headers: HeaderMap,
) -> Response {
    // What only looks whether there is a page must not use up the code.
    if method != Method::GET {
        return page(StatusCode::OK, "");
    }
    let redirect_uri = own_callback(&api, &headers, &provider);
    let Answer { state, code, error, error_description, iss: issuer } = answer;
    let answer = OidcAnswer { state, code, error, error_description, issuer };
    let cookie = pipeline::cookie_of(&headers, COOKIE).unwrap_or_default();
    let opened =
        api.access.finish_oidc(&provider, &redirect_uri, answer, cookie, from, deadline).await;
    match opened {
        Ok(OpenedSession { user, cookie, id, .. }) => {
            let who = Identity { user: user.clone(), via: AuthMethod::Session(id) };
            if let Err(error) = api.audit.login(&who, from, &format!("oidc/{provider}"), None) {
                api.access.logout(cookie.expose());
                let problem = Problem::from(error);
                return page(
                    problem.code.status(),
                    &format!("<p>{}</p>", escape(problem.detail())),
                );
            }
            tracing::info!(%user, %from, "logged in with an identity provider");
            let secure = api.serving.secure;
            let ours = pipeline::set_cookie(Some(&cookie), secure);
            redirect("/", &[ours, bound_cookie("", Duration::ZERO, secure)])
        }
        Err(error) => {
            tracing::warn!(%from, provider, why = %error, "login refused");
            api.audit.failed_login(failure(from));
            refused(&error)
        }
    }
}

/// A login that came to nothing. Who tried is not known.
fn failure(from: IpAddr) -> LoginFailure {
    LoginFailure { outcome: "refused", from: Some(from), user: None }
}

/// Records the login of a command line; one that cannot be recorded is undone.
fn record_cli(
    api: &Api,
    from: IpAddr,
    method: &str,
    credential: &CliCredential,
) -> Result<(), Problem> {
    let via = AuthMethod::Session(credential.session);
    let who = Identity { user: credential.user.clone(), via };
    Ok(api.audit.login(&who, from, method, None).inspect_err(|_| {
        api.access.logout_cli(credential.refresh.expose());
    })?)
}

/// The address of our callback, as the browser that asks knows it.
fn own_callback(api: &Api, headers: &HeaderMap, provider: &str) -> String {
    let scheme = if api.serving.secure { "https" } else { "http" };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    format!("{scheme}://{host}{}", callback_path(provider))
}

/// Lax: it has to come with the browser's return from the provider, and comes with nothing else.
fn bound_cookie(value: &str, lasts: Duration, secure: bool) -> String {
    let secure = if secure { "; Secure" } else { "" };
    let age = lasts.as_secs();
    format!("{COOKIE}={value}; Path=/auth/oidc; HttpOnly; SameSite=Lax; Max-Age={age}{secure}")
}

fn redirect(location: &str, cookies: &[String]) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    let Ok(location) = HeaderValue::from_str(location) else {
        return page(StatusCode::BAD_GATEWAY, "<p>The provider's address cannot be used.</p>");
    };
    response.headers_mut().insert(header::LOCATION, location);
    for cookie in cookies {
        if let Ok(cookie) = HeaderValue::from_str(cookie) {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
    }
    response
}

/// A browser is shown a page, which says what happened and where to go on.
fn refused(error: &OidcError) -> Response {
    let status = Problem::from(error.clone()).code.status();
    page(status, &format!("<p>{}.</p>\n<p><a href=\"/\">Back</a></p>", escape(&error.to_string())))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct BeginDevice {
    /// The identity provider; may be left out if there is only one.
    provider: Option<String>,
}

/// A code for a user to enter in a browser.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DeviceLogin {
    provider: String,
    /// To ask with whether the code was entered. It is a secret.
    handle: String,
    user_code: String,
    verification_uri: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    verification_uri_complete: Option<String>,
    /// How often to ask.
    interval_seconds: u64,
    expires_in_seconds: u64,
}

/// Begin the login of a command line with an identity provider
#[utoipa::path(
    post, path = "/auth/device", tag = "access", request_body = BeginDevice, security(()),
    responses((status = 200, description = "A code to be entered in a browser", body = DeviceLogin))
)]
async fn begin_device(
    State(api): State<Api>,
    ClientAddress(from): ClientAddress,
    Extension(deadline): Extension<Deadline>,
    Body(BeginDevice { provider }): Body<BeginDevice>,
) -> Result<Json<DeviceLogin>, Problem> {
    let provider = match provider {
        Some(provider) => provider,
        None => match api.access.identity_providers().as_slice() {
            [only] => only.clone(),
            [] => {
                let detail = "there is no identity provider here; log in with --user";
                return Err(Problem::invalid(detail));
            }
            several => {
                let several = several.join(", ");
                return Err(Problem::invalid(format!("say which identity provider: {several}")));
            }
        },
    };
    let begun = api.access.begin_device(&provider, from, deadline).await?;
    Ok(Json(DeviceLogin {
        provider: begun.provider,
        handle: affinity::at_home(&api, begun.handle.expose()),
        user_code: begun.user_code,
        verification_uri: begun.verification_uri,
        verification_uri_complete: begun.verification_uri_complete,
        interval_seconds: begun.interval.as_secs().max(1),
        expires_in_seconds: begun.lasts.as_secs(),
    }))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PollDevice {
    #[schema(value_type = String)]
    handle: Secret,
}

#[derive(Serialize, ToSchema)]
struct DeviceState {
    /// The code was not entered yet.
    pending: bool,
    #[serde(flatten)]
    #[schema(value_type = Option<CliTokens>)]
    tokens: Option<CliTokens>,
}

/// Ask whether the code was entered; then the tokens are answered, this once
#[utoipa::path(
    post, path = "/auth/device/poll", tag = "access", request_body = PollDevice, security(()),
    responses((status = 200, description = "Pending, or the tokens", body = DeviceState))
)]
async fn poll_device(
    State(api): State<Api>,
    ClientAddress(from): ClientAddress,
    Extension(deadline): Extension<Deadline>,
    Body(PollDevice { handle }): Body<PollDevice>,
) -> Result<Json<DeviceState>, Problem> {
    let handle = affinity::without_home(handle.expose());
    let polled = api.access.poll_device(handle, from, deadline).await;
    let polled = polled.inspect_err(|why| {
        tracing::warn!(%from, %why, "login refused");
        api.audit.failed_login(failure(from));
    })?;
    Ok(Json(match polled {
        DevicePoll::Pending => DeviceState { pending: true, tokens: None },
        DevicePoll::LoggedIn(credential) => {
            record_cli(&api, from, "oidc/device", &credential)?;
            tracing::info!(user = %credential.user, %from, "logged in with an identity provider");
            DeviceState { pending: false, tokens: Some(CliTokens::of(&api, &credential)) }
        }
    }))
}

/// The tokens of a command line.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct CliTokens {
    user: String,
    /// To ask with, as a bearer token.
    access: String,
    /// To be exchanged for the next two, once: who uses one twice is logged out.
    refresh: String,
    expires_in_seconds: u64,
}

impl CliTokens {
    fn of(api: &Api, credential: &CliCredential) -> Self {
        Self {
            user: credential.user.to_string(),
            access: affinity::at_home(api, credential.access.expose()),
            refresh: affinity::at_home(api, credential.refresh.expose()),
            expires_in_seconds: credential.lasts.as_secs(),
        }
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CliLogin {
    user: String,
    #[schema(value_type = String)]
    password: Secret,
}

/// Log a command line in with a password
#[utoipa::path(
    post, path = "/auth/cli/login", tag = "access", request_body = CliLogin, security(()),
    responses((status = 200, description = "Tokens, of which the first lasts minutes", body = CliTokens))
)]
async fn cli_login(
    State(api): State<Api>,
    ClientAddress(from): ClientAddress,
    Extension(deadline): Extension<Deadline>,
    Body(CliLogin { user, password }): Body<CliLogin>,
) -> Result<Json<CliTokens>, Problem> {
    let opened = api.access.login_cli(&user, password, from, deadline).await;
    let opened = opened.inspect_err(|why| {
        tracing::warn!(%from, %why, "login refused");
        // People type passwords into the wrong field: only a name that somebody has is written down.
        let user = api.access.has_user(&user).then(|| user.clone());
        api.audit.failed_login(LoginFailure { user, ..failure(from) });
    })?;
    record_cli(&api, from, "password", &opened)?;
    tracing::info!(user = %opened.user, %from, "logged in");
    Ok(Json(CliTokens::of(&api, &opened)))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RefreshToken {
    #[schema(value_type = String)]
    refresh: Secret,
}

/// Exchange a command line's refresh token for its next tokens
#[utoipa::path(
    post, path = "/auth/cli/refresh", tag = "access", request_body = RefreshToken, security(()),
    responses((status = 200, description = "The next tokens", body = CliTokens))
)]
async fn cli_refresh(
    State(api): State<Api>,
    Body(RefreshToken { refresh }): Body<RefreshToken>,
) -> Result<Json<CliTokens>, Problem> {
    let next = api.access.refresh_cli(affinity::without_home(refresh.expose()))?;
    Ok(Json(CliTokens::of(&api, &next)))
}

/// Log a command line out: its tokens are of no use any more
#[utoipa::path(
    post, path = "/auth/cli/logout", tag = "access", request_body = RefreshToken, security(()),
    responses((status = 204, description = "Logged out"))
)]
async fn cli_logout(
    State(api): State<Api>,
    Body(RefreshToken { refresh }): Body<RefreshToken>,
) -> StatusCode {
    api.access.logout_cli(affinity::without_home(refresh.expose()));
    StatusCode::NO_CONTENT
}

#[cfg(test)]
mod tests;
