//! The fuzz targets of this crate ([docs/endurance.md](../../../docs/endurance.md)): each stands beside its
//! parser.

pub use crate::applications::first_bytes::fuzz::first_bytes;
pub use crate::enforcement::fuzz::{dns_message, program_file};
pub use crate::sensor::fuzz::sensor_file;
