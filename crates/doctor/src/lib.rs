//! What an engineer does by hand with dumps of goroutines and threads, logs and metrics after a stall: name the
//! lock, who waits for it and since when, who holds it, and the way out. Bytes in, findings out
//! ([`examine`]), so that it serves a page and an endpoint; for a command, [`examine_inputs`] also
//! reads files, archives and running processes. No terminal, no clock.
//!
//! ```text
//! bytes ─► recognise ─┬─► goroutine ─► Dump ─┐
//!                     ├─► threads  ─► ThreadDump ┤
//!                     ├─► log      ─► events ┼─► Case ─► analysis ─► Report ─► render
//!                     ├─► metrics  ─► events ┤
//!                     └─► own      ─► stalls ┘
//! ```
//!
//! Invariants:
//! 1. It refuses rather than guesses: a holder is named only from evidence that can carry it, and
//!    every claim points at the line it was read from.
//! 2. Every reader is total on arbitrary bytes: no panic, no quadratic time, memory bounded by what
//!    is distinct in the input, not by its length.
//! 3. The [`Report`] is a contract: fields are added, never renamed.

pub mod analysis;
mod case;
mod examine;
mod excerpt;
mod figures;
pub mod goroutine;
mod input;
pub mod live;
mod log;
mod metrics;
mod own;
mod pods;
pub mod render;
pub mod report;
mod threads;
mod timeline;
mod words;

pub use case::Case;
pub use examine::{Conclusion, Options, examine, examine_all, examine_inputs};
pub use input::Progress;
pub use report::Report;
pub use threads::ThreadDump;
