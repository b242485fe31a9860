//! An API server that answers what a test tells it to, for answers that a real one cannot be made to
//! give. It uses no network, so that time can be paused.

use std::convert::Infallible;
use std::future::pending;

use http::Request;
use kube::client::Body;
use serde_json::Value;

pub(crate) enum Response {
    Json(Value),
    /// The lines of a watch, after which it ends.
    Lines(Vec<Value>),
    /// Plain text, as a server answers a path that it does not serve.
    Text(u16, &'static str),
    Hang,
}

/// `answer` is given the path and query of each request.
pub(crate) fn client(answer: impl Fn(&str) -> Response + Clone + Send + 'static) -> kube::Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let answer = answer(path);
        async move {
            let (code, body) = match answer {
                Response::Json(value) => (200, value.to_string()),
                Response::Lines(lines) => {
                    (200, lines.iter().map(|line| format!("{line}\n")).collect())
                }
                Response::Text(code, text) => (code, text.to_owned()),
                Response::Hang => pending().await,
            };
            let response =
                http::Response::builder().status(code).body(Body::from(body.into_bytes()));
            Ok::<_, Infallible>(response.expect("a response without headers"))
        }
    });
    kube::Client::new(service, "default")
}
