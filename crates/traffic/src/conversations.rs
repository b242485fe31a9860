//! Conversations: who talks to whom, counted exactly once, read without waiting.
//!
//! ```text
//! Report ──► Router ──► ShardReport ──► Shard ──► Snapshot ──► View ──► conversations, graph
//!              ▲                          │ watermarks: how far each total was counted
//!          Directory                      │ table: pairs and rows, additive
//!     (address, time) ──► end             ▼
//!                                  discovered, violations; checkpoint
//! ```
//!
//! Invariants:
//! 1. A running total is counted once, however often, late or out of order it comes; what no room
//!    was found for is refused, never dropped.
//! 2. What was counted is in some row, in a pair's `other`, or in the rest of two realms: folding
//!    moves it, ageing moves it, nothing loses it.
//! 3. A shard has one owner. Nobody waits for it but who sends to it; readers have the last publish.

mod application;
mod checkpoint;
pub mod codec;
mod conversation;
mod directory;
mod endpoint;
mod facts;
mod graph;
mod growth;
mod interner;
mod judge;
mod report;
mod reporter;
mod router;
mod shard;
mod slab;
mod steady_clock;
mod table;
mod view;
mod watermarks;

#[cfg(feature = "fuzzing")]
pub(crate) use checkpoint::fuzz;

pub use application::{KnownApplication, told_by_bytes};
pub use checkpoint::{Checkpoint, CheckpointError, Progress};
pub(crate) use checkpoint::{load_end, save_end};

pub use codec::Torn;
pub use conversation::Conversation;
pub use directory::{Directory, LINGER};
pub use endpoint::{End, Endpoint};
pub use facts::{ExternalFacts, Labels, LocalWorkload, NodeFacts, PodFacts, ServiceFacts};
pub use graph::{Edge, Graph, Level, Node};
pub use growth::Growth;
pub use judge::{Judge, Judgement, NoRules, Service, Verdict};
pub use report::{DeniedRecord, Dropped, Moment, Protocol, Record, Report, ResolvedName, Totals};
pub use reporter::Reporter;
pub use router::{RoutedReport, Router, ShardReport};
pub use shard::{Applied, Counters, Limits, Shard, shards};
pub use table::{FoldedTotals, Realms};
pub use view::{ConversationRef, PairRef, Readers, View};
pub use watermarks::{AWAY, SILENCE};
