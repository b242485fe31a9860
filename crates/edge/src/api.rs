//! The API: REST under `/api/v1`, server-sent events, WebSockets.

mod gates;
mod problem;

pub use gates::Gates;
pub use problem::{Code, Problem};
