//! `Identity`: an authenticated user, and how the user was authenticated.

use std::fmt;
use std::sync::Arc;

use crate::secret::Fingerprint;

/// The user of this machine's token file: an administrator who is not in the store, so that access is
/// always possible. The name is reserved.
pub const LOCAL: &str = "local";

/// An authenticated user. It has no permissions: those are looked up at every decision, because they may
/// change during a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    pub user: Arc<str>,
    pub via: AuthMethod,
}

/// How a user was authenticated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AuthMethod {
    /// The token file of this machine.
    Local,
    /// The API token with this id.
    Token(Arc<str>),
    Session(SessionId),
    /// Nobody: Fairlead acts by the response rule of this name.
    ResponseRule(Arc<str>),
}

/// The id of a session, which cannot be used as its cookie.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub(crate) Fingerprint);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({self})")
    }
}

/// Shows it as the audit writes it: `local`, `token/3f9a…`, `session/81c0…`.
impl fmt::Display for AuthMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::Token(id) => write!(f, "token/{id}"),
            Self::Session(id) => write!(f, "session/{id}"),
            Self::ResponseRule(name) => write!(f, "response-rule/{name}"),
        }
    }
}
