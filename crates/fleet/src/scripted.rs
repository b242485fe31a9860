//! An API server that says what a test tells it to, for what a real one cannot be made to do. There
//! is no network in it, so that time can be paused.

use std::convert::Infallible;
use std::future::pending;

use http::{Request, Response};
use kube::client::Body;
use serde_json::Value;

pub(crate) enum Answer {
    Json(Value),
    /// The lines of a watch, which then ends.
    Lines(Vec<Value>),
    /// In plain text, as a server answers what is not one of its paths.
    Text(u16, &'static str),
    Hang,
}

/// `answer` is asked with path and query.
pub(crate) fn client(answer: impl Fn(&str) -> Answer + Clone + Send + 'static) -> kube::Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let asked = request.uri().path_and_query().map_or("/", |asked| asked.as_str());
        let answer = answer(asked);
        async move {
            let (code, body) = match answer {
                Answer::Json(value) => (200, value.to_string()),
                Answer::Lines(lines) => {
                    (200, lines.iter().map(|line| format!("{line}\n")).collect())
                }
                Answer::Text(code, text) => (code, text.to_owned()),
                Answer::Hang => pending().await,
            };
            let response = Response::builder().status(code).body(Body::from(body.into_bytes()));
            Ok::<_, Infallible>(response.expect("a response without headers"))
        }
    });
    kube::Client::new(service, "default")
}
