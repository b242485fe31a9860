//! Access to the admin pages. Over loopback every program may ask, but no web page from elsewhere; beyond
//! loopback a caller needs the token. Without a configured token only the probes are answered there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use subtle::ConstantTimeEq;

use crate::reply;
use crate::serve::OverLoopback;

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
pub(super) struct TokenGuard {
    pub(super) token: Option<Token>,
}

/// Without a token configured only loopback may ask.
pub(super) async fn authenticate(
    State(guard): State<Arc<TokenGuard>>,
    request: Request,
    next: Next,
) -> Response {
    let Some(token) = &guard.token else {
        let loopback = request.extensions().get::<OverLoopback>();
        if loopback.is_some_and(|OverLoopback(loopback)| *loopback) {
            return next.run(request).await;
        }
        let why = "beyond loopback only /livez and /readyz are answered without a token; set \
                   admin.token-file, or ask on loopback: `kubectl exec` and `kubectl port-forward` do";
        return reply::text(StatusCode::FORBIDDEN, why);
    };
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
