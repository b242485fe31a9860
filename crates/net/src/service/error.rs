//! `RequestError`: why a request was not served. `cni_reply` translates it for the runtime.

use kernel::netns;
use stallproof::Refused;
use stallproof::tasks::TaskError;

use crate::AttachmentKey;
use crate::addresses::{AssignError, ReleaseError};
use crate::namespace_pools::UnknownNamespace;
use crate::wiring::WiringError;

#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("the network namespace did not come with the request")]
    NamespaceMissing,
    #[error("CNI_NETNS is not a network namespace")]
    NotANamespace(#[source] netns::Error),
    #[error(transparent)]
    UnknownNamespace(#[from] UnknownNamespace),
    #[error(transparent)]
    Assign(#[from] AssignError),
    #[error(transparent)]
    Release(#[from] ReleaseError),
    #[error(transparent)]
    Wiring(#[from] WiringError),
    /// The request was given up on, and its thread has not come back.
    #[error("{} of container {} hangs in the kernel, in step {step}", key.ifname, key.container)]
    Stuck { key: AttachmentKey, step: &'static str },
    #[error("no thread is free for kernel work: {stuck} requests hang in the kernel")]
    NoThread { stuck: i64 },
    #[error("the kernel work has no result")]
    Thread(#[source] TaskError),
    #[error("the request was not done in time")]
    TooLate,
    #[error("the request was not begun")]
    NotBegun(#[source] Refused),
    #[error("the fairlead agent has just started and is reconciling")]
    Reconciling,
    #[error("container {} has no attachment {} on this node", .0.container, .0.ifname)]
    UnknownAttachment(AttachmentKey),
    #[error("the network of container {} is not as it was made", key.container)]
    Differs { key: AttachmentKey, differences: Vec<String> },
    #[error("{} stale attachments could not be removed", .0.len())]
    StaleLeft(Vec<(AttachmentKey, RequestError)>),
    #[error("the agent is reconciling: {0}")]
    NotAvailable(String),
    #[error("{0}")]
    LimitedConnectivity(String),
    #[error("a container runtime does not ask for listings")]
    NotForARuntime,
}
