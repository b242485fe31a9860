//! The fuzz targets of this crate ([docs/endurance.md](../../../docs/endurance.md)): each stands beside its
//! parser.

pub use crate::conntrack::fuzz::conntrack;
pub use crate::netlink::fuzz::netlink;
pub use crate::nftables::fuzz::nftables;
pub use crate::packet_log::fuzz::packet_log;
pub use crate::sockets::fuzz::sockets;
pub use crate::wireguard::fuzz::wireguard;
