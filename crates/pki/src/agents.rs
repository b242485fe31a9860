//! Who agents are to controllers: tokens and certificates for nodes, and what was revoked.
//!
//! ```text
//! a token, or a pod's own token ──► TokenReviewer (asks the API server) ──► Authority ──► certificate
//! ```

mod authority;
mod review;
mod token;

#[cfg(feature = "fuzzing")]
pub(crate) use token::fuzz;

pub use authority::{
    Authority, AuthorityChanges, Bearer, Certified, LIFETIME, MadeToken, NotMade, NotRevoked,
    NotRevokedToken, PUBLISHED, Refused, SERVER_NAME, Serving, TokenRecord, lead,
};
pub use review::{AUDIENCE, NotReviewed, Reviewed, TokenReviewer};
pub use token::{DEFAULT_TTL, LONGEST_TTL, Token};

/// From the operating system: it must not be guessed.
fn random() -> u64 {
    getrandom::u64().expect("the operating system has random numbers")
}
