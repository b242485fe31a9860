//! The fuzz targets of this crate ([docs/endurance.md](../../../docs/endurance.md)): each stands beside its
//! parser.

pub use crate::message::fuzz::messages;
pub use crate::outbox::fuzz::outbox_record;
pub use crate::send::fuzz::receiver_answer;
