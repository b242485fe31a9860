//! The stall-proof runtime. One primitive, one file, one contract.
//!
//! ```text
//! reads    Snapshot ──► decision            (never waits)
//! writes   Gate ──► Lanes by key ──► store  (bounded, fair, with a Deadline)
//! lookups  Fresh ──► Breaker ──► the world  (a "no" expires; a dead peer trips only itself)
//! edges    accept ──► one task a connection, bounded in all and by peer address
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

mod expiring;
mod list;
mod retry;
mod sentence;
mod sync;

pub mod accept;
pub mod backoff;
pub mod breaker;
pub mod deadline;
pub mod fresh;
pub mod gate;
pub mod group_commit;
pub mod lanes;
pub mod ledger;
pub mod line_log;
pub mod memory_guard;
pub mod metrics;
pub mod rates;
pub mod readiness;
pub mod snapshot;
pub mod tasks;
pub mod tracked_mutex;
pub mod watchdog;

pub use backoff::{Backoff, Backoffs};
pub use breaker::{Breaker, Breakers};
pub use deadline::{Deadline, Expired};
pub use fresh::Fresh;
pub use gate::{Gate, Overloaded, Priority};
pub use group_commit::GroupCommit;
pub use lanes::{Lanes, Refused, Work};
pub use ledger::{Ledger, Op, OpId};
pub use line_log::{LineLog, LogSize};
pub use memory_guard::{MemoryGuard, Pressure};
pub use rates::Rates;
pub use readiness::Readiness;
pub use sentence::sentence;
pub use snapshot::{Map, Snapshot};
pub use tasks::{Stop, Tasks};
pub use tracked_mutex::TrackedMutex;
pub use watchdog::{Beacon, Watchdog};
