//! The fuzz targets of this crate ([docs/endurance.md](../../../docs/endurance.md)): each stands beside its
//! parser.

pub use crate::resources::fuzz::watch_table_lines;
pub use crate::resources::helm::fuzz::helm_release;
pub use crate::source::kubeconfig::fuzz::kubeconfig;
