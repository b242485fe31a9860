//! `Datapath`: what attaching does to the kernel, as a trait: [`Wiring`](crate::wiring::Wiring), or one
//! that a test makes fail and hang.
//!
//! All calls block, and a call into the kernel cannot be taken back. Before each step the caller is told
//! ([`Progress`]) and may answer that nobody waits any more; the work is then undone.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use kernel::netlink::Mac;
use kernel::netns;

use crate::wiring::{Fault, WiringError, host_interface};
use crate::{Attachment, AttachmentKey, NamespaceId, Pod};

pub trait Datapath: Send + Sync + 'static {
    /// A network namespace that is held, so that it stays what it is.
    type Namespace: Send + Sync + 'static;

    /// Holds the network namespace that a descriptor leads to.
    fn hold(&self, descriptor: OwnedFd) -> Result<Self::Namespace, netns::Error>;

    fn id(&self, namespace: &Self::Namespace) -> NamespaceId;

    /// Names the interface at the node's side of an attachment that comes.
    fn host_interface(&self, key: &AttachmentKey, _pod: Option<&Pod>) -> String {
        host_interface(key)
    }

    /// Makes what is missing and leaves what is right: to call it twice is to call it once. What needs no
    /// address is made before the addresses are asked for, and what no packet can come by before they are
    /// recorded. If it fails it has removed what it made; the
    /// error says what is left. Whether anybody still waits after the last step is for the caller to see.
    fn set_up_when(
        &self,
        coming: &Coming<'_>,
        namespace: &Self::Namespace,
        progress: &dyn Progress,
    ) -> Result<PodInterfaces, WiringError>;

    /// The same, of an attachment that has its addresses.
    fn set_up(
        &self,
        attachment: &Attachment,
        namespace: &Self::Namespace,
        progress: &dyn Progress,
    ) -> Result<PodInterfaces, WiringError> {
        let shared = Arc::new(attachment.clone());
        let chosen = || Some(Arc::clone(&shared));
        let (key, pool) = (&attachment.key, attachment.pool.as_str());
        let (host_interface, mac) = (attachment.host_interface.as_str(), attachment.mac);
        let coming = Coming { key, host_interface, pool, mac, chosen: &chosen, recorded: &|| true };
        self.set_up_when(&coming, namespace, progress)
    }

    /// Succeeds when nothing is left, whoever removed it; where nothing is, it costs one kernel call.
    fn tear_down(
        &self,
        attachment: &Attachment,
        progress: &dyn Progress,
    ) -> Result<(), WiringError>;

    /// Tears down several; returns those of which something is left, each with the reason.
    fn tear_down_all(
        &self,
        attachments: &[Arc<Attachment>],
    ) -> Vec<(Arc<Attachment>, WiringError)> {
        let left = attachments.iter().filter_map(|attachment| {
            let error = self.tear_down(attachment, &()).err()?;
            Some((Arc::clone(attachment), error))
        });
        left.collect()
    }

    /// Compares the node's side with what [`Self::set_up`] made, and the pod's side if its namespace is
    /// at hand. Returns what differs.
    fn verify(&self, attachment: &Attachment, namespace: Option<&Self::Namespace>) -> Vec<Fault>;
}

/// An attachment whose addresses are being written down.
#[derive(Clone, Copy)]
pub struct Coming<'a> {
    pub key: &'a AttachmentKey,
    /// The name that its interface at the node's side is to have.
    pub host_interface: &'a str,
    pub pool: &'a str,
    /// The hardware address that was chosen for the pod's interface.
    pub mac: Option<[u8; 6]>,
    /// Waits until the addresses are known; none if there will be none.
    pub chosen: &'a dyn Fn() -> Option<Arc<Attachment>>,
    /// Waits until they are in the journal: from then on they may be used. False if they will not be.
    pub recorded: &'a dyn Fn() -> bool,
}

impl fmt::Debug for Coming<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Coming({})", self.key)
    }
}

/// Has policies, or the hold of egresses, decide about a pod from its first packet on. Nothing here asks a store or a controller.
/// Calls block, for as long as the kernel takes.
pub trait PodPolicies: fmt::Debug + Send + Sync {
    /// The attachment's addresses are about to be routed. When this returns, policies decide about them;
    /// a pod whose policies have not arrived is denied what they may deny. An error is a sentence.
    fn admit(&self, attachment: &Attachment) -> Result<(), String>;

    /// The addresses are routed. May wait for the pod's policies, for a bounded time.
    fn settle(&self, attachment: &Attachment);

    /// The addresses are routed no longer.
    fn release(&self, attachment: &Attachment);
}

/// Is told before each step. Its caller may be gone by then.
pub trait Progress: Sync {
    fn step(&self, name: &'static str) -> Result<(), Abandoned>;
}

/// Nobody waits for the result any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nobody waits for the result any more")]
pub struct Abandoned;

/// For callers that wait to the end and do not follow the steps.
impl Progress for () {
    fn step(&self, _: &'static str) -> Result<(), Abandoned> {
        Ok(())
    }
}

/// The pair of interfaces that a pod got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodInterfaces {
    pub host_interface: String,
    pub host_mac: Mac,
    pub pod_interface: String,
    pub pod_mac: Mac,
    pub mtu: u32,
    pub gateway_v4: Option<Ipv4Addr>,
    pub gateway_v6: Option<Ipv6Addr>,
}
