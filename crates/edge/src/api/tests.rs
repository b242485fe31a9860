//! What the tests of this folder share, and tests of several parts together.

mod acting;
pub(crate) mod test_api;
