//! The pages for a browser: a greeting, and the link that logs in. They have no scripts.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method, StatusCode, header};
use serde::Deserialize;
use utoipa_axum::routes;

use super::pipeline::{self, ClientAddress};
use super::{Api, Query, Route, Routes};

pub(crate) fn routes() -> Routes {
    Routes::default().with(Route::open(), routes!(index)).with(Route::open(), routes!(login))
}

fn page(status: StatusCode, text: &str) -> Response {
    let html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Fairlead</title>\n\
         <h1>Fairlead</h1>\n{text}\n</html>\n"
    );
    (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response()
}

#[utoipa::path(get, path = "/")]
async fn index() -> Response {
    page(
        StatusCode::OK,
        "<p>Many Kubernetes clusters in one place. A slow call, a stuck lock, a dead cluster or a \
         flood holds up nothing but itself, and is named within seconds.</p>\n\
         <p>The API is under <a href=\"/api/v1/clusters\">/api/v1</a>; \
         <a href=\"/api/v1/openapi.json\">openapi.json</a> describes it. \
         On the command line: <code>fairlead clusters list</code>.</p>",
    )
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
