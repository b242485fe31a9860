//! Who may do what: users, roles, tokens, sessions and the audit; decisions are pure functions.
//!
//! ```text
//! store ──watch──► Directory (plain value) ──► Snapshot ──► who is it?  may they?   (never waits)
//! password ──► Limits ──► argon2, a few at a time ──► Session ──► cookie + CSRF token
//! a write ──► Audit::begin (durable) ──► the write ──► Pending::finish
//! ```
//!
//! Invariants:
//! 1. A decision is a pure function of the asker's permissions and the question; deny wins, and
//!    nothing said is no.
//! 2. A change in the store holds for the very next request after the watch has told it, also for
//!    who is logged in.
//! 3. Of tokens, cookies and login codes only hashes are kept; no secret shows in `Debug`, and none
//!    is there by default.
//! 4. Everything that strangers can make grow (sessions, limits, codes, queues) is bounded.
//! 5. No write without its audit: the intent is on disk before the write begins.
//!
//! Nothing here knows HTTP or Kubernetes' client.

mod access;
mod administration;
pub mod audit;
mod buckets;
pub mod code;
mod directory;
mod glob;
mod local;
pub mod login;
mod metrics;
pub mod password;
mod role;
mod secret;
pub mod session;
mod token;
mod who;

pub use access::{Access, LoginError, Unauthenticated};
pub use administration::{
    AUDIT, Administration, AdministrationError, CLUSTERS, NewUser, ROLES, RoleView, TOKENS,
    TokenView, USERS, UserChange, UserView,
};
pub use audit::Audit;
pub use local::{LocalToken, LocalTokenError};
pub use role::{
    ADMIN, Ask, Decision, FLEET, NO_NAMESPACE, Permissions, Reach, Role, Verb, built_in, decide,
    is_built_in,
};
pub use secret::{Fingerprint, Secret};
pub use session::{Opened, SessionView, csrf_of};
pub use token::NewToken;
pub use who::{LOCAL, SessionId, Via, Who};
