//! The fuzz targets of this crate ([docs/endurance.md](../../../docs/endurance.md)): each stands beside its
//! parser.

pub use crate::agents::fuzz::agent_frames;
pub use crate::api::fuzz::{http_request, replica_seals, shell_query, socket_message, websocket};
