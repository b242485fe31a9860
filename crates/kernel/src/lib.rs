//! What only the operating system can tell or do.
//!
//! ```text
//! threads    where every thread of this process is, also the ones that are stuck
//! profile    where CPU time goes
//! heap       where memory goes           (feature `profiling`)
//! lock_file  one process per data directory
//! netns      network namespaces, and work inside them
//! netlink    links, addresses, neighbours, routes
//! conntrack  connections, what they carried, and when they end
//! ```
//!
//! Invariants:
//! 1. All `unsafe` of Fairlead is in this crate, each with its reason.
//! 2. Signal handlers take no lock and allocate nothing.
//! 3. No tasks, no domain: plain blocking calls, each with a time limit.

pub mod conntrack;
#[cfg(feature = "profiling")]
pub mod heap;
pub mod lock_file;
mod moment;
pub mod netlink;
pub mod netns;
pub mod profile;
mod signal;
pub mod threads;
mod unwind;
