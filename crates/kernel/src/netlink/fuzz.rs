use super::*;

/// A datagram of links, addresses, neighbours, routes and rules, or of an error with its explanation.
pub fn netlink(bytes: &[u8]) {
    for raw in messages(bytes) {
        if raw.message_type() == NLMSG_ERROR {
            let _ = answer(&raw);
            continue;
        }
        let Some(message) = inner(&raw) else { continue };
        let _ = listing::read_link(message.clone());
        let _ = listing::read_address(message.clone());
        let _ = listing::read_neighbour(message.clone());
        let _ = listing::read_link_of_route(message.clone());
        let _ = listing::read_default(message.clone());
        let _ = tunnel::read_rule(message.clone());
        if let Some(route) = listing::read_route(message) {
            assert!(route.destination.prefix_len() <= route.destination.max_prefix_len());
        }
    }
}
