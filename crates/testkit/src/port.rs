//! Ports that stay ours while nobody listens on them.
//!
//! A port from `bind(0)` lies in the ephemeral range: while a server restarts, or a proxy refuses,
//! any outgoing connection of any process may take it. Below that range only another test can.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};

/// From above the usual services to Linux' default `ip_local_port_range`.
const FIRST: u64 = 15_000;
const COUNT: u64 = 17_000;

/// A listener on a free loopback port. Who must have the port by number drops the listener, and
/// picks again should another have been faster.
pub(crate) fn pick() -> TcpListener {
    let random = RandomState::new();
    (0..COUNT)
        .filter_map(|attempt| {
            let offset = random.hash_one(attempt) % COUNT;
            let port = u16::try_from(FIRST + offset).expect("the range is below 2^16");
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()
        })
        .next()
        .expect("a free loopback port")
}
