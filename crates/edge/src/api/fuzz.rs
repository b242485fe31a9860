//! A request's line and headers, and queries that are read by hand.

use http::{HeaderName, HeaderValue, Request, header};

pub use super::affinity::fuzz::replica_seals;
use super::exec::ExecParams;
pub use super::live::fuzz::socket_message;
use super::shells::ShellQuery;
pub use super::socket::fuzz::websocket;
use super::{BASE, affinity, console, kube_api, leader, outside, pipeline, trail};
use crate::same_site::is_local;

/// A method and a path with a query; then headers, one a line.
///
/// A cookie and a token are what a header says and no more of it, a name is local only if it is one of this
/// machine's, and the page of the console is in the place of nothing that the API has.
pub fn http_request(bytes: &[u8]) {
    let Some(request) = request(bytes) else { return };
    let headers = request.headers();
    if is_local(headers) {
        for name in [header::HOST, header::ORIGIN] {
            assert!(headers.get(&name).is_none_or(names_this_machine), "{headers:?}");
        }
        assert!(headers.contains_key(header::HOST));
    }
    for name in [pipeline::COOKIE, "a"] {
        let Some(value) = pipeline::cookie_of(headers, name) else { continue };
        assert!(!value.contains(';'), "{value:?}");
        let pair = format!("{name}={value}");
        let mut all = headers.get_all(header::COOKIE).iter().filter_map(|it| it.to_str().ok());
        assert!(all.any(|it| it.split(';').any(|it| it.trim() == pair)), "{pair:?}");
    }
    if let Some(token) = pipeline::token(headers) {
        assert!(headers.contains_key(header::AUTHORIZATION));
        let token = affinity::without_home(&token);
        assert!(!token.contains('~'));
    }
    let _ = pipeline::same_page(&request);
    let _ = console::takes_gzip(headers);
    let _ = leader::has_pass(headers);
    // What the audit records of a query is what is read of it.
    let query = request.uri().query();
    for key in ["namespace", "replica", "command"] {
        let recorded = trail::of_query(query, &[key]).remove(key);
        let first = match &recorded {
            Some(serde_json::Value::Array(values)) => values.first(),
            other => other.as_ref(),
        };
        let read = pipeline::query(query, key);
        assert_eq!(first.and_then(serde_json::Value::as_str), read.as_deref(), "{query:?}");
    }
    let path = request.uri().path();
    let is_api = path == "/api" || path.starts_with("/api/");
    let answer = console::EMBEDDED.answer(request.method(), request.uri(), headers);
    assert!(!is_api || answer.status() == http::StatusCode::NOT_FOUND, "{path}");
    let _ = outside::no_such_route(request.uri()).body();
    // The path on an API server is what comes after the cluster, whatever both of them are.
    let (cluster, rest) = path.trim_start_matches('/').split_once('/').unwrap_or((path, ""));
    let cluster = cluster.trim_start_matches('/');
    for base in ["", BASE] {
        let whole = format!("{base}/clusters/{cluster}/proxy/{rest}");
        assert_eq!(kube_api::kube_path(&whole), Some(rest));
    }
}

/// The query of a command, of a node's shell and of a debug container: what the audit records is what is run, and
/// where.
pub fn shell_query(bytes: &[u8]) {
    let Ok(query) = std::str::from_utf8(bytes) else { return };
    let recorded = |key: &str| trail::of_query(Some(query), &[key]).remove(key);
    let namespace = pipeline::query(Some(query), "namespace");
    let command = |run: &[String]| match recorded("command") {
        None => run.is_empty(),
        Some(recorded) => recorded == serde_json::json!(run),
    };
    let one = |key: &str, run: Option<&str>| {
        recorded(key).as_ref().and_then(serde_json::Value::as_str) == run
    };
    if let Ok(asked) = ExecParams::read(Some(query)) {
        assert!(!asked.namespace.is_empty());
        assert_eq!(namespace.as_deref(), Some(&*asked.namespace), "the audit says another one");
        assert!(command(&asked.command), "{query}");
        assert!(one("container", asked.container.as_deref()), "{query}");
    }
    for known in [&["image", "command"][..], &["namespace", "image", "target", "command"]] {
        let Ok(asked) = ShellQuery::read(Some(query), known) else { continue };
        assert_eq!(namespace.as_deref(), asked.namespace.as_deref(), "the audit says another one");
        assert!(command(&asked.command), "{query}");
        assert!(one("image", asked.image.as_deref()), "{query}");
        assert!(one("target", asked.target.as_deref()), "{query}");
    }
}

fn request(bytes: &[u8]) -> Option<Request<axum::body::Body>> {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let (method, path) = std::str::from_utf8(lines.next()?).ok()?.split_once(' ')?;
    let mut request =
        Request::builder().method(method).uri(path).body(axum::body::Body::empty()).ok()?;
    for line in lines {
        let at = line.iter().position(|byte| *byte == b':')?;
        let (name, value) =
            (HeaderName::from_bytes(&line[..at]).ok()?, line[at + 1..].trim_ascii());
        request.headers_mut().append(name, HeaderValue::from_bytes(value).ok()?);
    }
    Some(request)
}

/// Whether a host, or the host of an origin, can only be this machine.
fn names_this_machine(value: &HeaderValue) -> bool {
    let Ok(text) = value.to_str() else { return false };
    let host = text.split_once("://").map_or(text, |(_, host)| host);
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let host = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) && !name.is_empty() => {
            name
        }
        _ => host,
    };
    let host = host.trim_matches(['[', ']']);
    let address = host.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}
