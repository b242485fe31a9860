//! One connection may be seen at both ends; one of them counts it.
//!
//! The server's agent counts, while it is there; else the client's; where neither end is on a node
//! with an agent, every agent that forwards the connection counts what it forwards.
//!
//! When the side changes, the new one has a total that holds what the old one counted already. So
//! what it brings first only says where it counts from: at a change a little may be missed, and
//! nothing is counted twice. (But what was folded, or begun again, in the meantime is taken for new.)

use super::Endpoint;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Server,
    Client,
    /// On the way between two ends without an agent.
    Between,
}

/// As whom `reporter` counts a conversation; not at all if another agent does. `alive` says whether
/// a node has an agent now.
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
    match (near(server), near(client)) {
        (Some(here), _) => here.then_some(Side::Server),
        (None, Some(here)) => here.then_some(Side::Client),
        (None, None) => Some(Side::Between),
    }
}

/// Whether `side` begins to count what the other end counted until now.
pub fn takes_over(counted: Side, side: Side) -> bool {
    matches!((counted, side), (Side::Server, Side::Client) | (Side::Client, Side::Server))
}

#[cfg(test)]
mod tests;
