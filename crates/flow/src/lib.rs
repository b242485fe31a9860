//! The stall-proof runtime. One primitive, one file, one contract.
//!
//! ```text
//! reads    Snapshot ──► decision            (never waits)
//! writes   Gate ──► Lanes by key ──► store  (bounded, fair, with a Deadline)
//! lookups  Fresh ──► Breaker ──► the world  (a "no" expires; a dead peer trips only itself)
//! sight    Ledger ◄── every operation;  Watchdog ◄── every Beacon;  MemoryGuard
//! ```
//!
//! Invariants, which every file here upholds and tests:
//! 1. A reader never waits, and no lock of ours is held across an `.await` or a callback that does I/O.
//! 2. Work waits only for work on the same key.
//! 3. Every queue is bounded and every wait has a deadline; refusals are values with a time to come back.
//! 4. Everything in flight is on the ledger; what is late is named.
//!
//! Nothing here knows Kubernetes or any of Fairlead's jobs.

mod sync;

pub mod deadline;
pub mod ledger;
pub mod memory_guard;
pub mod metrics;
pub mod watchdog;

pub use deadline::{Deadline, Expired};
pub use ledger::{Ledger, Op, OpId};
pub use memory_guard::{MemoryGuard, Pressure};
pub use watchdog::{Beacon, Evidence, Watchdog};
