//! The fuzz targets of this crate ([docs/endurance.md](../../../docs/endurance.md)): each stands beside its
//! parser.

pub use crate::conversations::fuzz::checkpoint;
pub use crate::history::fuzz::history_frame;
