//! Conversations: who talks to whom, counted exactly once, read without waiting.
//!
//! ```text
//! Report ──► Router ──► Batch ──► Shard ──► Snapshot ──► View ──► conversations, graph
//!              ▲                    │ marks: how far each total was counted
//!          Directory                │ table: pairs and rows, additive
//!     (address, time) ──► end       ▼
//!                            discovered, violations; checkpoint
//! ```
//!
//! Invariants:
//! 1. A running total is counted once, however often, late or out of order it comes; what no room
//!    was found for is refused, never dropped.
//! 2. What was counted is in some row, in a pair's `other`, or in the rest of two realms: folding
//!    moves it, ageing moves it, nothing loses it.
//! 3. A shard has one owner. Nobody waits for it but who sends to it; readers have the last publish.

mod checkpoint;
pub mod codec;
mod directory;
mod endpoint;
mod facts;
mod graph;
mod judge;
mod lived;
mod marks;
mod report;
mod router;
mod shard;
mod side;
mod slab;
mod table;
mod view;
mod words;

pub use checkpoint::{Checkpoint, Progress, Refused};
pub(crate) use checkpoint::{load_end, save_end};

pub use codec::Torn;
pub use directory::{Directory, LINGER};
pub use endpoint::{End, Endpoint};
pub use facts::{ExternalFacts, Labels, NodeFacts, PodFacts, ServiceFacts};
pub use graph::{Edge, Graph, Level, Node};
pub use judge::{Judge, Judgement, Service, Unruled, Verdict};
pub use marks::{AWAY, SILENCE};
pub use report::{Moment, Protocol, Record, Report, Totals};
pub use router::{Batch, Batches, Router};
pub use shard::{Applied, Counters, Limits, Notice, Shard, shards};
pub use side::{Side, counts};
pub use table::{Realms, Rest};
pub use view::{About, Conversation, Line, Readers, Talk, View};
