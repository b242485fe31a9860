//! `Reporter`: which of the agents that see a connection counts it.
//!
//! The server's agent counts while it is alive, else the client's agent while it is alive. Where neither
//! end is on a node, every agent that forwards the connection counts what it forwards.
//!
//! When the reporter changes, the new one's total includes what the old one counted already. So the
//! traffic until the old one's last change is the old one's, and the new one's first change after that
//! only sets where it counts from: at a change of reporter a little may be missed, and nothing is counted
//! twice. (What was folded or began again in the meantime is taken for new.)

use super::Endpoint;

/// Where the agent that counts a conversation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reporter {
    /// On the server's node.
    Server,
    /// On the client's node.
    Client,
    /// On the way between two ends that are on no node.
    Transit,
}

impl Reporter {
    /// As whom `agent` counts a conversation; `None` if another agent counts it, or would if it were
    /// alive. `alive` says whether a node has an agent now.
    pub fn of(
        agent: &str,
        client: &Endpoint,
        server: &Endpoint,
        alive: impl Fn(&str) -> bool,
    ) -> Option<Self> {
        let near = |end: &Endpoint| {
            let node = end.node().filter(|node| ***node == *agent || alive(node));
            node.map(|node| **node == *agent)
        };
        if let Some(here) = near(server) {
            return here.then_some(Self::Server);
        }
        if let Some(here) = near(client) {
            return here.then_some(Self::Client);
        }
        (server.node().is_none() && client.node().is_none()).then_some(Self::Transit)
    }

    /// As whom `agent` stopped something: only the nodes of its ends judge a connection.
    pub(super) fn of_stopped(agent: &str, client: &Endpoint, server: &Endpoint) -> Option<Self> {
        let near = |end: &Endpoint| end.node().is_some_and(|node| **node == *agent);
        let server = near(server).then_some(Self::Server);
        server.or_else(|| near(client).then_some(Self::Client))
    }
}

#[cfg(test)]
mod tests;
