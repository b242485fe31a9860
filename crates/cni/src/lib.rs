//! The CNI plugin, and the protocol it speaks with the node's agent.
//!
//! ```text
//! runtime ── environment, stdin ──► plugin ── wire::Request, the namespace's fd ──► agent
//!         ◄── stdout, exit code ──        ◄────────── wire::Reply ───────────────
//! ```
//!
//! - `spec`: the CNI specification's types, per version. Input that does not parse becomes CNI's error
//!   for it, so the agent never sees a request that a runtime could not have meant.
//! - `wire`: the protocol: one request and one reply per connection, framed, bounded, with a deadline.
//! - `plugin`: the executable. It is synchronous and has no runtime and no threads, so that it starts in
//!   about a millisecond: a node starts it several times for every pod.
//! - `ready`: the readiness mark of a healthy agent, which holds while the agent is being replaced.
//!
//! Nothing here touches the kernel's network; the agent does.

pub mod interface;
pub mod plugin;
pub mod ready;
pub mod spec;
pub mod wire;
