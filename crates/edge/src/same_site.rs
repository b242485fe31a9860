//! Keeps web pages from elsewhere away from loopback listeners, which are for programs of this machine.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, StatusCode, header};

use crate::reply;
use crate::serve::OverLoopback;

/// For a connection over loopback: a page from elsewhere, open in a local browser, must not make use of
/// it, neither by a cross-site request nor by a name of its own that resolves to 127.0.0.1.
pub(crate) async fn same_site(request: Request, next: Next) -> Response {
    let loopback = request.extensions().get::<OverLoopback>();
    let loopback = loopback.is_some_and(|OverLoopback(loopback)| *loopback);
    if loopback && !is_local(request.headers()) {
        return reply::text(
            StatusCode::FORBIDDEN,
            "this listener answers only to localhost; ask for it by 127.0.0.1, [::1] or localhost",
        );
    }
    next.run(request).await
}

pub(crate) fn is_local(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let origin = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or(""));
    let origin_host = origin.map(|origin| origin.split_once("://").map_or("", |(_, rest)| rest));
    host.is_some_and(names_loopback) && origin_host.is_none_or(names_loopback)
}

fn names_loopback(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<http::uri::Authority>() else { return false };
    let host = authority.host();
    // The parser takes anything after an address in brackets, and any word for a port.
    let is_port = |rest: &str| {
        let port = rest.strip_prefix(':');
        rest.is_empty() || port.is_some_and(|it| it.bytes().all(|digit| digit.is_ascii_digit()))
    };
    if !authority.as_str().strip_prefix(host).is_some_and(is_port) {
        return false;
    }
    let host = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_loopback_names_count_as_local() {
        for local in ["localhost:7682", "127.0.0.1:7682", "127.9.9.9", "[::1]:7682", "localhost"] {
            assert!(names_loopback(local), "{local}");
        }
        for other in [
            "evil.example:7682",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "",
            "localhost.evil",
            "[::1]127:1",
            "127.0.0.1:'680",
        ] {
            assert!(!names_loopback(other), "{other}");
        }
    }

    #[test]
    fn a_page_from_elsewhere_is_not_local() {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("127.0.0.1:7682"));
        assert!(is_local(&headers));
        headers.insert(header::ORIGIN, HeaderValue::from_static("https://evil.example"));
        assert!(!is_local(&headers));
        headers.insert(header::ORIGIN, HeaderValue::from_static("null"));
        assert!(!is_local(&headers));
        headers.insert(header::ORIGIN, HeaderValue::from_static("http://localhost:7682"));
        assert!(is_local(&headers));
    }
}
