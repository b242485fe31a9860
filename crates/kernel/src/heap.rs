//! Where memory goes, as `go tool pprof` and its kin read it.
//!
//! The binary says `#[global_allocator] static ALLOCATOR: kernel::heap::Allocator = ...`. With the feature
//! `profiling` that is jemalloc, started with profiling built in but switched off, which samples nothing;
//! [`enable`], once at start if the operator opted in, switches it on. Only what is allocated after that is
//! seen, one sample for each half mebibyte on average. Without the feature it is the system's allocator,
//! and there are no heap profiles: jemalloc takes minutes to build.

use std::io;

#[cfg(feature = "profiling")]
mod jemalloc;
#[cfg(not(feature = "profiling"))]
mod system;

#[cfg(feature = "profiling")]
pub use jemalloc::{Allocator, enable, profile};
#[cfg(not(feature = "profiling"))]
pub use system::{Allocator, enable, profile};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("heap profiling is off; start with it enabled")]
    Off,
    #[error("a heap profile is being taken already; try again when it is done")]
    Busy,
    #[error("this build has no heap profiles; build with `--features profiling`")]
    NotThere,
    #[error("jemalloc could not write its profile")]
    Dump(#[source] io::Error),
    #[error("jemalloc's profile could not be read: {0}")]
    Parse(String),
}
