//! `Flow`: a connection as the kernel lists it, and the conversation that it is part of.

use std::net::IpAddr;

use traffic::conversations::{Moment, Protocol, Totals};

/// Below are ports that only servers have; from `EPHEMERAL` on, those that systems give to clients.
const WELL_KNOWN: u16 = 1024;
const EPHEMERAL: u16 = 32_768;

/// A connection, and what it has carried so far, both ways together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    pub id: FlowId,
    pub bytes: u64,
    pub packets: u64,
    /// Whether the connection has ended.
    pub ended: bool,
}

/// Identifies a connection. Addresses and ports alone do not: they may be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowId {
    /// The kernel's number of the connection.
    pub number: u32,
    pub zone: u16,
    pub protocol: Protocol,
    pub client: IpAddr,
    pub client_port: u16,
    /// The address that really serves, behind address translation.
    pub server: IpAddr,
    pub port: u16,
    /// When the connection began, if the kernel knows.
    pub begun: Option<Moment>,
}

/// Identifies a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConversationKey {
    pub client: IpAddr,
    pub server: IpAddr,
    pub port: u16,
    pub protocol: Protocol,
}

/// What a connection had carried when it was last seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowCounters {
    pub(super) bytes: u64,
    pub(super) packets: u64,
    /// The last listing that had it.
    pub(super) listing: u32,
}

impl FlowId {
    pub(super) fn conversation(&self) -> ConversationKey {
        let Self { protocol, client, client_port, server, port, .. } = *self;
        ConversationKey::between(protocol, (client, client_port), (server, port))
    }
}

impl ConversationKey {
    /// The conversation of a connection whose first packet went from `client` to `server`.
    ///
    /// One that seems to go from a well-known port to one that systems give to clients was not seen
    /// from its beginning: its first packet here was an answer.
    pub(crate) fn between(
        protocol: Protocol,
        (client, client_port): (IpAddr, u16),
        (server, port): (IpAddr, u16),
    ) -> Self {
        if client_port != 0 && client_port < WELL_KNOWN && port >= EPHEMERAL {
            return Self { client: server, server: client, port: client_port, protocol };
        }
        Self { client, server, port, protocol }
    }
}

impl FlowCounters {
    /// Counters that are behind were set to zero by somebody: all there is came since.
    pub(super) fn since(self, before: Self) -> Totals {
        if self.bytes < before.bytes || self.packets < before.packets {
            return Totals { bytes: self.bytes, packets: self.packets, sessions: 0 };
        }
        let (bytes, packets) = (self.bytes - before.bytes, self.packets - before.packets);
        Totals { bytes, packets, sessions: 0 }
    }
}

/// Not a group, nor an address that means somebody else elsewhere.
pub(super) fn is_somebody(address: &IpAddr) -> bool {
    let shared = match address {
        IpAddr::V4(v4) => v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(shared || address.is_loopback() || address.is_multicast() || address.is_unspecified())
}
