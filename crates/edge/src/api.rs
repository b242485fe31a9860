//! The API: REST under `/api/v1`, server-sent events, WebSockets. Thin: a handler reads what is
//! asked, asks the room whose matter it is, and writes down the answer.
//!
//! ```text
//! listener ─► same site ─► door (who, until when, may they, gate, audit) ─► handler ─► fleet, access
//! ```

mod door;
mod gates;
mod problem;

use ::access::Access;
use fleet::Fleet;
use flow::Ledger;

pub use gates::Gates;
pub use problem::{Code, Problem};

/// What the handlers speak to. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Api {
    pub fleet: Fleet,
    pub access: Access,
    pub ledger: Ledger,
    pub gates: Gates,
    /// Streams are its tasks, and end with it.
    pub tasks: flow::Tasks,
}
