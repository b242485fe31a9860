//! Guard: what may enter a cluster.
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

pub mod admission;
pub mod conversations;
