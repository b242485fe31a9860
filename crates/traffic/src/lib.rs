//! Traffic: who talks to whom.
//!
//! ```text
//! agents' reports ──► ingest ──► conversations ──► View (a published snapshot) ──► lists, graphs, history
//!                       ▲   ▲              └───► discovered ──► rules::Learned; violations
//!     groups, rules ──► Policy
//!     pods, services, nodes ┘ Directory
//! ```
//!
//! Invariants: a running total is counted once, whatever the network and restarts do to it; what
//! was counted is never lost from the sums; everything is bounded; who reads never waits for who
//! writes.

pub mod agents;
pub mod conversations;
#[cfg(any(test, feature = "faults"))]
pub mod faults;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz;
pub mod groups;
pub mod history;
pub mod ingest;
pub mod names;
pub mod rules;
pub mod violations;
