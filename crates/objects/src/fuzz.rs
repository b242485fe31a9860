//! The fuzz targets of this crate ([docs/endurance.md](../../../docs/endurance.md)): each stands beside its
//! parser.

pub use crate::embedded::fuzz::stored_objects;
pub use crate::kubernetes::fuzz::watch_lines;
pub use crate::watching::fuzz::heard;
