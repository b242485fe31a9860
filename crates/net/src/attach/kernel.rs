//! What attaching does to the kernel, as a trait: the real thing, or one that a test makes hang.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use cni::spec::{Interface, Ip, Prefix, Route, Success};
use kernel::netlink::Mac;
use kernel::netns::Namespace;

use super::Steps;
use crate::wiring::{Wired, Wiring, WiringError};
use crate::{Attachment, NamespaceId};

/// What is done to the kernel: plain calls that may block, and may hang.
pub trait Kernel: Send + Sync + 'static {
    /// A network namespace that is held, so that it stays what it is.
    type Namespace: Send + Sync + 'static;

    /// Takes a descriptor for what it is said to be, if it is that.
    fn namespace(&self, descriptor: OwnedFd) -> io::Result<Self::Namespace>;
    fn id(&self, namespace: &Self::Namespace) -> NamespaceId;
    /// Idempotent; what fails has undone itself as far as it could.
    fn connect(
        &self,
        attachment: &Attachment,
        namespace: &Self::Namespace,
        steps: &Steps,
    ) -> Result<Success, Failed>;
    /// Idempotent, and cheap where nothing is there.
    fn disconnect(&self, attachment: &Attachment, steps: &Steps) -> Result<(), Failed>;
    /// What is not as `connect` made it, one sentence each.
    fn verify(
        &self,
        attachment: &Attachment,
        namespace: &Self::Namespace,
        steps: &Steps,
    ) -> Vec<String>;
}

/// Kernel work that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    pub why: String,
    /// What could not be undone.
    pub left: Vec<String>,
}

impl Kernel for Wiring {
    type Namespace = Namespace;

    fn namespace(&self, descriptor: OwnedFd) -> io::Result<Namespace> {
        Namespace::try_from(descriptor).map_err(|e| io::Error::other(stallproof::sentence(&e)))
    }

    fn id(&self, namespace: &Namespace) -> NamespaceId {
        let id = namespace.id();
        NamespaceId { device: id.device, inode: id.inode }
    }

    fn connect(
        &self,
        attachment: &Attachment,
        namespace: &Namespace,
        steps: &Steps,
    ) -> Result<Success, Failed> {
        let wired = Wiring::connect(self, attachment, namespace, steps);
        wired.map(|wired| success(attachment, wired)).map_err(Failed::from)
    }

    fn disconnect(&self, attachment: &Attachment, steps: &Steps) -> Result<(), Failed> {
        Wiring::disconnect(self, attachment, steps).map_err(Failed::from)
    }

    fn verify(&self, attachment: &Attachment, namespace: &Namespace, steps: &Steps) -> Vec<String> {
        // Nothing to undo, so it goes on to its end.
        let _ = steps.step("verify");
        let faults = Wiring::verify(self, attachment, Some(namespace)).err().unwrap_or_default();
        faults.iter().map(ToString::to_string).collect()
    }
}

/// What a runtime is told of it: the node's end first, the addresses on the container's.
fn success(attachment: &Attachment, wired: Wired) -> Success {
    let Wired { host_interface, host_mac, pod_interface, pod_mac, mtu, gateway_v4, gateway_v6 } =
        wired;
    let interface =
        |name, mac: Mac, sandbox| Interface { name, mac: mac.to_string(), mtu, sandbox };
    let ipv4 = attachment.ipv4.map(|own| (IpAddr::V4(own), gateway_v4.map(IpAddr::V4)));
    let ipv6 = attachment.ipv6.map(|own| (IpAddr::V6(own), gateway_v6.map(IpAddr::V6)));
    let families: Vec<_> = ipv4.into_iter().chain(ipv6).collect();
    let any = |family: IpAddr| match family {
        IpAddr::V4(_) => IpAddr::from([0; 4]),
        IpAddr::V6(_) => IpAddr::from([0; 16]),
    };
    Success {
        interfaces: vec![
            interface(host_interface, host_mac, None),
            interface(pod_interface, pod_mac, Some(attachment.netns.clone())),
        ],
        ips: families
            .iter()
            .map(|(own, gateway)| Ip {
                address: Prefix::host(*own),
                gateway: *gateway,
                interface: 1,
            })
            .collect(),
        routes: families
            .iter()
            .map(|(own, gateway)| Route {
                destination: Prefix { address: any(*own), length: 0 },
                gateway: *gateway,
            })
            .collect(),
        ..Success::default()
    }
}

impl From<WiringError> for Failed {
    fn from(error: WiringError) -> Self {
        let WiringError { step, cause, left } = error;
        Self {
            why: format!("{step}: {}", stallproof::sentence(&cause)),
            left: left.into_iter().collect(),
        }
    }
}

impl Failed {
    pub(super) fn told(&self) -> String {
        if self.left.is_empty() {
            return "what was begun is undone; the runtime tries again".to_owned();
        }
        format!(
            "could not be undone, and is kept until a DEL or reconciling does: {}",
            self.left.join("; ")
        )
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)?;
        self.left.iter().try_for_each(|left| write!(f, "; {left}"))
    }
}
