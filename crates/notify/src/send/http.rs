//! One POST over a connection of its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use stallproof::Deadline;

use super::DeliveryError;
use super::stream::{Connection, connect, secure, unavailable};
use crate::target::HttpTarget;

/// An answer says by its status whether it was taken; what else it says is read so that it ends in order.
const LARGEST_ANSWER: usize = 64 << 10;
/// The longest that a receiver's `Retry-After` is heeded.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(15 * 60);

/// The types of bodies.
pub(super) const JSON: &str = "application/json";
pub(super) const PROTOBUF: &str = "application/x-protobuf";

pub(super) async fn post(
    to: &HttpTarget,
    kind: &'static str,
    headers: &[(&'static str, String)],
    body: Vec<u8>,
    tls: &Arc<ClientConfig>,
    deadline: Deadline,
) -> Result<(), DeliveryError> {
    let host = to.url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let https = to.url.scheme_str() == Some("https");
    let port = to.url.port_u16().unwrap_or(if https { 443 } else { 80 });
    let request = request(to, kind, headers, body)?;
    let tcp = connect(&host, port, deadline).await?;
    let stream: Box<dyn Connection> =
        if https { Box::new(secure(&host, tcp, tls).await?) } else { Box::new(tcp) };
    let failed = |error: hyper::Error| unavailable(format!("{host}: {error}"));
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let mut connection = std::pin::pin!(connection);
    let mut exchange = std::pin::pin!(async {
        let answer = sender.send_request(request).await.map_err(failed)?;
        let taken = judge(&host, &answer);
        // A status is an answer, whatever becomes of the rest.
        let _ = Limited::new(answer.into_body(), LARGEST_ANSWER).collect().await;
        taken
    });
    tokio::select! {
        biased;
        taken = &mut exchange => taken,
        // The server closed the connection, perhaps with the answer on its way to us.
        _ = &mut connection => exchange.await,
    }
}

fn request(
    to: &HttpTarget,
    kind: &'static str,
    headers: &[(&'static str, String)],
    body: Vec<u8>,
) -> Result<Request<Full<Bytes>>, DeliveryError> {
    let path = to.url.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let authority = to.url.authority().map_or("", http::uri::Authority::as_str);
    let mut request = Request::post(path)
        .header(header::HOST, authority)
        .header(header::CONTENT_TYPE, kind)
        .header(header::CONNECTION, "close")
        .header(header::USER_AGENT, concat!("fairlead/", env!("CARGO_PKG_VERSION")));
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    if let Some(authorization) = &to.authorization {
        let value = HeaderValue::from_str(&authorization.0);
        let mut value =
            value.map_err(|_| unavailable("the key of its Secret is no header's value"))?;
        value.set_sensitive(true);
        request = request.header(header::AUTHORIZATION, value);
    }
    request.body(Full::new(body.into())).map_err(|_| unavailable("the request cannot be made"))
}

pub(super) fn judge<B>(host: &str, answer: &Response<B>) -> Result<(), DeliveryError> {
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let why = format!("{host} answered {status}");
    let after = answer.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    if let Some(seconds) = after.and_then(|text| text.trim().parse().ok()).filter(|s| *s > 0) {
        let after = Duration::from_secs(seconds).min(LONGEST_WAIT);
        return Err(DeliveryError::Later { why, after });
    }
    // What another event would be answered as well.
    let of_all = [
        StatusCode::UNAUTHORIZED,
        StatusCode::PAYMENT_REQUIRED,
        StatusCode::FORBIDDEN,
        StatusCode::NOT_FOUND,
        StatusCode::METHOD_NOT_ALLOWED,
        StatusCode::PROXY_AUTHENTICATION_REQUIRED,
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::GONE,
        StatusCode::MISDIRECTED_REQUEST,
        StatusCode::TOO_EARLY,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    if status.is_client_error() && !of_all.contains(&status) {
        return Err(DeliveryError::Refused(why));
    }
    Err(unavailable(why))
}
