//! What a container runtime, the plugin and the daemon say to each other.
//!
//! ```text
//! runtime ── environment, stdin ──► plugin ── wire::Request, the namespace's fd ──► daemon
//!         ◄── stdout, exit code ──        ◄────────── wire::Reply ───────────────
//! ```
//!
//! - `spec`: CNI's own words, per version. What does not parse becomes CNI's error for it, so the
//!   daemon never sees a request that a runtime could not have meant.
//! - `wire`: one request and one reply per connection, framed, bounded, with a deadline.
//! - `plugin`: what the executable does. Synchronous, no runtime, no threads: it starts in about a
//!   millisecond, because a node starts it several times for every pod.
//! - `ready`: the mark of an agent that is well, which holds while the agent is being replaced.
//!
//! Nothing here touches the kernel's network; the daemon does.

pub mod interface;
pub mod plugin;
pub mod ready;
pub mod spec;
pub mod wire;
