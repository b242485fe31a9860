//! The incidents, replayed: the same load on a small model of the old design and on Fairlead's real
//! code.
//!
//! ```text
//! Plan ─► run ─┬─ process of the old design ─ samples ─┐
//!              └─ process of the new design ─ samples ─┴─► Outcome ─► requirements ─► text, JSON, page
//! ```
//!
//! Invariants:
//! 1. Both designs get the same load, from the same seed, on the same machine, and act on the same real
//!    things; where both wait for the same, the same clock.
//! 2. Each runs in a process of its own: its memory is its own, and what is stuck is ended.
//! 3. A requirement is a pure function of what was measured. What was not measured does not hold; a run
//!    that shows nothing is void and says so.
//!
//! Faults are compiled in by this crate alone: a build of `fairlead` without its feature `replay` has
//! none.

pub mod growth;
pub mod incident;
mod latency;
mod new;
mod old;
pub mod outcome;
pub mod plan;
mod record;
pub mod render;
mod run;
pub mod soak;
mod stage;

pub use incident::{INCIDENTS, Incident, Need};
pub use outcome::{Outcome, Sample};
pub use plan::{Design, Plan};
pub use record::Recorder;
pub use run::{CannotRun, run, side};
pub use stage::server::obey;
