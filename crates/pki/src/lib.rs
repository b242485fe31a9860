//! Authorities of our own: certificates that webhook and API serve with ([`Certificates`]), and who agents
//! are to controllers ([`agents`]). Those of others: signatures of images ([`sigstore`]).
//!
//! ```text
//! leader: next step (pure) ──► Secret (SharedState) ──► every replica's Snapshot ──► handshakes, calls
//!                         └──► ConfigMap (published): whom to trust, for everybody
//! ```
//!
//! Invariants: an authority is trusted before anything of it is served; private keys are in the Secret and
//! in memory, and not in `Debug`, logs or errors; nothing that serves a handshake waits for the store.

pub mod agents;
mod certificates;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz;
pub mod published;
pub mod sigstore;
mod state;
pub mod tls;

pub use certificates::{
    CertificateChanges, Certificates, Lifetimes, PUBLISHED, PrivateKey, Serving,
};
