//! `Who`: somebody, and how we know.

use std::fmt;
use std::sync::Arc;

use crate::secret::Fingerprint;

/// The user that the token file of this machine belongs to: an administrator who is not in the
/// store, so that there is always a way in. The name is reserved.
pub const LOCAL: &str = "local";

/// Somebody who has shown who they are. It carries no permissions: those are looked up at every
/// decision, so that they may change while a request lives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Who {
    pub user: Arc<str>,
    pub via: Via,
}

/// How somebody has shown who they are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Via {
    /// By the token file of this machine.
    Local,
    /// By the API token of this id.
    Token(Arc<str>),
    Session(SessionId),
}

/// Names a session; of no use as a cookie.
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

/// As the audit writes it: `local`, `token/3f9a…`, `session/81c0…`.
impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::Token(id) => write!(f, "token/{id}"),
            Self::Session(id) => write!(f, "session/{id}"),
        }
    }
}
