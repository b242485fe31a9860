//! The decisions that hold state together, in worlds that seeds decide: see docs/endurance.md.
//!
//! Each subject is a file: what happens in its world, the invariants that are looked at after every step, and the
//! bugs that were planted to see that they are found.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod claims;
mod deltas;
mod ingest;
mod lease;
mod network;
mod queues;
