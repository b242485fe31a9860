//! Around every request, also those that no route takes: its name, whether it may come here at all,
//! and the headers that keep browsers from doing more with an answer than is meant.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, Method, Uri, header};

use super::compress::compress;
use super::console::takes_gzip;
use super::pipeline::RequestId;
use super::{Api, BASE, ErrorCode, Problem, affinity, kube_api};
use crate::same_site::is_local;

const SAFE: [(HeaderName, &str); 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::CACHE_CONTROL, "no-store"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
];

pub(crate) async fn outside(
    State((api, loopback)): State<(Api, bool)>,
    mut request: Request,
    next: Next,
) -> Response {
    let id = RequestId::new();
    let gzip = takes_gzip(request.headers());
    let kubernetes = kube_api::is_passed_on(request.uri().path());
    request.extensions_mut().insert(id.clone());
    let mut response = if loopback && !is_local(request.headers()) {
        let why =
            "this listener answers only to localhost; ask for it by 127.0.0.1, [::1] or localhost";
        Problem::new(ErrorCode::Forbidden, why).into_response()
    } else {
        affinity::take_client(&api, &mut request);
        match affinity::pass_on(&api, request).await {
            // It has all that follows from where it was made.
            Ok(response) => return response,
            Err(request) => next.run(request).await,
        }
    };
    affinity::mark(&api, &mut response);
    let mut response = if kubernetes {
        Problem::as_kubernetes_says_it(response)
    } else {
        Problem::named(response, id.as_str())
    };
    if gzip {
        response = compress(&api, response).await;
    }
    let headers = response.headers_mut();
    for (name, value) in SAFE {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    if let Ok(value) = HeaderValue::from_str(id.as_str()) {
        headers.insert("x-request-id", value);
    }
    response
}

pub(crate) fn no_such_route(uri: &Uri) -> Problem {
    let path = uri.path();
    Problem::new(
        ErrorCode::NotFound,
        format!("there is nothing at {path}; {BASE}/openapi.json lists what there is"),
    )
}

pub(crate) async fn no_such_method(method: Method, uri: Uri) -> Problem {
    let path = uri.path();
    Problem::not_allowed(format!(
        "{path} takes no {method}; {BASE}/openapi.json lists what it takes"
    ))
}
