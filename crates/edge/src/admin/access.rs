//! Who may ask: anybody on loopback who is not a web page elsewhere; beyond it, who has the token.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use subtle::ConstantTimeEq;

use crate::reply;

/// A bearer token. It has no Debug or Display that shows it.
pub struct Token(Vec<u8>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("{path}: cannot be read")]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{path}: a token needs at least 16 characters")]
    TooShort { path: PathBuf },
    #[error("{path}: readable by others; run `chmod 600 {path}`")]
    Exposed { path: PathBuf },
}

impl Token {
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        use std::os::unix::fs::PermissionsExt;
        let unreadable = |source| TokenError::Unreadable { path: path.to_owned(), source };
        let mode = std::fs::metadata(path).map_err(unreadable)?.permissions().mode();
        // Secrets mounted by Kubernetes are group-readable at best; the world is never needed.
        if mode & 0o007 != 0 {
            return Err(TokenError::Exposed { path: path.to_owned() });
        }
        let token = std::fs::read(path).map_err(unreadable)?.trim_ascii().to_vec();
        if token.len() < 16 {
            return Err(TokenError::TooShort { path: path.to_owned() });
        }
        Ok(Self(token))
    }

    fn is(&self, given: &[u8]) -> bool {
        self.0.ct_eq(given).into()
    }
}

#[derive(Debug)]
pub(super) struct Guard {
    pub(super) token: Option<Token>,
    pub(super) loopback: bool,
}

/// Without a token configured only loopback listens, and loopback may ask.
pub(super) async fn authenticate(
    State(guard): State<Arc<Guard>>,
    request: Request,
    next: Next,
) -> Response {
    let Some(token) = &guard.token else { return next.run(request).await };
    let given = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    if given.is_some_and(|given| token.is(given)) {
        return next.run(request).await;
    }
    let mut refusal = reply::text(
        StatusCode::UNAUTHORIZED,
        "send the token of admin.token-file as `authorization: Bearer …`",
    );
    refusal.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    refusal
}

/// A page from elsewhere, open in a local browser, must not reach a loopback listener, neither by
/// a cross-site request nor by a name of its own that resolves to 127.0.0.1.
pub(super) async fn same_site(
    State(guard): State<Arc<Guard>>,
    request: Request,
    next: Next,
) -> Response {
    if guard.loopback && !is_local(request.headers()) {
        return reply::text(
            StatusCode::FORBIDDEN,
            "this listener answers only to localhost; ask for it by 127.0.0.1, [::1] or localhost",
        );
    }
    next.run(request).await
}

fn is_local(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let origin = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or(""));
    let origin_host = origin.map(|origin| origin.split_once("://").map_or("", |(_, rest)| rest));
    host.is_some_and(names_loopback) && origin_host.is_none_or(names_loopback)
}

fn names_loopback(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<http::uri::Authority>() else { return false };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_count_as_local() {
        for local in ["localhost:7682", "127.0.0.1:7682", "127.9.9.9", "[::1]:7682", "localhost"] {
            assert!(names_loopback(local), "{local}");
        }
        for other in
            ["evil.example:7682", "127.0.0.1.evil.example", "10.0.0.1", "", "localhost.evil"]
        {
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
