//! What a container runtime attaches: one interface of one container.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// Which attachment: CNI's own key. Also the key in `Lanes`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    pub container: String,
    pub ifname: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.container, self.ifname)
    }
}

/// The pod it is for, where the runtime says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// Which network namespace, whatever path it is reached by: device and inode of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NamespaceId {
    pub device: u64,
    pub inode: u64,
}

/// What the journal records of an attachment, before the kernel is touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    pub key: Key,
    /// The `name` of the network configuration: GC is within it.
    pub network: String,
    pub pod: Option<Pod>,
    pub pool: String,
    /// At least one of the two is there.
    pub ipv4: Option<Ipv4Addr>,
    pub ipv6: Option<Ipv6Addr>,
    pub namespace: NamespaceId,
    /// The path by which the runtime reached it.
    pub netns: String,
    /// The interface at the node's side.
    pub host_interface: String,
    /// When it was assigned.
    pub since: jiff::Timestamp,
}
