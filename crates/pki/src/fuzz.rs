//! The fuzz targets of this crate ([docs/endurance.md](../../../docs/endurance.md)): each stands beside its
//! parser.

pub use crate::agents::fuzz::agent_token;
