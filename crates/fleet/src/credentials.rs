//! How a cluster is reached and who we are to it.

/// A cluster's endpoint and our credentials for it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Access {}
