//! The system's allocator, of which there are no profiles.

use super::Error;

pub use std::alloc::System as Allocator;

/// Fails always: see the feature `profiling`.
pub fn enable() -> Result<(), Error> {
    Err(Error::NotThere)
}

/// Fails always: see the feature `profiling`.
pub fn profile() -> Result<Vec<u8>, Error> {
    Err(Error::NotThere)
}
