//! Fixtures of the unit tests.

pub(crate) mod pods;
