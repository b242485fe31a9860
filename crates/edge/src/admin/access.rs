//! Access to the admin pages.
//!
//! | page | over loopback | beyond it |
//! |---|---|---|
//! | `/livez`, `/readyz` | everybody | everybody |
//! | `/`, `/metrics` | every program, unless a token is configured | the configured token |
//! | `/debug` | the configured token, or the owner's | the configured token |
//!
//! No web page from elsewhere is answered. The owner's token is that of the data directory: whoever has an
//! account on the machine must not see what is in flight, nor change what is logged.

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

    /// The token with this secret.
    pub fn new(secret: &str) -> Self {
        Self(secret.as_bytes().to_vec())
    }

    fn is(&self, given: &[u8]) -> bool {
        self.0.ct_eq(given).into()
    }
}

#[derive(Debug)]
pub(super) struct TokenGuard {
    pub(super) token: Option<Token>,
    pub(super) owner: Option<Token>,
}

impl TokenGuard {
    /// Whether a request shows the configured token, or, over loopback, the owner's.
    fn knows(&self, request: &Request) -> bool {
        let header = request.headers().get(header::AUTHORIZATION);
        let given = header.and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        let is = |token: Option<&Token>| token.zip(given).is_some_and(|(it, given)| it.is(given));
        is(self.token.as_ref()) || (over_loopback(request) && is(self.owner.as_ref()))
    }
}

fn over_loopback(request: &Request) -> bool {
    let loopback = request.extensions().get::<OverLoopback>();
    loopback.is_some_and(|OverLoopback(loopback)| *loopback)
}

/// Lets those in who show a token, even over loopback.
pub(super) async fn authenticate_owner(
    State(guard): State<Arc<TokenGuard>>,
    request: Request,
    next: Next,
) -> Response {
    if guard.knows(&request) {
        return next.run(request).await;
    }
    if guard.token.is_none() && !over_loopback(&request) {
        return reply::text(StatusCode::FORBIDDEN, BEYOND);
    }
    unauthorized(
        "send the token as `authorization: Bearer …`: that of admin.token-file, or over loopback that of the \
         file `token` in the data directory; `fairlead inflight`, `doctor` and `support` do",
    )
}

const BEYOND: &str = "beyond loopback only /livez and /readyz are answered without a token; set \
                      admin.token-file, or ask on loopback: `kubectl exec` and `kubectl port-forward` do";

fn unauthorized(why: &str) -> Response {
    let mut refusal = reply::text(StatusCode::UNAUTHORIZED, why);
    refusal.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    refusal
}

/// Without a token configured every program may ask over loopback, and nobody beyond it.
pub(super) async fn authenticate(
    State(guard): State<Arc<TokenGuard>>,
    request: Request,
    next: Next,
) -> Response {
    let open = guard.token.is_none() && over_loopback(&request);
    if open || guard.knows(&request) {
        return next.run(request).await;
    }
    if guard.token.is_none() {
        return reply::text(StatusCode::FORBIDDEN, BEYOND);
    }
    unauthorized("send the token of admin.token-file as `authorization: Bearer …`")
}
