//! Links that log in once: for the owner of the machine, who has its token, and a browser.

use access::Verb;
use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::{Api, Caller, Problem, Route, Routes, affinity};

pub(crate) fn routes() -> Routes {
    Routes::default().with(Route::write(Verb::Create, "loginlinks"), routes!(create_login_link))
}

#[derive(Serialize, ToSchema)]
struct LoginLink {
    /// As whom it logs in.
    user: String,
    /// The path of the link on this server. It is good once, and for a few minutes.
    path: String,
}

/// Make a link that opens one session in a browser
///
/// For oneself; a token gets none, because a session may do more.
#[utoipa::path(
    post, path = "/login-links", tag = "access",
    responses((status = 201, description = "Made", body = LoginLink))
)]
async fn create_login_link(
    State(api): State<Api>,
    caller: Caller,
) -> Result<(StatusCode, Json<LoginLink>), Problem> {
    let code = api.access.login_code(&caller.who)?;
    let user = caller.who.user.to_string();
    caller.trail.named(&user);
    let mut path = format!("/login?code={}", code.expose());
    if let Some(here) = affinity::sealed_home(&api) {
        path += &format!("&{}={here}", affinity::IN_LINK);
    }
    Ok((StatusCode::CREATED, Json(LoginLink { user, path })))
}
