//! What the tests of this folder share, and tests of several parts together.

mod acting;
#[path = "../../../fleet/tests/kubelet/mod.rs"]
pub(crate) mod kubelet;
pub(crate) mod test_api;
