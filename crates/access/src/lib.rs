//! Who may do what: users, roles, tokens, sessions and the audit; decisions are pure functions.
//!
//! ```text
//! store ──watch──► Directory (plain value) ──► Snapshot ──► identity, decision   (never waits)
//! password ──► LoginLimits ──► argon2, a few at a time ──► Session ──► cookie + CSRF token
//! identity provider ──► claims ──► Directory, Session      (asked again by a task of its own)
//! a write ──► Audit::begin (durable) ──► the write ──► Pending::finish
//! ```
//!
//! Invariants:
//! 1. A decision is a pure function of the user's permissions and the request. Deny wins, and what no rule
//!    allows is refused.
//! 2. A change in the store takes effect with the first request after the watch has reported it, also for
//!    users who are logged in.
//! 3. Only hashes of tokens, cookies and login codes are kept; `Debug` shows no secret, and there is no
//!    default secret.
//! 4. Everything that unauthenticated requests can make grow (sessions, limits, codes, queues) is bounded.
//! 5. Every write is audited: its intent is on disk before the write begins.
//!
//! This crate does not import HTTP or Kubernetes' client.

mod access;
mod administration;
pub mod audit;
mod buckets;
pub mod code;
mod directory;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz;
mod glob;
mod identity;
pub mod kube_token;
pub mod kubernetes;
mod local;
pub mod login;
mod metrics;
pub mod oidc;
pub mod password;
mod role;
mod secret;
pub mod session;
mod token;

pub use access::{Access, LoginError, Unauthenticated};
pub use administration::{
    AUDIT, Administration, AdministrationError, CLUSTERS, NewUser, ROLES, RoleView, TOKENS,
    TokenView, USERS, UserChange, UserView,
};
pub use administration::{
    IDENTITY_PROVIDERS, MappingView, ProviderChange, ProviderView, ROLE_MAPPINGS,
};
pub use audit::Audit;
pub use identity::{AuthMethod, Identity, LOCAL, SessionId};
pub use local::{LocalToken, LocalTokenError};
pub use oidc::OidcError;
pub use role::{
    ADMIN, AccessRequest, Decision, FLEET, NO_NAMESPACE, Permissions, Reach, Role, Verb, built_in,
    decide, is_built_in,
};
pub use secret::{Fingerprint, Secret};
pub use session::rotation::CliCredential;
pub use session::{OpenedSession, SessionView, csrf_of};
pub use token::NewToken;
