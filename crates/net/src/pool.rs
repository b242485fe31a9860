//! Pools as values: which blocks a pool has, and which pools may be claimed from.

/// The pool of namespaces that choose none.
pub const DEFAULT: &str = "default";
/// A namespace's annotation that chooses its pods' pool.
pub const ANNOTATION: &str = "fairlead.dev/pool";
