//! What a process starts: the controller, the agent, and what both stand on ([`process`]).

pub(crate) mod admission;
pub(crate) mod agent;
pub(crate) mod agents;
pub(crate) mod api_tls;
pub(crate) mod controller;
pub(crate) mod egress;
pub(crate) mod leading;
pub(crate) mod logging;
mod notify;
pub(crate) mod observe;
mod policies;
pub(crate) mod process;
mod programs;
mod signatures;
pub(crate) mod store;
pub(crate) mod traffic;
