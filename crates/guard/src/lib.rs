//! Guard: what may enter a cluster, and who talks to whom in it.
//!
//! ```text
//! AdmissionReview ──► Request ─┐
//!                              ├──► decide ──► Decision ──► AdmissionReview
//! AdmissionRules ──► Program ──┘       ▲
//!                                    Facts (published snapshots; each may answer "unknown")
//! ```
//!
//! Invariants: rules are compiled once, on change; deciding takes no lock, does no I/O and cannot
//! panic or run away on any input; what a rule does not say is let through; an answer names the
//! rule, the container and the criterion, and never a secret's value.
//!
//! ```text
//! connections ──► sensor (on each node) ──► reports
//!
//! agents' reports ──► ingest ──► conversations ──► View (a published snapshot) ──► lists, graphs
//!                       ▲   ▲              └───► discovered ──► rules::Learned; violations
//!     groups, rules ──► Policy
//!     pods, services, nodes ┘ Directory
//! ```
//!
//! Invariants: a running total is counted once, whatever the network and restarts do to it; what
//! was counted is never lost from the sums; everything is bounded; who reads never waits for who
//! writes.

pub mod admission;
pub mod agents;
pub mod conversations;
#[cfg(any(test, feature = "faults"))]
pub mod faults;
pub mod groups;
pub mod ingest;
pub mod published;
pub mod rules;
pub mod sensor;
pub mod violations;
