//! Where clusters come from.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::credentials::Access;
use crate::view::Source;

/// One cluster as a source offers it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Offer {
    pub(crate) name: Arc<str>,
    pub(crate) source: Source,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) enabled: bool,
    /// How to reach it, or the sentence that says why that cannot be known.
    pub(crate) access: Result<Arc<Access>, String>,
}
