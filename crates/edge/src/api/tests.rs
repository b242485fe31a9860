//! What the tests of this folder share.

pub(crate) mod test_api;
