//! One connection may be seen at both ends; one of them counts it.
//!
//! The server's agent counts, while it is there; else the client's, while that is. Where neither end
//! is on a node, every agent that forwards the connection counts what it forwards.
//!
//! When the side changes, the new one has a total that holds what the old one counted already. So
//! what it saw until the old one's last word is the old one's, and what it brings first after that
//! only says where it counts from: at a change a little may be missed, and nothing is counted twice.
//! (But what was folded, or begun again, in the meantime is taken for new.)

use super::Endpoint;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Server,
    Client,
    /// On the way between two ends that are on no node.
    Between,
}

/// As whom `reporter` counts a conversation; not at all if another agent does, or would if it were
/// there. `alive` says whether a node has an agent now.
pub fn counts(
    reporter: &str,
    client: &Endpoint,
    server: &Endpoint,
    alive: impl Fn(&str) -> bool,
) -> Option<Side> {
    let near = |end: &Endpoint| {
        let node = end.node().filter(|node| ***node == *reporter || alive(node));
        node.map(|node| **node == *reporter)
    };
    if let Some(here) = near(server) {
        return here.then_some(Side::Server);
    }
    if let Some(here) = near(client) {
        return here.then_some(Side::Client);
    }
    (server.node().is_none() && client.node().is_none()).then_some(Side::Between)
}

#[cfg(test)]
mod tests;
