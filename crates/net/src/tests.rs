//! Fixtures of the unit tests, and what holds in a large cluster.

pub(crate) mod pods;
mod scale;
