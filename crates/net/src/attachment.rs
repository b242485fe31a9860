//! `Attachment`: one interface of one container, as the journal records it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use cni::wire::{AttachmentKey, Fixed, Pod};
pub use kernel::netns::NamespaceId;
use serde::{Deserialize, Serialize};

/// An attachment's record. It is on disk before the kernel is touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// CNI's own key; also the key in `Lanes`.
    pub key: AttachmentKey,
    /// The `name` of the network configuration: GC removes attachments of one network.
    pub network: String,
    /// The pod, where the runtime names one.
    pub pod: Option<Pod>,
    pub pool: String,
    /// An attachment has at least one of the two addresses.
    pub ipv4: Option<Ipv4Addr>,
    pub ipv6: Option<Ipv6Addr>,
    pub namespace: NamespaceId,
    /// The path by which the runtime reached the namespace.
    pub netns: String,
    /// The interface at the node's side.
    pub host_interface: String,
    /// The hardware address that was chosen for the pod's interface; none: it follows from the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<[u8; 6]>,
    /// The time of the assignment.
    pub since: jiff::Timestamp,
}

impl Attachment {
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let ipv4 = self.ipv4.map(IpAddr::V4);
        ipv4.into_iter().chain(self.ipv6.map(IpAddr::V6))
    }
}
