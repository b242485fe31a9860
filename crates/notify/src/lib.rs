//! Who is told of what happens, and what is done about it.
//!
//! ```text
//! producers ──► EventBus (bounded, never waits) ──► router: ResponseRules ──► Outbox (durable, bounded)
//!                                                      └─► quarantine            │ one queue a receiver
//!                                                                                ▼
//!                                       delivery task of each receiver ──► webhook, syslog, mail, …
//! ```
//!
//! Invariants:
//! 1. A producer never waits: a full bus drops, counts and names what it dropped.
//! 2. What the outbox accepted is on disk, and is delivered at least once, in the order of acceptance within a
//!    receiver. `kill -9` loses none of it.
//! 3. A receiver that hangs, refuses or has an expired certificate holds up nothing but its own queue. A full
//!    queue accepts no more; what it refused is counted, and its receiver is told how many when it is back.
//! 4. What is secret comes from Secrets of Fairlead's own namespace. It is in no log, error or status.

mod bus;
mod cluster_events;
mod delivery;
mod event;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz;
mod message;
mod metrics;
pub mod otlp;
mod outbox;
mod router;
mod rules;
mod send;
mod service;
mod target;

pub use bus::{Emitted, EventBus};
pub use event::Event;
#[cfg(feature = "simulation")]
pub use outbox::simulation;
pub use outbox::{Accepted, Outbox, OutboxError, OutboxLimits};
pub use router::{Quarantine, QuarantineFuture, QuarantineOrder};
pub use rules::{Frequencies, Response, ResponseRules};
pub use send::DeliveryError;
pub use service::{MOST_RECEIVERS, Notifier, NotifierSettings, ReceiverView, TestError};
pub use target::{Credentials, SECRET_LABEL, Target};
