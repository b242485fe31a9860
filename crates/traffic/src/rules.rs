//! Network rules: who may talk to whom, learned and written.
//!
//! ```text
//! NetworkRules ─┐
//!               ├──► Program ─┐
//! Learned ──────┘             ├──► Policy (a Judge) ──► verdict
//!                    Groups ──┘
//! discovered ──► Learned ──► promote ──► NetworkRule
//! NetworkRules, Groups ──► export ──► Kubernetes' NetworkPolicy
//! ```
//!
//! Invariants: rules are compiled once, on change; deciding takes no lock and does no I/O; written
//! rules come before learned ones. Nothing here stops a packet: that is for nodes that enforce
//! policies, and every verdict under *protect* says so.

mod export;
mod learn;
mod program;

pub use export::{Exported, Note, export};
pub use learn::{Learned, LearnedRule};
pub use program::{GroupMatcher, Policy, Program};

#[cfg(test)]
mod tests;
