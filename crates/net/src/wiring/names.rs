//! By what names and hardware addresses an attachment's interfaces go, and which interfaces are ours.

use kernel::netlink::{self, Link, LinkRef, Mac, Netlink};
use sha2::{Digest, Sha256};

use super::host_interface;
use crate::{Attachment, AttachmentKey};

/// The group of pods' interfaces, from their beginning to their end; those of older versions are in none.
pub const PODS: u32 = 0x66_6c_01;
/// The group of links that are about to be deleted.
pub(super) const LEAVING: u32 = 0x66_6c_00;

/// By what name pods' interfaces go at the node's side. Those that there are keep theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InterfaceNaming {
    /// A name that follows from the container.
    #[default]
    Fairlead,
    /// The name that Calico gives to the pod's interface, for those who look for it by that.
    Calico,
}

/// The names and hardware addresses of an attachment's interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceNames {
    pub host_interface: String,
    pub host_mac: Mac,
    pub pod_mac: Mac,
}

impl InterfaceNames {
    /// Those of an attachment, as the journal has them.
    pub fn of_attachment(attachment: &Attachment) -> Self {
        Self::of(&attachment.key).with(&attachment.host_interface, attachment.mac)
    }

    /// With the name that the interface has, and the hardware address that was chosen.
    pub(super) fn with(self, name: &str, mac: Option<[u8; 6]>) -> Self {
        let pod_mac = mac.map_or(self.pod_mac, Mac);
        Self { host_interface: name.to_owned(), pod_mac, ..self }
    }

    pub fn of(key: &AttachmentKey) -> Self {
        let digest = Sha256::new()
            .chain_update(key.container.as_bytes())
            .chain_update([0])
            .chain_update(key.ifname.as_bytes())
            .finalize();
        let mac = |at: usize| {
            let mut mac = [0; 6];
            mac.copy_from_slice(&digest[at..at + 6]);
            // Not a group's, and administered locally.
            mac[0] = mac[0] & !1 | 2;
            Mac(mac)
        };
        Self { host_interface: host_interface(key), host_mac: mac(12), pod_mac: mac(18) }
    }
}

/// Says whether Fairlead made an interface for a container: by its name, or by its group where names are
/// Calico's.
pub(crate) fn is_ours(link: &Link) -> bool {
    link.kind.as_deref() == Some("veth")
        && (cni::interface::is_ours(&link.name) || matches!(link.group, PODS | LEAVING))
}

/// Names an attachment's interface at the node's side. An interface that has its name and is not ours is not
/// it; where the name is ours alone nothing is asked.
pub(crate) fn own_link<'a>(
    netlink: &mut Netlink,
    attachment: &'a Attachment,
) -> Result<Option<LinkRef<'a>>, netlink::Error> {
    let named = LinkRef::Name(&attachment.host_interface);
    if cni::interface::is_ours(&attachment.host_interface) {
        return Ok(Some(named));
    }
    let mac = Some(InterfaceNames::of_attachment(attachment).host_mac);
    let found = netlink.link(named)?.filter(|link| is_ours(link) && link.mac == mac);
    Ok(found.map(|link| LinkRef::Index(link.index)))
}
