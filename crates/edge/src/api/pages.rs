//! The link that logs in. Its answers have no scripts; the console is in `console`.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method, StatusCode, header};
use serde::Deserialize;
use utoipa_axum::routes;

use super::console::page;
use super::pipeline::{self, ClientAddress};
use super::{Api, Query, Route, Routes, logins};

pub(crate) fn routes() -> Routes {
    Routes::default().with(Route::open(), routes!(login))
}

/// A text as it may stand in a page.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[derive(Debug, Deserialize)]
struct Link {
    #[serde(default)]
    code: String,
}

/// The link that is printed at the start.
#[utoipa::path(get, path = "/login")]
async fn login(
    State(api): State<Api>,
    ClientAddress(from): ClientAddress,
    method: Method,
    Query(Link { code }): Query<Link>,
) -> Response {
    // What only looks whether there is a page (a preview, a check) must not use up the code.
    let opened = (method == Method::GET).then(|| api.access.redeem(&code, from));
    if let Some(opened) = &opened
        && let Err(refused) = logins::record(&api, from, logins::method(true), None, opened)
    {
        return refused.into_response();
    }
    match opened {
        None => page(StatusCode::OK, ""),
        Some(Ok(session)) => {
            tracing::info!(user = %session.user, %from, "logged in by link");
            let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, "/")]).into_response();
            let cookie = pipeline::set_cookie(Some(&session.cookie), api.serving.secure);
            if let Ok(cookie) = HeaderValue::from_str(&cookie) {
                response.headers_mut().insert(header::SET_COOKIE, cookie);
            }
            response
        }
        Some(Err(error)) => page(
            StatusCode::UNAUTHORIZED,
            &format!(
                "<p>{error}: links work once. <code>fairlead up</code> prints one at its start.</p>"
            ),
        ),
    }
}
